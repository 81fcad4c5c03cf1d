"""Convert the masks of libraries to one row of booleans.

A mask is either a row with one entry per action, the choices of a space in order, or what
Gymnasium's `sample(mask=...)` takes: a mask per choice, where None allows all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.checks import BadValueError, UntakeableError, numbers_in, short
from remuda.types import Array, Bools


@dataclass(frozen=True)
class MaskForm:
    """The layout of the masks of an action space."""

    size: int
    """Actions, summed over all choices."""
    parts: Mapping[Any, MaskForm] | None = None
    """The form of each choice; None: there is only one."""
    is_named: bool = False
    """True if the parts have names (`Dict`), not places."""
    bits: tuple[int, ...] | None = None
    """The shape of a `MultiBinary` action; each bit has two actions, off and on."""


def mask_form(space: spaces.Space[Any]) -> MaskForm:
    """Return the layout of the masks of an action space."""
    if isinstance(space, spaces.MultiBinary):
        return MaskForm(2 * int(np.prod(space.shape)), bits=space.shape)
    if isinstance(space, spaces.Discrete):
        return MaskForm(int(space.n))
    parts: dict[Any, spaces.Space[Any]]
    if isinstance(space, spaces.Dict):
        parts = dict(space.spaces)
    elif isinstance(space, spaces.Tuple):
        parts = dict(enumerate(space.spaces))
    else:
        assert isinstance(space, spaces.MultiDiscrete), f"actions in {space} are not counted"
        rows = space.nvec.ndim > 1
        parts = {
            i: spaces.MultiDiscrete(sizes) if rows else spaces.Discrete(int(sizes))
            for i, sizes in enumerate(space.nvec)
        }
    forms = {key: mask_form(part) for key, part in parts.items()}
    size = sum(form.size for form in forms.values())
    return MaskForm(size, forms, isinstance(space, spaces.Dict))


def write_mask(
    mask: Any, out: Bools, check: bool = True, space: spaces.Space[Any] | MaskForm | None = None
) -> None:
    """Write a library's mask into `out`, [actions], or raise a `BadValueError`; None allows all.

    Without `check`, entries other than 0 and 1 are accepted.
    """
    if mask is None:
        out[...] = True
        return
    if type(mask) is np.ndarray and mask.shape == out.shape and mask.dtype.kind in "biuf":
        flat = mask  # the usual case
    else:
        space = spaces.Discrete(out.size) if space is None else space
        flat = flat_mask(mask, space if isinstance(space, MaskForm) else mask_form(space), check)
    out[...] = flat.astype(np.bool_)
    # An int8 mask of zeros and ones has the same bytes as the row.
    if check and flat.dtype.kind != "b" and flat.tobytes() != out.tobytes():
        strange = flat != out
        if strange.any():
            at = int(strange.argmax())
            raise BadValueError(
                f"its mask holds {flat[at]} (number {at} of {flat.size}); it may hold 1 where an "
                "action is allowed and 0 where it is not, and nothing else"
            )


def flat_mask(mask: Any, form: MaskForm, check: bool = True, name: str = "its mask") -> Array:
    """Return a mask as one row of numbers or booleans: [form.size]."""
    if mask is None:
        return np.ones(form.size, np.bool_)
    array = None if isinstance(mask, Mapping) else numbers_in(mask)
    if array is not None and array.size == form.size and np.squeeze(array).ndim < 2:
        return np.ravel(array)
    if form.bits is not None:
        return _mask_of_bits(mask, array, form.bits, check, name)
    if form.parts is None:
        raise UntakeableError(f"{name} is {short(mask)}, not {form.size} of true or false")
    rows = [
        flat_mask(part, own, check, f"{name}, part {key}")
        for (key, own), part in zip(
            form.parts.items(), _parts(mask, array, form, form.parts, name), strict=True
        )
    ]
    return np.concatenate(rows)


def _parts(
    mask: Any, array: Array | None, form: MaskForm, parts: Mapping[Any, MaskForm], name: str
) -> list[Any]:
    if form.is_named:
        if isinstance(mask, Mapping) and mask.keys() == parts.keys():
            return [mask[key] for key in parts]
        raise UntakeableError(
            f"{name} is {short(mask)}, and has to have parts {', '.join(map(str, parts))}, or to "
            f"be {form.size} of true or false"
        )
    values = mask if array is None else array
    is_sequence = isinstance(values, tuple | list) or getattr(values, "ndim", 0) > 0
    found = list(values) if is_sequence else []
    if len(found) != len(parts):
        raise UntakeableError(
            f"{name} is {short(mask)}, not of {len(parts)} parts or {form.size} of true or false"
        )
    return found


def _mask_of_bits(
    mask: Any, array: Array | None, shape: tuple[int, ...], check: bool, name: str
) -> Array:
    """Return off and on of each bit of a `MultiBinary` action: [2 * bits]."""
    count = int(np.prod(shape))
    if array is None or array.size not in (count, 2 * count):
        raise UntakeableError(
            f"{name} is {short(mask)}, not {2 * count} of true or false, or {count} of 0, 1 and 2"
        )
    wanted = shape if array.size == count else (*shape, 2)
    found = np.squeeze(array).shape
    if len(found) > 1 and found != tuple(size for size in wanted if size != 1):
        raise UntakeableError(
            f"{name} has the shape {array.shape}; of several dimensions it has to be "
            f"{(*shape, 2)}, off and on of each bit, or {shape}"
        )
    bits = np.ravel(array)
    if bits.size == 2 * count:
        return bits
    if check and bits.dtype.kind == "b":
        raise BadValueError(
            f"{name} is {short(mask)}, true or false for each bit, of which none could be either; "
            "with one entry for each bit let it be whole numbers: 0 where the bit has to be off, 1 "
            "where it has to be on and 2 where it may be either; or let it hold true or false for "
            "off and for on of each bit"
        )
    strange = ~np.isin(bits, (0, 1, 2))
    if check and strange.any():
        at = int(strange.argmax())
        raise BadValueError(
            f"{name} holds {bits[at]} (number {at} of {count}); with one entry for each bit it may "
            "hold 0 where the bit has to be off, 1 where it has to be on and 2 where it may be "
            "either, and nothing else"
        )
    return np.stack([bits != 1, bits != 0], axis=1).ravel()


def check_mask_space(mask_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
    """Refuse a space of masks that cannot hold a mask of the actions."""
    widest = flat_mask(_widest(mask_space), mask_form(action_space), check=False)
    if not widest.astype(np.bool_).all():
        raise BadValueError(
            "by its space it never allows all of them (of a MultiBinary, one entry for each bit is "
            "0 where it has to be off, 1 where it has to be on and 2 where it may be either, as in "
            "Gymnasium; or let it have two, 0 or 1 for off and for on)"
        )


def _widest(space: spaces.Space[Any]) -> Any:
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
