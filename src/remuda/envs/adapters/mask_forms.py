"""Masks in whatever form libraries hand them over, as one row of true and false.

The forms are those of Gymnasium's `sample(mask=...)`, in which None allows all of a part, and one
row for all parts in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.checks import BadValueError, UntakeableError, numbers_in, short
from remuda.types import Array


@dataclass(frozen=True)
class Form:
    """What the masks of a space of choices are read by, worked out once."""

    space: spaces.Space[Any]
    """Of the actions, as the library has it."""
    size: int
    """How many actions there are, those of each choice added up."""
    parts: tuple[tuple[Any, Form], ...] = ()
    """Of a space of several choices: the key and the form of each."""
    nested: tuple[Form, ...] = ()
    """Of a `MultiDiscrete` of several dimensions: its slices along the first."""


def form_of(space: spaces.Space[Any]) -> Form:
    """What the masks of a space of choices are read by."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        parts = tuple((key, form_of(own)) for key, own in named)
        return Form(space, sum(own.size for _, own in parts), parts)
    if isinstance(space, spaces.MultiDiscrete):
        sizes = enumerate(space.nvec.ravel().tolist())
        parts = tuple((i, Form(spaces.Discrete(n), n)) for i, n in sizes)
        rows = space.nvec if space.nvec.ndim > 1 else ()
        nested = tuple(form_of(spaces.MultiDiscrete(row)) for row in rows)
        return Form(space, int(space.nvec.sum()), parts, nested)
    if isinstance(space, spaces.MultiBinary):
        return Form(space, 2 * int(np.prod(space.shape)))
    assert isinstance(space, spaces.Discrete), f"actions in {space} are not counted"
    return Form(space, int(space.n))


def flat_mask(mask: Any, form: Form, check: bool = True, what: str = "its mask") -> Array:
    """A mask as one row: [form.size], numbers or booleans.

    Args:
        mask: one row for all, a mask for each part, or None: all is allowed. Of a `MultiDiscrete`
            an array of as many numbers, in their order, if each of its rows holds whole choices. Of
            a `MultiBinary` it has off and on of each bit, in the last axis if it has several, or
            one entry a bit: 0 off, 1 on, 2 either.
        form: of the space of the actions.
        check: refuse entries of bits that are none of these.
        what: it is, in messages.

    Raises:
        BadValueError: it has none of these forms; or, with `check`, strange entries of bits.
    """
    space, size = form.space, form.size
    if mask is None:
        return np.ones(size, np.bool_)
    if isinstance(space, spaces.Dict):
        if _is_row(mask) and np.size(mask) == size:
            return _row(mask, size, what)
        if not isinstance(mask, Mapping) or mask.keys() != space.spaces.keys():
            names = ", ".join(map(str, space.spaces))
            raise UntakeableError(
                f"{what} is {short(mask)}, and has to have parts {names}, or to be {size} of true "
                "or false"
            )
        rows = [flat_mask(mask[key], own, check, _part(what, key)) for key, own in form.parts]
        return np.concatenate(rows)
    if isinstance(mask, Mapping):
        first = int(space.start) if isinstance(space, spaces.Discrete) else 0
        mask = _by_number(mask, first, what)
    if isinstance(space, spaces.Discrete):
        return _row(mask, size, what)
    if isinstance(space, spaces.MultiBinary):
        return _of_bits(mask, space.shape, check, what)
    if _is_row(mask) and np.size(mask) == size:
        return _row(mask, size, what)
    return _of_parts(mask, form, check, what)


def _part(what: str, key: Any) -> str:
    return f"{what}, part {key}"


def _by_number(mask: Mapping[Any, Any], first: int, what: str) -> tuple[Any, ...]:
    """The values of a mapping whose keys are numbers, in the order of these.

    Args:
        mask: that has them.
        first: the number of the first action; they may also be counted from 0.
        what: it is, in messages.

    Raises:
        UntakeableError: its keys are anything else, so that nothing tells which value is whose.
    """
    for begin in (0, first):
        numbers = range(begin, begin + len(mask))
        if all(number in mask for number in numbers):
            return tuple(mask[number] for number in numbers)
    raise UntakeableError(
        f"{what} is {short(mask)}, and there are no names to tell by which of them is whose; its "
        f"keys have to be the numbers {first} to {first + len(mask) - 1}, or let it be a row"
    )


def _of_parts(mask: Any, form: Form, check: bool, what: str) -> Array:
    """The row of a mask of several choices without names.

    Raises:
        UntakeableError: it has not as many parts, nor as many entries.
    """
    own = [part for _, part in form.parts]
    joinable = isinstance(form.space, spaces.MultiDiscrete)
    found: list[Any] = []
    if isinstance(mask, tuple | list):
        found = [] if _is_row(mask) else list(mask)
    elif hasattr(mask, "__array__"):
        array = numbers_in(mask)
        if joinable and array is not None and array.size == form.size:
            _refuse_mixed(array, form, what)
            return np.ravel(array)
        if array is not None:
            found = list(array) if array.ndim > 1 else []
        elif isinstance(mask, np.ndarray) and mask.ndim:  # parts of unlike lengths
            found = list(mask)
    if form.nested and len(found) == len(form.nested) != len(own):
        own = list(form.nested)
    whole = numbers_in(mask) if joinable and found else None
    if whole is not None and whole.size == form.size:  # parts of the same shape
        _refuse_mixed(whole, form, what)
        if len(found) != len(own):
            return np.ravel(whole)
    if len(found) != len(own):
        joined = [numbers_in(part) for part in found] if joinable else []
        arrays = [np.ravel(array) for array in joined if array is not None]
        sizes, lengths = [part.size for _, part in form.parts], [array.size for array in arrays]
        if len(arrays) == len(found) and sum(lengths) == form.size and _whole(sizes, lengths):
            if lengths == _columns(sizes):
                raise UntakeableError(
                    f"{what} is {short(mask)}, which may be {len(lengths)} columns or whole "
                    f"choices in rows; let it have a row for each of the {len(sizes)} choices"
                )
            return np.concatenate(arrays)
        raise UntakeableError(
            f"{what} is {short(mask)}, not of {len(own)} parts or {form.size} of true or false"
        )
    return np.concatenate(
        [
            flat_mask(part, each, check, _part(what, i))
            for i, (part, each) in enumerate(zip(found, own, strict=True))
        ]
    )


def _refuse_mixed(array: Array, form: Form, what: str) -> None:
    """Refuse an array that mixes the choices of a `MultiDiscrete` where it is read in its order.

    Raises:
        UntakeableError: it is one.
    """
    choices, sizes = form.space.shape or (), tuple(own.size for _, own in form.parts)
    if not _in_order(array.shape, choices, sizes):
        raise UntakeableError(
            f"{what} has the shape {array.shape}, whose rows are not those of the {len(sizes)} "
            "choices, so that read row by row it would mix them; let it have a row for each choice"
        )


@lru_cache(maxsize=1024)
def _in_order(shape: tuple[int, ...], choices: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether an array with as many entries as there are actions is read row by row.

    Args:
        shape: of the array.
        choices: the shape of the actions.
        sizes: how many actions each choice has.
    """
    shape, choices = (tuple(size for size in axes if size != 1) for axes in (shape, choices))
    count, outer, length = len(sizes), shape[:-1], shape[-1] if shape else 1
    if count == 1 or not outer:
        return True
    if shape[: len(choices)] == choices and set(sizes) == {prod(shape[len(choices) :])}:
        return True  # what each may do in its place, in one dimension or several
    rows, each = prod(outer), count // prod(outer)
    if len(choices) > 1:
        same = [sum(sizes[i : i + each]) for i in range(0, count, each or 1)] == [length] * rows
    else:
        same = _whole(sizes, (length,) * rows)
    if same and outer == choices[: len(outer)]:
        return True  # those of a place in a row
    columns = length == count != rows and len(set(sizes)) == 1
    return same and not columns and (len(choices) < 2 or _joined(outer, choices))


def _joined(axes: tuple[int, ...], choices: tuple[int, ...]) -> bool:
    """Whether axes are the first ones of the actions, some that are side by side joined."""
    rest = list(choices)
    for size in axes:
        found = 1
        while found < size and rest:
            found *= rest.pop(0)
        if found != size:
            return False
    return True


def _whole(sizes: Sequence[int], lengths: Sequence[int]) -> bool:
    """Whether each of some rows ends where a choice does, given how many actions each has."""
    return set(accumulate(lengths)) <= set(accumulate(sizes))


def _columns(sizes: Sequence[int]) -> list[int]:
    """The lengths of parts of which part k holds what says of each choice if it may be k."""
    return [sum(size > k for size in sizes) for k in range(max(sizes))]


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without the first axes that hold one entry only."""
    axes = list(shape)
    while len(axes) > 1 and axes[0] == 1:
        del axes[0]
    return tuple(axes)


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
    array = numbers_in(mask)
    if array is None or array.size != size:
        raise UntakeableError(f"{what} is {short(mask)}, not {size} of true or false")
    return np.ravel(array)


def _of_bits(mask: Any, shape: tuple[int, ...], check: bool, what: str) -> Array:
    """Off and on of each bit of an action of that shape: [2 bits]."""
    count = int(np.prod(shape))
    array = numbers_in(mask)
    if array is None or array.size not in (count, 2 * count):
        raise UntakeableError(
            f"{what} is {short(mask)}, not {2 * count} of true or false, or {count} of 0, 1 and 2"
        )
    known = {_without_ones(each) for each in ((count, 2), (*shape, 2), shape)}
    if _without_ones(array.shape) not in known and np.squeeze(array).ndim > 1:
        raise UntakeableError(
            f"{what} has the shape {array.shape}; of several dimensions it has to be "
            f"{(*shape, 2)}, off and on of each bit, or {shape}"
        )
    bits = np.ravel(array)
    if bits.size == 2 * count:
        return bits
    if check and bits.dtype.kind == "b":
        raise BadValueError(
            f"{what} is {short(mask)}, true or false for each bit, of which none could be either; "
            "with one entry for each bit let it be whole numbers: 0 where the bit has to be off, 1 "
            "where it has to be on and 2 where it may be either; or let it hold true or false for "
            "off and for on of each bit"
        )
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
    widest = _widest(masked_in)
    if isinstance(masked_in, spaces.Dict) and not isinstance(does, spaces.Dict):
        widest = tuple(widest.values())  # in the order of its names, as `Sight.mask` has them
    widest = flat_mask(widest, form_of(does), check=False)
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
