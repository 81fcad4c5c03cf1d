"""What agents of other libraries see and do, as the arrays that policies take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.mask_forms import form_of, refuse_unfit
from remuda.envs.adapters.space_checks import refusal_of
from remuda.envs.checks import BadValueError, UntakeableError, short, write_checked
from remuda.envs.closing import close
from remuda.errors import ContractError
from remuda.observation_parts import PartsBox, parts_of
from remuda.types import Array

MASK = "action_mask"
"""Where libraries tell what is allowed: beside the observation in a dictionary, or in `info`."""
OBSERVATION = "observation"
FLOAT = np.dtype(np.float32)
UNREADABLE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What comes of reading a value by a space that it is not in."""


@dataclass(frozen=True)
class Sight:
    """How to write down what one agent sees."""

    space: spaces.Box
    """As policies take it."""
    flatten: Callable[[Any], Any]
    """From what the library gives, without its mask, to an array of that space."""
    has_mask: bool
    """Whether the library's observation is a dictionary with the mask in it."""
    unmasked: spaces.Space[Any]
    """As the library has it, without its mask."""
    part: str | None = None
    """Where in that dictionary the observation stands, if it is a single part; None: it is all."""
    names: tuple[Any, ...] = ()
    """Of the parts of a mask in that dictionary, where those of the actions have none."""
    refuse: Callable[[Any], None] | None = None
    """Raises a `BadValueError` where what the library gives is not like its space; None: there is
    nothing that its shape as a row does not tell."""

    def write(self, seen: Any, out: Array, check: bool = True) -> None:
        """Write what the library gave into one row.

        Raises:
            BadValueError: it gave nothing, or nothing that is like the space; without `check`,
                nothing that could be written.
        """
        if not check:
            self._write_unchecked(seen, out)
            return
        try:
            self._write_checked(seen, out)
        except UntakeableError:
            raise
        except BadValueError as error:
            try:  # whether it could be taken unchecked, as its message is going to say
                with np.errstate(invalid="ignore", over="ignore"):
                    self._write_unchecked(seen, np.empty_like(out))
            except UntakeableError:
                raise UntakeableError(str(error)) from None
            raise

    def _write_unchecked(self, seen: Any, out: Array) -> None:
        try:
            out[...] = self.flatten(seen if self.part is None else seen[self.part])
        except UNREADABLE as error:
            raise UntakeableError(
                f"the observation is {short(seen)}, of which no numbers in the shape {out.shape} "
                f"can be made ({error!r})"
            ) from None

    def _write_checked(self, seen: Any, out: Array) -> None:
        if seen is None:
            raise BadValueError("the observation is missing")
        try:
            own = seen if self.part is None else seen[self.part]
        except UNREADABLE as error:
            raise _unreadable(seen, error) from None
        self.write_unmasked(own, out)

    def write_unmasked(self, own: Any, out: Array) -> None:
        """Write an observation without its mask, in `unmasked`, into one row.

        Raises:
            BadValueError: it is not like that space.
        """
        try:
            if self.refuse is not None:
                self.refuse(own)
            flat = self.flatten(own)
        except BadValueError:
            raise
        except UNREADABLE as error:
            raise _unreadable(own, error) from None
        if type(flat) is np.ndarray and flat.shape == out.shape and flat.dtype == out.dtype:
            out[...] = flat
        else:
            write_checked("the observation", flat, out)

    def mask(self, seen: Any, info: Mapping[str, Any]) -> Any:
        """What is allowed, as the library tells it; None: it does not.

        Raises:
            UntakeableError: its parts come in another order than those of its space, and the order
                alone tells which choice is whose.
        """
        if not self.has_mask:
            return info.get(MASK)
        try:
            mask = seen[MASK]
        except KeyError:
            return None
        if not (self.names and isinstance(mask, Mapping)):
            return mask
        if tuple(mask) != self.names:
            found, own = (", ".join(map(str, names)) for names in (mask, self.names))
            raise UntakeableError(
                f"its mask has the parts {found} in this order, and its space {own}: the choices "
                "of a MultiDiscrete have no names, so that the order has to be the same"
            )
        return tuple(mask.values())


def _unreadable(seen: Any, error: Exception) -> BadValueError:
    return BadValueError(f"the observation is {short(seen)}, which is not in its space ({error!r})")


def sight_of(space: spaces.Space[Any], does: Deeds | None = None) -> Sight:
    """How to write down what is seen in a space.

    Args:
        space: of what is seen. An `action_mask` in a dictionary is no part of it where it tells of
            the agent's actions.
        does: how the agent acts; None: its masks are nobody's business.

    Raises:
        ContractError: what is seen cannot be written as so many numbers, or the mask in it can be
            none of its actions.
    """
    has_mask, part, names = False, None, tuple[Any, ...]()
    if isinstance(space, spaces.Dict) and MASK in space.spaces:
        rest = [(name, own) for name, own in space.spaces.items() if name != MASK]
        customary = [name for name, _ in rest] == [OBSERVATION]
        has_mask = _tells_of(space, does, customary) or customary
        masked_in = space[MASK]
        if isinstance(masked_in, spaces.Dict) and not (
            does is None or isinstance(does.theirs, spaces.Dict)
        ):
            names = tuple(masked_in.spaces)
        if has_mask and len(rest) == 1:
            part, space = rest[0]
        elif has_mask and rest:
            space = spaces.Dict(rest)
    if isinstance(space, spaces.Box):
        if 0 in space.shape:  # networks have an input all the same
            nothing = spaces.Box(0.0, 0.0, (1,), np.float32)
            refuse = refusal_of(space)
            return Sight(nothing, lambda _: np.zeros(1), has_mask, space, part, names, refuse)
        return Sight(_native(space), lambda seen: seen, has_mask, space, part, names)
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
    refuse = refusal_of(space)

    def flatten(seen: Any) -> Any:
        return spaces.flatten(space, seen)

    return Sight(box, flatten, has_mask, space, part, names, refuse)


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


def _tells_of(sees: spaces.Dict, does: Deeds | None, customary: bool) -> bool:
    """Whether the `action_mask` in what is seen is one: those of numbers tell nothing.

    Args:
        sees: holds it.
        does: how the agent acts.
        customary: the form is PettingZoo's, of which the values count, whatever their space says.

    Raises:
        ContractError: it can be none of these actions.
    """
    if does is None or does.theirs is None or _choices_of(does.space) is None:
        return False
    try:
        refuse_unfit(sees[MASK], does.theirs)
    except BadValueError as error:
        masked = sees[MASK]
        empty = isinstance(masked, spaces.Box) and not masked.high.any()
        if customary and (empty or isinstance(error, UntakeableError)):
            return True
        count, asked = _entries(masked), form_of(does.theirs).size
        why = f"cannot tell what is allowed in {does.theirs} ({error})"
        if isinstance(error, UntakeableError) and count not in (None, asked):
            why = f"has {count} entries, and there are {asked} actions in {does.theirs}"
        raise ContractError(
            f"the `action_mask` in {sees} {why}; let it hold 0 or 1 for each of them, or give it "
            "another name"
        ) from None
    return True


def _entries(space: spaces.Space[Any]) -> int | None:
    """How many numbers there are in what a mask is told in, which may have parts; None: unknown."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = list(space.spaces.values()) if isinstance(space, spaces.Dict) else space.spaces
        counts = [_entries(own) for own in parts]
        return None if None in counts else sum(count or 0 for count in counts)
    return None if space.shape is None else int(np.prod(space.shape))


@dataclass(frozen=True)
class Deeds:
    """How one agent acts."""

    space: spaces.Space[Any]
    """As policies take it: discrete choices begin at 0."""
    unpack: Callable[[Array], Any]
    """From [num_envs, *shape] to an action for each copy, as the library takes it."""
    theirs: spaces.Space[Any] | None = None
    """As the library has it."""


def deeds_of(space: spaces.Space[Any]) -> Deeds:
    """How to act in a space; one that policies cannot act in stays as it is, for them to refuse.

    Raises:
        ContractError: it has no part at all.
    """
    return replace(_deeds_in(space), theirs=space)


def _deeds_in(space: spaces.Space[Any]) -> Deeds:
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return Deeds(spaces.Discrete(int(space.n)), lambda actions: (actions + start).tolist())
    if isinstance(space, spaces.MultiDiscrete):
        first, dtype = space.start, space.dtype
        return Deeds(
            spaces.MultiDiscrete(space.nvec), lambda actions: (actions + first).astype(dtype)
        )
    if isinstance(space, spaces.MultiBinary):
        shape, two = space.shape, np.full(int(np.prod(space.shape)), 2)
        return Deeds(
            spaces.MultiDiscrete(two),
            lambda actions: actions.reshape(-1, *shape).astype(np.int8),
        )
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return _deeds_of_parts(space)
    if _is_of_numbers(space):
        assert isinstance(space, spaces.Box)
        native = _native(space)
        if space.shape == ():  # an array without a dimension, and no scalar of NumPy's
            return Deeds(native, lambda actions: [np.asarray(x) for x in _within(space, actions)])
        return Deeds(native, lambda actions: _within(space, actions))
    return Deeds(space, lambda actions: actions.copy())


def _within(space: spaces.Space[Any], actions: Array) -> Array:
    """Numbers as the library's own space has them: a bound of float64 lies beside its float32."""
    assert isinstance(space, spaces.Box)
    bounded: Array = np.clip(actions.astype(space.dtype), space.low, space.high)
    return bounded


def _deeds_of_parts(space: spaces.Space[Any]) -> Deeds:
    """How to act in a space of several: all choices side by side, or all numbers.

    One that has some of both stays as it is, for policies to refuse.
    """
    assert isinstance(space, spaces.Tuple | spaces.Dict)
    named = isinstance(space, spaces.Dict)
    keys: list[Any] = list(space.spaces) if named else list(range(len(space.spaces)))
    if not keys:
        raise ContractError(f"an agent that acts in {space} has nothing to choose; give it a part")
    parts = [deeds_of(space[key]) for key in keys]
    sizes = [size for part in parts if (size := _choices_of(part.space)) is not None]
    if len(sizes) == len(parts):
        joined: spaces.Space[Any] = spaces.MultiDiscrete(np.concatenate(sizes))
    elif all(_is_of_numbers(part.space) for part in parts):
        low, high = (
            np.concatenate([np.ravel(getattr(part.space, end)) for part in parts])
            for end in ("low", "high")
        )
        joined = spaces.Box(low, high, dtype=low.dtype.type)
    else:
        return Deeds(space, lambda actions: actions.copy())
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

    return Deeds(joined, unpack)


def _choices_of(space: spaces.Space[Any]) -> Array | None:
    """How many possibilities each choice has; None: it is none of choices."""
    if isinstance(space, spaces.Discrete):
        return np.array([int(space.n)])
    return np.ravel(space.nvec) if isinstance(space, spaces.MultiDiscrete) else None


def _is_of_numbers(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)


def seed_of(seed: int) -> int:
    """A seed as these libraries take it."""
    return int(seed) % 2**31


def picture_of(picture: Any, whose: object) -> Array:
    """What a library's `render` gave.

    Raises:
        NotImplementedError: it is no picture.
    """
    if not isinstance(picture, np.ndarray):
        raise NotImplementedError(f"{whose} has no picture of its world")
    return picture


def drawing(make: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options, with pictures asked for where the environment has them."""
    if "render_mode" in options:
        return options
    try:
        kind = make(**options, render_mode="rgb_array")
        modes: Iterable[str] = kind.metadata.get("render_modes") or ()
        close(kind.close, kind)
    except Exception:  # whatever it is, it will come again without the mode
        return options
    return options | {"render_mode": "rgb_array"} if "rgb_array" in modes else options
