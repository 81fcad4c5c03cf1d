"""Batches of values in Gymnasium's spaces, as one array for each part of a `Dict` or `Tuple`.

A part is named by its keys, joined by dots: `camera`, or `inside.0` for the first entry of a Tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.observation_parts import spaces_in
from remuda.errors import UsageError
from remuda.types import Array

Space = spaces.Space[Any]


def named_parts(space: Space, batch: Any, name: str = "") -> dict[str, Array]:
    """Return the arrays of a batch by the names of their parts; the name of a whole is empty."""
    inner = spaces_in(space)
    if inner is None:
        return {name: batch}
    found: dict[str, Array] = {}
    for key, own in inner.items():
        found |= named_parts(own, batch[key], _joined(name, key))
    return found


def from_parts(space: Space, parts: Mapping[str, Array], name: str = "") -> Any:
    """Return the batch with these `named_parts`; raise KeyError if one is missing."""
    inner = spaces_in(space)
    if inner is None:
        return parts[name]
    found = {key: from_parts(own, parts, _joined(name, key)) for key, own in inner.items()}
    return found if isinstance(space, spaces.Dict) else tuple(found.values())


def map_parts(function: Callable[[Array], Array], batch: Any) -> Any:
    """Apply a function to each array of a batch."""
    if isinstance(batch, dict):
        return {key: map_parts(function, part) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(map_parts(function, part) for part in batch)
    return function(batch)


def unflatten(space: Space, rows: Array) -> Any:
    """Return rows [N, size] as a batch in `space`: the inverse of `gymnasium.spaces.flatten`.

    Raises:
        UsageError: a part is not an array, such as `Text`.
    """
    inner = spaces_in(space)
    if inner is not None:
        ends = np.cumsum([spaces.flatdim(own) for own in inner.values()])[:-1]
        columns = np.split(rows, ends, axis=1)
        found = {
            key: unflatten(own, column)
            for (key, own), column in zip(inner.items(), columns, strict=True)
        }
        return found if isinstance(space, spaces.Dict) else tuple(found.values())
    if isinstance(space, spaces.Discrete):
        return rows.argmax(1) + int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        one_hot = np.split(rows, np.cumsum(space.nvec.ravel())[:-1], axis=1)
        chosen = np.stack([choice.argmax(1) for choice in one_hot], 1)
        return (chosen.reshape(len(rows), *space.shape) + space.start).astype(space.dtype)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        size = int(np.prod(space.shape, dtype=np.int64))
        return rows[:, :size].reshape(len(rows), *space.shape).astype(space.dtype)
    raise UsageError(f"{type(space).__name__} values are not arrays, so they cannot be recorded")


def _joined(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)
