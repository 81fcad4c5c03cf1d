"""What agents of other libraries see and do, as the arrays that policies take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.checks import BadValueError, short, write_checked
from remuda.errors import ContractError
from remuda.types import Array, Bools

MASK = "action_mask"
"""Where libraries tell what is allowed: beside the observation in a dictionary, or in `info`."""
OBSERVATION = "observation"


@dataclass(frozen=True)
class Sight:
    """How to write down what one agent sees."""

    space: spaces.Box
    """As policies take it."""
    flatten: Callable[[Any], Any]
    """From what the library gives, without its mask, to an array of that space."""
    has_mask: bool
    """Whether the library's observation is a dictionary with the mask in it."""

    def write(self, seen: Any, out: Array, check: bool = True) -> None:
        """Write what the library gave into one row.

        Raises:
            BadValueError: it gave nothing, or nothing that is like the space; not without `check`.
        """
        if not check:
            out[...] = self.flatten(seen[OBSERVATION] if self.has_mask else seen)
            return
        try:
            flat = self.flatten(seen[OBSERVATION] if self.has_mask else seen)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            if seen is None:
                raise BadValueError("the observation is missing") from None
            raise BadValueError(
                f"the observation is {short(seen)}, which is not in its space ({error!r})"
            ) from None
        if type(flat) is np.ndarray and flat.shape == out.shape and flat.dtype == out.dtype:
            out[...] = flat
        else:
            write_checked("the observation", flat, out)

    def mask(self, seen: Any, info: Mapping[str, Any]) -> Any:
        """What is allowed, as the library tells it; None: it does not."""
        return seen[MASK] if self.has_mask else info.get(MASK)


def sight_of(space: spaces.Space[Any]) -> Sight:
    """How to write down what is seen in a space.

    Raises:
        ContractError: what is seen cannot be written as so many numbers.
    """
    has_mask = isinstance(space, spaces.Dict) and set(space.spaces) == {OBSERVATION, MASK}
    if has_mask:
        assert isinstance(space, spaces.Dict)
        space = space[OBSERVATION]
    if isinstance(space, spaces.Box):
        return Sight(space, lambda seen: seen, has_mask)
    try:
        flat = spaces.flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, spaces.Box):
        raise ContractError(f"an agent that sees {space} cannot be given numbers of one length")
    low, high = flat.low.astype(np.float32), flat.high.astype(np.float32)
    box = spaces.Box(low, high, dtype=np.float32)
    return Sight(box, lambda seen: spaces.flatten(space, seen), has_mask)


def write_mask(
    mask: Any, out: Bools, check: bool = True, space: spaces.Space[Any] | None = None
) -> None:
    """Write a library's mask into one row; its parts follow one another as those of the space do.

    Raises:
        BadValueError: it is of another length; not without `check`.
    """
    if mask is None:
        out[...] = True
        return
    flat = _flat(mask, space)
    if check and (flat.shape != out.shape or flat.dtype.kind not in "biuf"):
        raise BadValueError(f"its mask is {short(mask)}, not {out.size} of true or false")
    out[...] = flat.astype(np.bool_)


def _flat(mask: Any, space: spaces.Space[Any] | None) -> Array:
    """A mask of parts, which may have parts themselves, as one row.

    Raises:
        BadValueError: a part is missing, or there is one too many.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(mask, Mapping) or mask.keys() != space.spaces.keys():
            names = ", ".join(map(str, space.spaces))
            raise BadValueError(f"its mask is {short(mask)}, and has to have parts {names}")
        return np.concatenate([_flat(mask[name], own) for name, own in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        if not isinstance(mask, tuple | list) or len(mask) != len(space.spaces):
            raise BadValueError(f"its mask is {short(mask)}, not of {len(space.spaces)} parts")
        return np.concatenate(
            [_flat(part, own) for part, own in zip(mask, space.spaces, strict=True)]
        )
    if isinstance(mask, tuple | list) and any(np.ndim(part) for part in mask):
        return np.concatenate([np.ravel(part) for part in mask])
    return np.ravel(np.asarray(mask))


def allow_idle(masks: Bools, active: Bools, check: bool) -> None:
    """Allow everything where nothing is allowed, because it is another's turn or the end.

    The mask of an agent that acts stays as it is, for the actor to refuse.

    Args:
        masks: [num_envs, possibilities] of one agent.
        active: [num_envs], where it acts.
        check: whether masks are refused; if not, all is allowed there too.
    """
    nothing = ~masks.any(axis=1)
    if check:
        nothing &= ~active
    masks[nothing] = True


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
    """How to act in a space; one that policies cannot act in stays as it is, for them to refuse."""
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
    return Deeds(space, lambda actions: actions.copy())


def _deeds_of_parts(space: spaces.Space[Any]) -> Deeds:
    """How to act in a space of several: all choices side by side, or all numbers.

    One that has some of both stays as it is, for policies to refuse.
    """
    assert isinstance(space, spaces.Tuple | spaces.Dict)
    named = isinstance(space, spaces.Dict)
    keys: list[Any] = list(space.spaces) if named else list(range(len(space.spaces)))
    parts = [deeds_of(space[key]) for key in keys]
    sizes = [size for part in parts if (size := _choices_of(part.space)) is not None]
    if len(sizes) == len(parts):
        joined: spaces.Space[Any] = spaces.MultiDiscrete(np.concatenate(sizes))
    elif all(_is_of_numbers(part.space) for part in parts):
        low, high = (
            np.concatenate([np.ravel(getattr(part.space, end)) for part in parts])
            for end in ("low", "high")
        )
        joined = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
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
        kind.close()
    except Exception:  # whatever it is, it will come again without the mode
        return options
    return options | {"render_mode": "rgb_array"} if "rgb_array" in modes else options
