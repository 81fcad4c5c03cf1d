"""Masks in whatever form libraries hand them over, as one row of true and false.

The forms are those of Gymnasium's `sample(mask=...)`, in which None allows all of a part, and one
row for all parts in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.checks import BadValueError, UntakeableError, numbers_in, short
from remuda.types import Array


def entries_of(space: spaces.Space[Any]) -> int:
    """How many actions there are in a space of choices, those of each choice added up."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return sum(entries_of(own) for _, own in _own_parts(space))
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.MultiBinary):
        return 2 * int(np.prod(space.shape))
    assert isinstance(space, spaces.Discrete), f"actions in {space} are not counted"
    return int(space.n)


def flat_mask(
    mask: Any, space: spaces.Space[Any], check: bool = True, what: str = "its mask"
) -> Array:
    """A mask as one row: [entries_of(space)], numbers or booleans.

    Args:
        mask: one row for all, a mask for each part, or None: all is allowed. Of a `MultiBinary` it
            has off and on of each bit, or one entry a bit: 0 off, 1 on, 2 either.
        space: of the actions, as the library has it.
        check: refuse numbers of bits that are none of these.
        what: it is, in messages.

    Raises:
        BadValueError: it has none of these forms; or, with `check`, strange numbers of bits.
    """
    size = entries_of(space)
    if mask is None:
        return np.ones(size, np.bool_)
    if isinstance(space, spaces.MultiBinary):
        return _of_bits(mask, size // 2, check, what)
    if isinstance(space, spaces.Discrete):
        return _row(mask, size, what)
    if _is_row(mask) and np.size(mask) == size:
        return _row(mask, size, what)
    if isinstance(space, spaces.Dict):
        if not isinstance(mask, Mapping) or mask.keys() != space.spaces.keys():
            names = ", ".join(map(str, space.spaces))
            raise UntakeableError(
                f"{what} is {short(mask)}, and has to have parts {names}, or to be {size} of true "
                "or false"
            )
        parts = [(name, mask[name], own) for name, own in space.spaces.items()]
    else:
        parts = _in_order(mask, space, size, what)
    rows = [flat_mask(part, own, check, f"{what}, part {key}") for key, part, own in parts]
    return np.concatenate(rows)


def _in_order(
    mask: Any, space: spaces.Space[Any], size: int, what: str
) -> list[tuple[Any, Any, spaces.Space[Any]]]:
    """The parts of a mask whose space has no names for them: each with its key and its space.

    Raises:
        UntakeableError: there are not as many.
    """
    own = [each for _, each in _own_parts(space)]
    found: list[tuple[Any, Any]] = []
    if isinstance(mask, Mapping):
        found = list(mask.items())
    elif isinstance(mask, tuple | list | np.ndarray) and not _is_row(mask):
        found = list(enumerate(mask))
    nested = isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim > 1
    if nested and len(found) != len(own):
        own = [spaces.MultiDiscrete(row) for row in space.nvec]  # type: ignore[attr-defined]
    if len(found) != len(own):
        raise UntakeableError(
            f"{what} is {short(mask)}, not of {len(own)} parts or {size} of true or false"
        )
    return [(key, part, each) for (key, part), each in zip(found, own, strict=True)]


def _own_parts(space: spaces.Space[Any]) -> list[tuple[Any, spaces.Space[Any]]]:
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return list(enumerate(space.spaces))
    assert isinstance(space, spaces.MultiDiscrete)
    return [(i, spaces.Discrete(n)) for i, n in enumerate(space.nvec.ravel().tolist())]


def _is_row(mask: Any) -> bool:
    """Whether a mask is a row of single entries, and no sequence of parts."""
    if isinstance(mask, tuple | list):
        parts = tuple, list, Mapping, type(None)
        return not any(isinstance(e, parts) or getattr(e, "ndim", 0) for e in mask)
    if isinstance(mask, Mapping):
        return False
    array = numbers_in(mask)
    return array is not None and array.ndim == 1


def _row(mask: Any, size: int, what: str) -> Array:
    array = numbers_in(list(mask.values()) if isinstance(mask, Mapping) else mask)
    if array is None or array.size != size:
        raise UntakeableError(f"{what} is {short(mask)}, not {size} of true or false")
    return np.ravel(array)


def _of_bits(mask: Any, count: int, check: bool, what: str) -> Array:
    """Off and on of each bit: [2 count]."""
    array = numbers_in(list(mask.values()) if isinstance(mask, Mapping) else mask)
    if array is None or array.size not in (count, 2 * count):
        raise UntakeableError(
            f"{what} is {short(mask)}, not {2 * count} of true or false, or {count} of 0, 1 and 2"
        )
    bits = np.ravel(array)
    if bits.size == 2 * count:
        return bits
    strange = ~np.isin(bits, (0, 1, 2))
    if check and strange.any():
        at = int(strange.argmax())
        raise BadValueError(
            f"{what} holds {bits[at]} (number {at} of {count}); with one entry for each bit it may "
            "hold 0 where the bit has to be off, 1 where it has to be on and 2 where it may be "
            "either, and nothing else"
        )
    return np.stack([bits != 1, bits != 0], axis=1).ravel()


def refuse_unfit(masked_in: spaces.Space[Any], does: spaces.Space[Any]) -> None:
    """Refuse a space of masks none of whose values could be a mask of the actions.

    Args:
        masked_in: where the masks are.
        does: the actions, as the library has them.

    Raises:
        UntakeableError: its values have no form of a mask.
        BadValueError: it has no value that allows everything.
    """
    widest = flat_mask(_widest(masked_in), does, check=False)
    if not widest.astype(np.bool_).all():
        raise BadValueError(
            "by its space it never allows all of them (of a MultiBinary, one entry for each bit is "
            "0 where it has to be off, 1 where it has to be on and 2 where it may be either, as in "
            "Gymnasium; or let it have two, 0 or 1 for off and for on)"
        )


def _widest(space: spaces.Space[Any]) -> Any:
    """The value of a space of masks that allows the most: 2 where it may be, or 1."""
    if isinstance(space, spaces.Dict):
        return {name: _widest(own) for name, own in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_widest(own) for own in space.spaces)
    if isinstance(space, spaces.Box):
        return np.minimum(space.high.astype(np.float64), 2)
    if isinstance(space, spaces.MultiDiscrete):
        return np.minimum(space.start + space.nvec - 1, 2)
    if isinstance(space, spaces.MultiBinary):
        return np.ones(space.shape)
    if isinstance(space, spaces.Discrete):
        return min(int(space.start + space.n) - 1, 2)
    raise UntakeableError(f"what is in {space} is no mask")
