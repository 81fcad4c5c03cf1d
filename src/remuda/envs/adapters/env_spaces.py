"""Conversion between the spaces of an agent's environment and the arrays of its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.mask_forms import form_of
from remuda.envs.adapters.masks import can_be_masked, write_mask
from remuda.envs.adapters.spaces import MASK, OBSERVATION, deeds_of, sight_of
from remuda.envs.checks import BadValueError, short
from remuda.envs.scripted import possibilities
from remuda.errors import UsageError
from remuda.types import AgentSpec, Array, Bools

LEAVES = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
"""Spaces whose values are one array, so that a batch of them is one too: [N, *shape]."""


class EnvSpaces:
    """The spaces of one agent as its environment declares them.

    A batch of N values is [N, *shape], or, of a `Dict` or `Tuple`, a `Dict` or `Tuple` of such
    batches, as in `gymnasium.vector`. A batch of other values, such as `Text`, is a list.

    1. An observation is flattened exactly as in training.
    2. An action is in `action_space`, and exactly what the environment gets in training.
    3. Whether there is one observation or a batch is told by shapes, of each part.
    """

    def __init__(self, agent: AgentSpec) -> None:
        sees, acts = agent.env_observation_space, agent.env_action_space
        self.observation_space = agent.observation_space if sees is None else sees
        self.action_space = agent.action_space if acts is None else acts
        self._deeds = deeds_of(self.action_space)
        self._sight = sight_of(self.observation_space, self._deeds)
        self._agent = agent
        self._form = form_of(self.action_space) if can_be_masked(self._deeds) else None

    @property
    def is_array(self) -> bool:
        """Whether an observation, without its mask, is an array of numbers as the policy takes it.

        Its shape and dtype are then left to be checked.
        """
        own = self._sight.unmasked
        return isinstance(own, spaces.Box) and own.shape == self._sight.space.shape

    def split(self, observation: Any) -> tuple[Any, Any]:
        """An observation, or a batch, without its mask; and the mask, None: it has none."""
        if not isinstance(observation, Mapping):
            return observation, None
        comes_with = self._agent.masked and MASK in observation
        mask = observation[MASK] if comes_with else None
        part = self._sight.part
        if part is None and comes_with and self.is_array:
            part = OBSERVATION  # as PettingZoo hands it over, whatever the space is
        return (
            observation[part] if part is not None and part in observation else observation
        ), mask

    def flatten(self, observation: Any) -> tuple[Array, bool]:
        """An observation without its mask, or a batch, as [N, size], and whether it is one alone.

        Raises:
            UsageError: it is not in the space.
        """
        space, size = self._sight.unmasked, self._sight.space.shape
        if isinstance(observation, np.ndarray) and not isinstance(space, LEAVES):
            flat = observation  # it was flattened before
            if flat.shape != size and flat.shape[1:] != size:
                raise UsageError(f"it is an array of shape {flat.shape}, and not in {space}")
            return flat.reshape(-1, *size), flat.shape == size
        try:
            count = _count(space, observation, "the observation")
            items = [observation] if count is None else _items(space, observation, count)
            rows = np.zeros((len(items), *size), self._sight.space.dtype)
            for i, item in enumerate(items):
                self._sight.write_unmasked(item, rows[i, ...])
        except BadValueError as error:
            raise UsageError(str(error)) from None
        return rows, count is None

    def allowed(self, mask: Any, count: int, single: bool) -> Bools | None:
        """A mask in a form of the environment's as [N, mask_size]; None: it is one row for all.

        Raises:
            UsageError: it has no such form.
        """
        if self._form is None or isinstance(self.action_space, spaces.Discrete):
            return None
        size = possibilities(self._agent)
        if _shape(mask) in ((size,), (count, size)):
            return None
        rows: Bools = np.ones((count, size), np.bool_)
        try:
            for i in range(count):
                write_mask(mask if single else _row(mask, i), rows[i], True, self._form)
        except (BadValueError, IndexError, TypeError) as error:
            raise UsageError(str(error)) from None
        return rows

    def actions(self, chosen: Array, single: bool) -> Any:
        """Actions [N, *shape] of the policy, within bounds, as the environment takes them."""
        found = self._deeds.unpack(chosen)
        return found[0] if single else _batch(self.action_space, found)


def _shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a value as an array; None: it is none."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        return None
    return None if array.dtype.kind == "O" else array.shape


def _count(space: spaces.Space[Any], value: Any, what: str) -> int | None:
    """How many values a batch holds; None: it is a single value.

    Raises:
        BadValueError: it is neither, or its parts do not agree.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _count_of_parts(space, value, what)
    if not isinstance(space, LEAVES):
        return len(value) if isinstance(value, list) else None
    shape = _shape(value)
    if shape == space.shape:
        return None
    if shape is None or shape[1:] != space.shape or not shape:
        raise BadValueError(
            f"{what} is {short(value)}; it has to be of shape {space.shape}, or a batch of those"
        )
    return shape[0]


def _count_of_parts(space: spaces.Space[Any], value: Any, what: str) -> int | None:
    own: dict[Any, spaces.Space[Any]]
    if isinstance(space, spaces.Dict):
        own = dict(space.spaces)
        if not isinstance(value, Mapping) or any(key not in value for key in own):
            raise BadValueError(
                f"{what} is {short(value)}; it has to have the parts {', '.join(map(str, own))}"
            )
    else:
        assert isinstance(space, spaces.Tuple)
        own = dict(enumerate(space.spaces))
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != len(own):
            raise BadValueError(f"{what} is {short(value)}; it has to have {len(own)} parts")
    counts = {key: _count(own[key], value[key], f"{what}, part {key},") for key in own}
    if len(set(counts.values())) > 1:
        told = ", ".join(
            f"{key} is {'a single value' if count is None else f'a batch of {count}'}"
            for key, count in counts.items()
        )
        raise BadValueError(f"{what} has parts that do not belong together: {told}")
    return next(iter(counts.values()), None)


def _items(space: spaces.Space[Any], batch: Any, count: int) -> list[Any]:
    """The values of a batch."""
    if isinstance(space, spaces.Dict):
        parts = {key: _items(own, batch[key], count) for key, own in space.spaces.items()}
        return [{key: part[i] for key, part in parts.items()} for i in range(count)]
    if isinstance(space, spaces.Tuple):
        return list(
            zip(*(_items(own, batch[i], count) for i, own in enumerate(space.spaces)), strict=True)
        )
    return list(np.asarray(batch)) if isinstance(space, LEAVES) else list(batch)


def _batch(space: spaces.Space[Any], items: Any) -> Any:
    """Values of a space as one batch."""
    if isinstance(space, spaces.Dict):
        return {
            key: _batch(own, [item[key] for item in items]) for key, own in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(_batch(own, [item[i] for item in items]) for i, own in enumerate(space.spaces))
    shape = (len(items), *(space.shape or ()))
    return np.asarray(items, space.dtype).reshape(shape)


def _row(mask: Any, i: int) -> Any:
    """The mask of one stream, of a batch of masks."""
    if isinstance(mask, Mapping):
        return {key: _row(part, i) for key, part in mask.items()}
    if isinstance(mask, tuple):
        return tuple(_row(part, i) for part in mask)
    return None if mask is None else mask[i]
