"""Gymnasium spaces as plain data for JSON, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.observation_parts import IdBox, Part, PartsBox
from remuda.types import Array

LARGEST = 2**28  # numbers in one array, so that a damaged file cannot fill the memory


class NotPlainError(ValueError):
    """A space that JSON cannot describe, because of an unknown class or long doubles."""


def to_plain(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a space as plain data.

    Raise NotPlainError for a user's class, which may have its own `contains`, for spaces without a
    fixed size, and for long doubles.
    """
    kind = type(space)
    if kind not in _KINDS:
        raise NotPlainError(f"{kind.__module__}.{kind.__qualname__}")
    values = {name: _encode(getattr(space, name)) for name in _KINDS[kind][0]}
    return {"kind": kind.__name__, **values}


def from_plain(plain: dict[str, Any]) -> spaces.Space[Any]:
    """Return the space that `to_plain` described; raise ValueError if there is none."""
    kind = next((k for k in _KINDS if k.__name__ == plain.get("kind")), None)
    if kind is None:
        raise ValueError(f"there is no space {plain.get('kind')!r}")
    names, make = _KINDS[kind]
    try:
        return make(*(_decode(plain[name]) for name in names))
    except (KeyError, TypeError, AssertionError, AttributeError, OverflowError) as error:
        raise ValueError(f"a {kind.__name__} cannot be made of this: {error!r}") from None


def ordinary(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return a space of arrays as one of Gymnasium's own class: a subclass may be the user's."""
    for kind in _OF_ARRAYS:
        if isinstance(space, kind):
            names, make = _KINDS[kind]
            return make(*(getattr(space, name) for name in names))
    return space


def _encode(value: Any) -> Any:
    if isinstance(value, spaces.Space):
        return to_plain(value)
    if isinstance(value, np.ndarray):
        return _runs(value)
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, Mapping):  # pairs keep their order, which decides how it is flattened
        return [[_key(key), _encode(each)] for key, each in value.items()]
    if isinstance(value, tuple | list):
        return [_encode(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def _decode(plain: Any) -> Any:
    if isinstance(plain, dict):
        return _array(plain) if "runs" in plain else from_plain(plain)
    return [_decode(each) for each in plain] if isinstance(plain, list) else plain


def _key(key: object) -> object:
    if type(key) not in (str, int, bool):
        raise NotPlainError(f"the key {key!r} of a Dict")
    return key


def _runs(array: Array) -> dict[str, Any]:
    """Return dtype, shape and runs of equal numbers, since most bounds are one number repeated."""
    if array.dtype.itemsize > np.dtype(np.float64).itemsize:
        raise NotPlainError(f"{array.dtype}: JSON has no number of so many digits")
    flat = array.ravel()
    starts = np.flatnonzero(np.r_[True, flat[1:] != flat[:-1]]) if flat.size else np.zeros(0, int)
    counts = np.diff(np.r_[starts, flat.size])
    values = [_number(value) for value in flat[starts].tolist()]
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "runs": [[value, int(count)] for value, count in zip(values, counts, strict=True)],
    }


def _number(value: float) -> float | str:
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _array(plain: dict[str, Any]) -> Array:
    counts = [int(count) for _, count in plain["runs"]]
    shape = tuple(int(size) for size in plain["shape"])
    if min(counts, default=0) < 0 or sum(counts) != math.prod(shape) or sum(counts) > LARGEST:
        raise ValueError(f"{sum(counts)} numbers do not make an array of shape {shape}")
    dtype = np.dtype(plain["dtype"])
    values = np.array([float(v) if isinstance(v, str) else v for v, _ in plain["runs"]], dtype)
    array: Array = np.repeat(values, counts).reshape(shape)
    return array


def _parts_box(low: Array, high: Array, parts: Any) -> PartsBox:
    found = [Part(str(name), int(at), tuple(shape), *flags) for name, at, shape, *flags in parts]
    return PartsBox(low, high, tuple(found))


def _discrete(n: int, start: int, dtype: Any) -> spaces.Discrete:
    """Return a Discrete; the first releases of Gymnasium 1 know only int64."""
    options = {} if np.dtype(dtype) == np.int64 else {"dtype": np.dtype(dtype)}
    return spaces.Discrete(int(n), start=int(start), **options)


_KINDS: dict[type, tuple[tuple[str, ...], Callable[..., spaces.Space[Any]]]] = {
    spaces.Box: (
        ("low", "high"),
        lambda low, high: spaces.Box(low, high, high.shape, low.dtype.type),
    ),
    PartsBox: (("low", "high", "parts"), _parts_box),
    IdBox: (("own", "count"), IdBox),
    spaces.Discrete: (("n", "start", "dtype"), _discrete),
    spaces.MultiDiscrete: (
        ("nvec", "start", "dtype"),
        lambda nvec, start, dtype: spaces.MultiDiscrete(nvec, np.dtype(dtype), start=start),
    ),
    spaces.MultiBinary: (("n",), spaces.MultiBinary),
    spaces.Text: (
        ("max_length", "min_length", "characters"),
        lambda most, least, charset: spaces.Text(most, min_length=least, charset=charset),
    ),
    spaces.Tuple: (("spaces",), spaces.Tuple),
    spaces.Dict: (("spaces",), spaces.Dict),
    spaces.OneOf: (("spaces",), spaces.OneOf),
}
"""The names of the attributes of each kind, and the function that makes it of their values."""
_OF_ARRAYS = IdBox, PartsBox, spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary
