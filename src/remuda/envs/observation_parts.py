"""The parts of an observation that an adapter has flattened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces


class Part(NamedTuple):
    """One array in an observation."""

    name: str
    """Its keys in the environment's space, joined by dots; empty for a whole observation."""
    start: int  # the offset of its numbers in the flat observation
    shape: tuple[int, ...]
    is_pixels: bool  # true if it is uint8 with the upper bound 255

    @property
    def size(self) -> int:
        """Return how many numbers it has."""
        return int(np.prod(self.shape, dtype=np.int64))


class PartsBox(spaces.Box):
    """A flat `Box` [size] with a list of its parts."""

    def __init__(self, low: Any, high: Any, parts: tuple[Part, ...]) -> None:
        super().__init__(low, high, dtype=np.float32)
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartsBox) and other.parts == self.parts and super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


def parts_of(space: spaces.Space[Any]) -> tuple[Part, ...]:
    """Return the parts of an observation space, in the order in which it is flattened."""
    if isinstance(space, PartsBox):
        return space.parts
    found, start = [], 0
    for name, own in _leaves(space, ""):
        is_box = isinstance(own, spaces.Box)
        shape = own.shape if is_box and own.shape is not None else (spaces.flatdim(own),)
        part = Part(name, start, shape, is_pixels(own))
        found.append(part)
        start += part.size
    return tuple(found)


def is_pixels(space: spaces.Space[Any]) -> bool:
    """Return whether a space is a uint8 Box with upper bound 255."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and bool((space.high == 255).all())
    )


def _leaves(space: spaces.Space[Any], name: str) -> Iterator[tuple[str, spaces.Space[Any]]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, own in named:
            yield from _leaves(own, f"{name}.{key}" if name else str(key))
    else:
        yield name, space
