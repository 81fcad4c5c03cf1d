"""Gymnasium spaces as plain data for JSON, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.observation_parts import Part, PartsBox
from remuda.types import Array

LARGEST = 2**28  # numbers in one array, so that a damaged file cannot fill the memory


class NotPlainError(ValueError):
    """A space that JSON cannot describe, because of an unknown class or long doubles."""


def to_plain(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a space as plain data.

    Raise NotPlainError for a class that Gymnasium does not have, since it may have its own
    `contains`, and for long doubles.
    """
    kind = type(space)
    if kind not in _TO_PLAIN:
        raise NotPlainError(f"{kind.__module__}.{kind.__qualname__}")
    return {"kind": kind.__name__, **_TO_PLAIN[kind](space)}


def from_plain(plain: dict[str, Any]) -> spaces.Space[Any]:
    """Return the space that `to_plain` described; raise ValueError if there is none."""
    kind = next((k for k in _FROM_PLAIN if k.__name__ == plain.get("kind")), None)
    if kind is None:
        raise ValueError(f"there is no space {plain.get('kind')!r}")
    try:
        return _FROM_PLAIN[kind](plain)
    except (KeyError, TypeError, AssertionError, AttributeError, OverflowError) as error:
        raise ValueError(f"a {kind.__name__} cannot be made of this: {error!r}") from None


def ordinary(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return a space of arrays as one of Gymnasium's own class: a subclass may be the user's."""
    if isinstance(space, PartsBox):
        return PartsBox(space.low, space.high, space.parts)
    if isinstance(space, spaces.Box):
        return spaces.Box(space.low, space.high, space.shape, space.low.dtype.type)
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec, start=space.start, dtype=space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary(space.n)
    return space


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
    found: Array = np.repeat(values, counts).reshape(shape)
    return found


def _box(space: spaces.Box) -> dict[str, Any]:
    return {"low": _runs(space.low), "high": _runs(space.high)}


def _to_box(plain: dict[str, Any]) -> spaces.Box:
    low, high = _array(plain["low"]), _array(plain["high"])
    return spaces.Box(low, high, dtype=low.dtype.type)


def _to_parts_box(plain: dict[str, Any]) -> PartsBox:
    parts = tuple(
        Part(str(name), int(start), tuple(map(int, shape)), bool(pixels))
        for name, start, shape, pixels in plain["parts"]
    )
    return PartsBox(_array(plain["low"]), _array(plain["high"]), parts)


def _to_dict(plain: dict[str, Any]) -> spaces.Dict:
    # Pairs keep their order, which decides how a value is flattened; Dict sorts a mapping.
    return spaces.Dict([(key, from_plain(own)) for key, own in plain["spaces"]])


_TO_PLAIN: dict[type, Callable[[Any], dict[str, Any]]] = {
    spaces.Box: _box,
    PartsBox: lambda space: {
        **_box(space),
        "parts": [[p.name, p.start, list(p.shape), p.is_pixels] for p in space.parts],
    },
    spaces.Discrete: lambda space: {
        "n": int(space.n),
        "start": int(space.start),
        "dtype": space.dtype.name,
    },
    spaces.MultiDiscrete: lambda space: {
        "nvec": _runs(np.asarray(space.nvec)),
        "start": _runs(np.asarray(space.start)),
        "dtype": space.dtype.name,
    },
    spaces.MultiBinary: lambda space: {"n": np.asarray(space.n).tolist()},
    spaces.Text: lambda space: {
        "min_length": space.min_length,
        "max_length": space.max_length,
        "characters": "".join(space.character_list),
    },
    spaces.Tuple: lambda space: {"spaces": [to_plain(own) for own in space.spaces]},
    spaces.Dict: lambda space: {
        "spaces": [[_key(key), to_plain(own)] for key, own in space.spaces.items()]
    },
    spaces.Sequence: lambda space: {
        "space": to_plain(space.feature_space),
        "stack": bool(space.stack),
    },
    spaces.OneOf: lambda space: {"spaces": [to_plain(own) for own in space.spaces]},
    spaces.Graph: lambda space: {
        "node": to_plain(space.node_space),
        "edge": None if space.edge_space is None else to_plain(space.edge_space),
    },
}

_FROM_PLAIN: dict[type, Callable[[dict[str, Any]], spaces.Space[Any]]] = {
    spaces.Box: _to_box,
    PartsBox: _to_parts_box,
    spaces.Discrete: lambda plain: spaces.Discrete(
        int(plain["n"]), start=int(plain["start"]), **_dtype(plain)
    ),
    spaces.MultiDiscrete: lambda plain: spaces.MultiDiscrete(
        _array(plain["nvec"]), start=_array(plain["start"]), dtype=np.dtype(plain["dtype"])
    ),
    spaces.MultiBinary: lambda plain: spaces.MultiBinary(plain["n"]),
    spaces.Text: lambda plain: spaces.Text(
        plain["max_length"], min_length=plain["min_length"], charset=plain["characters"]
    ),
    spaces.Tuple: lambda plain: spaces.Tuple([from_plain(own) for own in plain["spaces"]]),
    spaces.Dict: _to_dict,
    spaces.Sequence: lambda plain: spaces.Sequence(
        from_plain(plain["space"]), stack=bool(plain["stack"])
    ),
    spaces.OneOf: lambda plain: spaces.OneOf([from_plain(own) for own in plain["spaces"]]),
    spaces.Graph: lambda plain: spaces.Graph(
        from_plain(plain["node"]),
        None if plain["edge"] is None else from_plain(plain["edge"]),
    ),
}


def _dtype(plain: dict[str, Any]) -> dict[str, Any]:
    """Return Discrete's dtype; older releases of Gymnasium know only int64."""
    return {} if plain["dtype"] == "int64" else {"dtype": np.dtype(plain["dtype"])}
