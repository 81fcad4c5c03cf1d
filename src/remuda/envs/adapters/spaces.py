"""Convert observations and actions between a library's spaces and the arrays of policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.mask_forms import check_mask_space, mask_form
from remuda.envs.adapters.space_checks import check_of
from remuda.envs.checks import BadValueError, UntakeableError, short, write_checked
from remuda.envs.closing import close
from remuda.errors import ContractError
from remuda.observation_parts import PartsBox, parts_of
from remuda.types import Array

MASK = "action_mask"
"""The key of a mask, in a `Dict` observation or in `info`."""
OBSERVATION = "observation"
FLOAT = np.dtype(np.float32)
UNREADABLE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""Errors of reading a value by a space that it is not in."""


@dataclass(frozen=True)
class ObservationConverter:
    """Write the observations of one agent as rows of numbers."""

    space: spaces.Box
    """The space of a row, as policies take it."""
    flatten: Callable[[Any], Any]
    """From an observation without its mask to an array in `space`."""
    has_mask: bool
    """True if the observation is a dictionary that holds the mask."""
    unmasked: spaces.Space[Any]
    """The environment's space, without the mask."""
    part: str | None = None
    """The key of the observation in that dictionary, if it is a single part."""
    check: Callable[[Any], None] | None = None
    """Raises a `BadValueError` for a value outside `unmasked`; None: the row's shape suffices."""

    def write(self, observation: Any, out: Array, check: bool = True) -> None:
        """Write an observation into one row."""
        if not check:
            self._write_unchecked(observation, out)
            return
        try:
            self._write_checked(observation, out)
        except UntakeableError:
            raise
        except BadValueError as error:
            try:  # the message says whether the value passes without checks
                with np.errstate(invalid="ignore", over="ignore"):
                    self._write_unchecked(observation, np.empty_like(out))
            except UntakeableError:
                raise UntakeableError(str(error)) from None
            raise

    def _write_unchecked(self, observation: Any, out: Array) -> None:
        try:
            out[...] = self.flatten(observation if self.part is None else observation[self.part])
        except UNREADABLE as error:
            raise UntakeableError(
                f"the observation is {short(observation)}, of which no numbers in the shape "
                f"{out.shape} can be made ({error!r})"
            ) from None

    def _write_checked(self, observation: Any, out: Array) -> None:
        if observation is None:
            raise BadValueError("the observation is missing")
        try:
            own = observation if self.part is None else observation[self.part]
        except UNREADABLE as error:
            raise _unreadable(observation, error) from None
        self.write_unmasked(own, out)

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

    def mask(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """Return the library's mask; None: it gives none."""
        if not self.has_mask:
            return info.get(MASK)
        try:
            return observation[MASK]
        except KeyError:
            return None


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
        customary = [name for name, _ in rest] == [OBSERVATION]
        has_mask = _is_mask_of(space, actions, customary) or customary
        if has_mask and len(rest) == 1:
            part, space = rest[0]
        elif has_mask and rest:
            space = spaces.Dict(rest)
    if isinstance(space, spaces.Box):
        if 0 in space.shape:  # networks need an input all the same
            nothing = spaces.Box(0.0, 0.0, (1,), np.float32)
            check = check_of(space)
            return ObservationConverter(
                nothing, lambda _: np.zeros(1), has_mask, space, part, check
            )
        return ObservationConverter(_native(space), lambda value: value, has_mask, space, part)
    try:
        flat = spaces.flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, spaces.Box):
        raise ContractError(f"an agent that sees {space} cannot be given numbers of one length")
    low, high = flat.low.astype(np.float32), flat.high.astype(np.float32)
    box: spaces.Box = spaces.Box(low, high, dtype=np.float32)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        box = PartsBox(low, high, parts_of(space))

    def flatten(observation: Any) -> Any:
        return spaces.flatten(space, observation)

    return ObservationConverter(box, flatten, has_mask, space, part, check_of(space))


def _native(space: spaces.Box) -> spaces.Box:
    """Return a Box of a dtype that compiled code takes: native, and not of 16 or 128 bits."""
    dtype = np.dtype(space.dtype).newbyteorder("=")
    if dtype.kind == "f":
        dtype = np.dtype(np.float64) if dtype.itemsize > np.dtype(np.float32).itemsize else FLOAT
    if dtype == space.dtype and space.dtype.isnative:
        return space
    with np.errstate(over="ignore"):
        low, high = space.low.astype(dtype), space.high.astype(dtype)
    return spaces.Box(low, high, dtype=dtype.type)


def _is_mask_of(space: spaces.Dict, actions: ActionConverter | None, customary: bool) -> bool:
    """Return whether the `action_mask` in a `Dict` masks these actions.

    In PettingZoo's customary form the values of the mask count, whatever their space says.
    """
    if actions is None or _choices_of(actions.space) is None:
        return False
    try:
        check_mask_space(space[MASK], actions.env_space)
    except BadValueError as error:
        masks = space[MASK]
        empty = isinstance(masks, spaces.Box) and not masks.high.any()
        if customary and (empty or isinstance(error, UntakeableError)):
            return True
        entries, wanted = _entries(masks), mask_form(actions.env_space).size
        why = f"cannot tell what is allowed in {actions.env_space} ({error})"
        if isinstance(error, UntakeableError) and entries not in (None, wanted):
            why = f"has {entries} entries, and there are {wanted} actions in {actions.env_space}"
        raise ContractError(
            f"the `action_mask` in {space} {why}; let it hold 0 or 1 for each of them, or give it "
            "another name"
        ) from None
    return True


def _entries(space: spaces.Space[Any]) -> int | None:
    """Count the numbers in a value of a space; None: unknown."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = list(space.spaces.values()) if isinstance(space, spaces.Dict) else space.spaces
        counts = [_entries(own) for own in parts]
        return None if None in counts else sum(count or 0 for count in counts)
    return None if space.shape is None else int(np.prod(space.shape))


@dataclass(frozen=True)
class ActionConverter:
    """Convert the actions of one agent's policy to those of its environment."""

    space: spaces.Space[Any]
    """The policy's space: discrete choices begin at 0."""
    unpack: Callable[[Array], Any]
    """From [num_envs, *shape] to an action of the library for each copy."""
    env_space: spaces.Space[Any]
    """The library's space."""


def action_converter(space: spaces.Space[Any]) -> ActionConverter:
    """Return the converter of a space; policies refuse those that they cannot act in."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        choices = spaces.Discrete(int(space.n))
        return ActionConverter(choices, lambda actions: (actions + start).tolist(), space)
    if isinstance(space, spaces.MultiDiscrete):
        first, dtype = space.start, space.dtype
        several = spaces.MultiDiscrete(space.nvec)
        return ActionConverter(several, lambda actions: (actions + first).astype(dtype), space)
    if isinstance(space, spaces.MultiBinary):
        shape, two = space.shape, np.full(int(np.prod(space.shape)), 2)
        return ActionConverter(
            spaces.MultiDiscrete(two),
            lambda actions: actions.reshape(-1, *shape).astype(np.int8),
            space,
        )
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return _converter_of_parts(space)
    if _is_continuous(space):
        assert isinstance(space, spaces.Box)
        native = _native(space)
        if space.shape == ():  # an array without dimensions, and no scalar of NumPy
            return ActionConverter(
                native, lambda actions: [np.asarray(x) for x in _clip(space, actions)], space
            )
        return ActionConverter(native, lambda actions: _clip(space, actions), space)
    return ActionConverter(space, lambda actions: actions.copy(), space)


def _clip(space: spaces.Space[Any], actions: Array) -> Array:
    """Cast and clip: a float32 may exceed a bound of float64."""
    assert isinstance(space, spaces.Box)
    clipped: Array = np.clip(actions.astype(space.dtype), space.low, space.high)
    return clipped


def _converter_of_parts(space: spaces.Tuple[Any] | spaces.Dict) -> ActionConverter:
    """Join parts that are all discrete, or all continuous; policies refuse a mixture."""
    named = isinstance(space, spaces.Dict)
    keys: list[Any] = list(space.spaces) if named else list(range(len(space.spaces)))
    if not keys:
        raise ContractError(f"an agent that acts in {space} has nothing to choose; give it a part")
    parts = [action_converter(space[key]) for key in keys]
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
        if isinstance(joined, spaces.Box):  # a single number is an array too
            by_part = [
                [own if isinstance(own, dict | tuple) else np.asarray(own) for own in part]
                for part in by_part
            ]
        by_copy = zip(*by_part, strict=True)
        return [dict(zip(keys, own, strict=True)) if named else own for own in by_copy]

    return ActionConverter(joined, unpack, space)


def _choices_of(space: spaces.Space[Any]) -> Array | None:
    """Return the number of actions of each choice: [choices]; None: it is not discrete."""
    if isinstance(space, spaces.Discrete):
        return np.array([int(space.n)])
    return np.ravel(space.nvec) if isinstance(space, spaces.MultiDiscrete) else None


def _is_continuous(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)


def seed_of(seed: int) -> int:
    """Return a seed in the range that these libraries take."""
    return int(seed) % 2**31


def picture_of(picture: Any, env: object) -> Array:
    """Return what `render` returned, or raise a `NotImplementedError` if it is no picture."""
    if not isinstance(picture, np.ndarray):
        raise NotImplementedError(f"{env} has no picture of its world")
    return picture


def with_pictures(make: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Add `render_mode="rgb_array"` to the options if the environment supports it."""
    if "render_mode" in options:
        return options
    try:
        env = make(**options, render_mode="rgb_array")
        modes: Iterable[str] = env.metadata.get("render_modes") or ()
        close(env.close, env)
    except Exception:  # it is raised again without the mode
        return options
    return options | {"render_mode": "rgb_array"} if "rgb_array" in modes else options
