"""Convert observations and actions between a library's spaces and the arrays of policies.

Observations are checked before Gymnasium flattens them. Flattening would use a negative `Discrete`
value as an index from the end, cast numbers to the dtype of their part (-1 becomes 255), and accept
parts of wrong shapes if their sizes add up. A number outside the bounds of a Box is not an error,
because many environments exceed their bounds slightly (see `checks.BoundsCheck`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.masks import MASK, can_be_masked, flat_mask, mask_form
from remuda.envs.checks import BadValueError, UntakeableError, fitting, short, write_checked
from remuda.envs.observation_parts import (
    PartsBox,
    are_bytes,
    flat_bytes,
    parts_of,
    spaces_in,
)
from remuda.errors import ContractError
from remuda.types import Array

OBSERVATION = "observation"  # the other key of PettingZoo's customary `Dict` with a mask
FLOAT = np.dtype(np.float32)
Check = Callable[[Any], None]
"""Raises a `BadValueError` for a value outside its space, or another error if it cannot tell."""
UNREADABLE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""Errors that a value outside its space may cause while it is read."""


@dataclass(frozen=True)
class ObservationConverter:
    """A converter of one agent's observations to rows of numbers."""

    space: spaces.Box  # the space of a row: the policy's observation space
    flatten: Callable[[Any], Any]  # from an observation without its mask to an array in `space`
    has_mask: bool  # whether the observation is a dictionary that contains the mask
    unmasked: spaces.Space[Any]  # the environment's space without the mask
    part: str | None = None  # the observation's key in that dictionary, if any
    check: Check | None = None
    """Raises a `BadValueError` for a value outside `unmasked`; None: only shapes are checked."""

    def write(self, observation: Any, out: Array, check: bool = True) -> None:
        """Write an observation into one row."""
        if not check:
            self._write_unchecked(observation, out)
            return
        try:
            if observation is None:
                raise BadValueError("the observation is missing")
            self.write_unmasked(observation if self.part is None else observation[self.part], out)
        except UntakeableError:
            raise
        except UNREADABLE as error:
            fault = error if isinstance(error, BadValueError) else _unreadable(observation, error)
            try:  # find out whether the value is accepted without checks, for the message
                with np.errstate(invalid="ignore", over="ignore"):
                    self._write_unchecked(observation, np.empty_like(out))
            except UntakeableError:
                raise UntakeableError(str(fault)) from None
            raise fault from None

    def _write_unchecked(self, observation: Any, out: Array) -> None:
        try:
            out[...] = self.flatten(observation if self.part is None else observation[self.part])
        except UNREADABLE as error:
            raise UntakeableError(
                f"the observation is {short(observation)}, which cannot be converted to numbers of "
                f"the shape {out.shape} ({error!r})"
            ) from None

    def write_unmasked(self, observation: Any, out: Array) -> None:
        """Write an observation without its mask into one row, or raise a `BadValueError`."""
        try:
            if self.check is not None:
                self.check(observation)
            flat = self.flatten(observation)
        except BadValueError:
            raise
        except UNREADABLE as error:
            raise _unreadable(observation, error) from None
        if type(flat) is np.ndarray and flat.shape == out.shape and flat.dtype == out.dtype:
            out[...] = flat
        else:
            write_checked("the observation", flat, out)


def _unreadable(observation: Any, error: Exception) -> BadValueError:
    shown = short(observation)
    return BadValueError(f"the observation is {shown}, which is not in its space ({error!r})")


def observation_converter(
    space: spaces.Space[Any], actions: ActionConverter | None = None
) -> ObservationConverter:
    """Return the converter of a space, without its `action_mask` if the actions are discrete."""
    has_mask, part = False, None
    if isinstance(space, spaces.Dict) and MASK in space.spaces:
        rest = [(name, own) for name, own in space.spaces.items() if name != MASK]
        has_mask = _holds_mask(space, actions)
        if has_mask and len(rest) == 1:
            part, space = rest[0]
        elif has_mask and rest:
            space = spaces.Dict(rest)
    if isinstance(space, spaces.Box):
        if 0 in space.shape:  # networks need at least one input
            nothing, check = spaces.Box(0.0, 0.0, (1,), np.float32), check_of(space)
            return ObservationConverter(
                nothing, lambda _: np.zeros(1), has_mask, space, part, check
            )
        return ObservationConverter(_native(space), lambda value: value, has_mask, space, part)
    try:
        flat = spaces.flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, spaces.Box):
        raise ContractError(f"the observation space {space} has no fixed size, so no policy fits")
    has_parts = isinstance(space, spaces.Dict | spaces.Tuple)
    flatten: Callable[..., Any] = spaces.flatten
    dtype: np.dtype[Any] = FLOAT
    if has_parts and are_bytes(space):  # a pixel stays one byte in experience
        flatten, dtype = flat_bytes, np.dtype(np.uint8)
    low, high = flat.low.astype(dtype), flat.high.astype(dtype)
    box: spaces.Box = spaces.Box(low, high, dtype=dtype.type)
    if has_parts:
        box = PartsBox(low, high, parts_of(space))
    return ObservationConverter(
        box, partial(flatten, space), has_mask, space, part, check_of(space)
    )


def _native(space: spaces.Box) -> spaces.Box:
    """Return a Box of a dtype that compiled code accepts: native, with floats of 32 or 64 bits."""
    dtype = np.dtype(space.dtype).newbyteorder("=")
    if dtype.kind == "f":
        dtype = np.dtype(np.float64) if dtype.itemsize > np.dtype(np.float32).itemsize else FLOAT
    if dtype == space.dtype and space.dtype.isnative:
        return space
    with np.errstate(over="ignore"):
        low, high = space.low.astype(dtype), space.high.astype(dtype)
    return spaces.Box(low, high, dtype=dtype.type)


def _holds_mask(space: spaces.Dict, actions: ActionConverter | None) -> bool:
    """Return whether the `action_mask` in a `Dict` masks these actions."""
    if space.spaces.keys() == {OBSERVATION, MASK}:
        return True
    if actions is None or not can_be_masked(actions.space):
        return False
    own = deepcopy(space[MASK])  # sampling the environment's space would change its generator
    own.seed(0)
    try:
        flat_mask(own.sample(), mask_form(actions.env_space), "a mask of its space")
    except BadValueError as error:
        raise ContractError(
            f"the `action_mask` in {space} cannot mask the actions of {actions.env_space} "
            f"({error}); let it hold 0 or 1 for each action, or rename it"
        ) from None
    return True


@dataclass(frozen=True)
class ActionConverter:
    """A converter of one agent's actions from its policy to its environment."""

    space: spaces.Space[Any]  # the policy's action space, in which discrete choices start at 0
    unpack: Callable[[Array], Any]  # from [num_envs, *shape] to a library's action for each copy
    env_space: spaces.Space[Any]  # the environment's action space


def action_converter(space: spaces.Space[Any]) -> ActionConverter:
    """Return the converter of a space; policies refuse unsupported spaces later."""
    if isinstance(space, spaces.Discrete):
        start, choices = int(space.start), spaces.Discrete(int(space.n))
        return ActionConverter(choices, lambda actions: (actions + start).tolist(), space)
    if isinstance(space, spaces.MultiDiscrete):
        first, dtype, several = space.start, space.dtype, spaces.MultiDiscrete(space.nvec)
        return ActionConverter(several, lambda actions: (actions + first).astype(dtype), space)
    if isinstance(space, spaces.MultiBinary):
        shape, bits = space.shape, spaces.MultiDiscrete(np.full(int(np.prod(space.shape)), 2))
        return ActionConverter(bits, lambda a: a.reshape(-1, *shape).astype(np.int8), space)
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return _converter_of_parts(space)
    if not _is_continuous(space):
        return ActionConverter(space, lambda actions: actions.copy(), space)
    assert isinstance(space, spaces.Box)
    box = space

    def clip(actions: Array) -> Any:
        """Cast, then clip, because a float32 may exceed a float64 bound."""
        clipped = np.clip(actions.astype(box.dtype), box.low, box.high)
        # A zero-dimensional action must be an array, not a NumPy scalar.
        return clipped if box.shape else [np.asarray(x) for x in clipped]

    return ActionConverter(_native(space), clip, space)


def _converter_of_parts(space: spaces.Tuple[Any] | spaces.Dict) -> ActionConverter:
    """Join parts that are all discrete, or all continuous; policies refuse a mixture."""
    named, inner = isinstance(space, spaces.Dict), spaces_in(space)
    if not inner:
        raise ContractError(f"the action space {space} has no parts, so there is nothing to choose")
    parts = [action_converter(own) for own in inner.values()]
    sizes = [size for part in parts if (size := _choices_of(part.space)) is not None]
    if len(sizes) == len(parts):
        joined: spaces.Space[Any] = spaces.MultiDiscrete(np.concatenate(sizes))
    elif all(_is_continuous(part.space) for part in parts):
        low, high = (
            np.concatenate([np.ravel(getattr(part.space, end)) for part in parts])
            for end in ("low", "high")
        )
        joined = spaces.Box(low, high, dtype=low.dtype.type)
    else:
        return ActionConverter(space, lambda actions: actions.copy(), space)
    ends = np.cumsum([int(np.prod(part.space.shape or (1,))) for part in parts])[:-1]

    def unpack(actions: Array) -> list[Any]:
        columns = np.split(actions.reshape(len(actions), -1), ends, axis=1)
        by_part = [
            part.unpack(own.reshape(len(own), *(part.space.shape or ())).astype(part.space.dtype))
            for part, own in zip(parts, columns, strict=True)
        ]
        if isinstance(joined, spaces.Box):  # a single number must be an array too
            by_part = [
                [own if isinstance(own, dict | tuple) else np.asarray(own) for own in part]
                for part in by_part
            ]
        by_copy = zip(*by_part, strict=True)
        return [dict(zip(inner, own, strict=True)) if named else own for own in by_copy]

    return ActionConverter(joined, unpack, space)


def _choices_of(space: spaces.Space[Any]) -> Array | None:
    """Return the number of actions of each choice, [choices]; None if they are not discrete."""
    if isinstance(space, spaces.Discrete):
        return np.array([int(space.n)])
    return np.ravel(space.nvec) if isinstance(space, spaces.MultiDiscrete) else None


def _is_continuous(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)


def check_of(space: spaces.Space[Any], name: str = "the observation") -> Check | None:
    """Return a check for the values of a space; None if there is nothing to check."""
    kind = next((kind for kind in _CHECKS if isinstance(space, kind)), None)
    check = None if kind is None else _CHECKS[kind](space, name)
    if getattr(type(space).contains, "__module__", "").startswith("gymnasium."):
        return check
    # A user's `contains` decides. For a Box, values outside its bounds are accepted.
    fallback = check if isinstance(space, spaces.Box) else None
    shown = short(space)

    def contained(value: Any) -> None:
        if space.contains(value):
            return
        if fallback is None:
            raise BadValueError(f"{name} is {short(value)}, which is not in {shown}")
        fallback(value)

    return contained


def _check_of_discrete(space: spaces.Discrete, name: str) -> Check:
    first, last = int(space.start), int(space.start + space.n) - 1

    def check(value: Any) -> None:
        if not first <= value <= last:
            raise BadValueError(f"{name} is {short(value)}; allowed is {first} to {last}")

    return check


def _check_of_integers(space: spaces.MultiDiscrete | spaces.MultiBinary, name: str) -> Check:
    first = np.asarray(getattr(space, "start", 0))
    last, shown = first + getattr(space, "nvec", 2) - 1, short(space)

    def check(value: Any) -> None:
        array = np.asarray(value)
        fits = array.shape == space.shape and ((first <= array) & (array <= last)).all()
        if not fits or (array.dtype.kind not in "biu" and (array != np.floor(array)).any()):
            raise BadValueError(f"{name} is {short(value)}, which is not in {shown}")

    return check


def _check_of_box(space: spaces.Box, name: str) -> Check:
    shape, dtype = space.shape, np.dtype(space.dtype)
    # Kinds of dtypes that are cast to `dtype` without a check.
    sound = "biuf" if dtype.kind == "f" else ""

    def check(value: Any) -> None:
        if (
            type(value) is not np.ndarray
            or value.shape != shape
            or not (value.dtype == dtype or value.dtype.kind in sound)
        ):
            fitting(name, value, shape, dtype)

    return check


def _check_of_one(space: spaces.OneOf[Any], name: str) -> Check:
    """Return a check for a pair: the number of a space, and a value in that space."""
    checks = [check_of(own, f"{name}, part {i}") for i, own in enumerate(space.spaces)]
    last = len(checks) - 1

    def check(value: Any) -> None:
        pair = isinstance(value, tuple | list | np.ndarray) and len(value) == 2
        if not (pair and 0 <= value[0] <= last and value[0] == int(value[0])):
            raise BadValueError(
                f"{name} is {short(value)}; it must be a number 0 to {last} and a value of the "
                "space of that number"
            )
        own = checks[int(value[0])]
        if own is not None:
            own(value[1])

    return check


def _check_of_parts(space: spaces.Dict | spaces.Tuple[Any], name: str) -> Check:
    named, inner = isinstance(space, spaces.Dict), spaces_in(space) or {}
    checks = [(key, check_of(each, f"{name}, part {key}")) for key, each in inner.items()]

    def check(value: Any) -> None:
        if not named and len(value) != len(checks):
            raise BadValueError(f"{name} is {short(value)}, not of {len(checks)} parts")
        for key, part in checks:
            if part is not None:
                part(value[key])

    return check


_CHECKS: dict[type, Callable[[Any, str], Check]] = {
    spaces.Discrete: _check_of_discrete,
    spaces.MultiDiscrete: _check_of_integers,
    spaces.MultiBinary: _check_of_integers,
    spaces.Box: _check_of_box,
    spaces.OneOf: _check_of_one,
    spaces.Dict: _check_of_parts,
    spaces.Tuple: _check_of_parts,
}
