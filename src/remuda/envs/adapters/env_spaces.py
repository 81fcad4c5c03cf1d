"""Convert observations and actions of `Policy.act` between an environment's spaces and arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.masks import MASK, can_be_masked, mask_form, write_mask
from remuda.envs.adapters.spaces import OBSERVATION, action_converter, observation_converter
from remuda.envs.batches import named_parts, unflatten
from remuda.envs.checks import BadValueError, short
from remuda.envs.observation_parts import spaces_in
from remuda.envs.scripted import possibilities
from remuda.errors import UsageError
from remuda.types import AgentSpec, Array, Bools

ARRAYS = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
"""Spaces whose values are one array, so that a batch is [N, *shape]."""


class EnvSpaces:
    """The spaces of one agent as its environment declares them.

    A batch of N arrays is [N, *shape]. A batch of a `Dict` or `Tuple` is a `Dict` or `Tuple` of
    batches, as in `gymnasium.vector`. A batch of other values, such as `Text`, is a list.

    1. An observation is flattened exactly as in training.
    2. An action is in `action_space`, and is exactly what training passes to the environment.
    3. A batch is distinguished from a single observation by the shapes of its parts.
    """

    def __init__(self, agent: AgentSpec) -> None:
        observed, acts = agent.env_observation_space, agent.env_action_space
        self.observation_space = agent.observation_space if observed is None else observed
        self.action_space = agent.action_space if acts is None else acts
        self._actions = action_converter(self.action_space)
        self._observations = observation_converter(self.observation_space, self._actions)
        self._agent = agent
        self._form = mask_form(self.action_space) if can_be_masked(self._actions.space) else None

    @property
    def unmasked(self) -> spaces.Space[Any]:
        """The observation space without the action mask."""
        return self._observations.unmasked

    @property
    def is_array(self) -> bool:
        """Return whether an observation without its mask is an array of the policy's shape."""
        own = self._observations.unmasked
        return isinstance(own, spaces.Box) and own.shape == self._observations.space.shape

    def split(self, observation: Any) -> tuple[Any, Any]:
        """Split an observation, or a batch, into the part without a mask and the mask, if any."""
        if not isinstance(observation, Mapping):
            return observation, None
        comes_with = self._agent.masked and MASK in observation
        mask = observation[MASK] if comes_with else None
        part = self._observations.part
        if part is None and comes_with and self.is_array:
            part = OBSERVATION  # PettingZoo's form is accepted for any space
        has_part = part is not None and part in observation
        return observation[part] if has_part else observation, mask

    def flatten(self, observation: Any) -> tuple[Array, bool]:
        """Return an unmasked observation, or a batch, as [N, size], and whether it is single."""
        space, size = self._observations.unmasked, self._observations.space.shape
        if isinstance(observation, np.ndarray) and not isinstance(space, ARRAYS):
            flat = observation  # it is already flattened
            if flat.shape != size and flat.shape[1:] != size:
                raise UsageError(f"it is an array of shape {flat.shape}, which is not in {space}")
            return flat.reshape(-1, *size), flat.shape == size
        try:
            count = _count(space, observation, "the observation")
            items = [observation] if count is None else _items(space, observation)
            rows = np.zeros((len(items), *size), self._observations.space.dtype)
            for i, item in enumerate(items):
                self._observations.write_unmasked(item, rows[i, ...])
        except BadValueError as error:
            raise UsageError(str(error)) from None
        return rows, count is None

    def allowed(self, mask: Any, count: int, single: bool) -> Bools | None:
        """Return a mask of the environment as [N, mask_size]; None if it already has that form."""
        if self._form is None or isinstance(self.action_space, spaces.Discrete):
            return None
        size = possibilities(self._agent)
        if _shape(mask) in ((size,), (count, size)):
            return None
        rows: Bools = np.ones((count, size), np.bool_)
        try:
            for i in range(count):
                write_mask(mask if single else _mask_at(mask, i), rows[i], True, self._form)
        except (BadValueError, IndexError, TypeError) as error:
            raise UsageError(str(error)) from None
        return rows

    def actions(self, chosen: Array, single: bool) -> Any:
        """Convert the policy's actions, [N, *shape], to the environment's, within their bounds."""
        actions = self._actions.unpack(chosen)
        return actions[0] if single else _batch(self.action_space, actions)

    def unflatten(self, rows: Array) -> Any:
        """Convert the policy's observations, [N, *shape], to a batch in `unmasked`.

        Raises:
            UsageError: a part of the space is not an array.
        """
        return unflatten(self.unmasked, rows.reshape(len(rows), math.prod(rows.shape[1:])))

    def policy_actions(self, actions: Any) -> Array:
        """Convert a batch of the environment's actions to [N, size]; choices start at 0."""
        found = []
        space = named_parts(self.action_space, _leaves(self.action_space))
        for name, part in named_parts(self.action_space, actions).items():
            first = getattr(space[name], "start", 0)
            shifted = np.asarray(part) - first
            found.append(shifted.reshape(len(part), math.prod(shifted.shape[1:])))
        return np.concatenate(found, axis=1)


def _leaves(space: spaces.Space[Any]) -> Any:
    """Return the parts of a space, nested like its values."""
    inner = spaces_in(space)
    return space if inner is None else {key: _leaves(own) for key, own in inner.items()}


def _shape(value: Any) -> tuple[int, ...] | None:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        return None
    return None if array.dtype.kind == "O" else array.shape


def _count(space: spaces.Space[Any], value: Any, name: str) -> int | None:
    """Return the size of a batch; None for a single value."""
    inner = spaces_in(space)
    if inner is not None:
        return _count_of_parts(inner, isinstance(space, spaces.Dict), value, name)
    if not isinstance(space, ARRAYS):
        return len(value) if isinstance(value, list) else None
    shape = _shape(value)
    if shape == space.shape:
        return None
    if shape is None or shape[1:] != space.shape or not shape:
        raise BadValueError(
            f"{name} is {short(value)}; it must have shape {space.shape}, or be a batch of those"
        )
    return shape[0]


def _count_of_parts(
    inner: dict[Any, spaces.Space[Any]], is_named: bool, value: Any, name: str
) -> int | None:
    if is_named:
        fits = isinstance(value, Mapping) and all(key in value for key in inner)
    else:
        is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
        fits = is_sequence and len(value) == len(inner)
    if not fits:
        parts = f"the parts {', '.join(map(str, inner))}" if is_named else f"{len(inner)} parts"
        raise BadValueError(f"{name} is {short(value)}; it must have {parts}")
    counts = {key: _count(own, value[key], f"{name}, part {key},") for key, own in inner.items()}
    if len(set(counts.values())) > 1:
        sizes = ", ".join(
            f"{key} is {'a single value' if count is None else f'a batch of {count}'}"
            for key, count in counts.items()
        )
        raise BadValueError(f"{name} has parts of different batch sizes: {sizes}")
    return next(iter(counts.values()), None)


def _items(space: spaces.Space[Any], batch: Any) -> list[Any]:
    inner = spaces_in(space)
    if inner is None:
        return list(np.asarray(batch)) if isinstance(space, ARRAYS) else list(batch)
    columns = [_items(own, batch[key]) for key, own in inner.items()]
    rows = list(zip(*columns, strict=True))
    is_named = isinstance(space, spaces.Dict)
    return [dict(zip(inner, row, strict=True)) for row in rows] if is_named else rows


def _batch(space: spaces.Space[Any], items: Any) -> Any:
    inner = spaces_in(space)
    if inner is None:
        shape = (len(items), *(space.shape or ()))
        return np.asarray(items, space.dtype).reshape(shape)
    parts = {key: _batch(own, [item[key] for item in items]) for key, own in inner.items()}
    return parts if isinstance(space, spaces.Dict) else tuple(parts.values())


def _mask_at(masks: Any, i: int) -> Any:
    if isinstance(masks, Mapping):
        return {key: _mask_at(part, i) for key, part in masks.items()}
    if isinstance(masks, tuple):
        return tuple(_mask_at(part, i) for part in masks)
    return None if masks is None else masks[i]
