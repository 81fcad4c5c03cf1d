"""The parts of an observation that an adapter has flattened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from remuda.system.memory.packing import PackedRun, Packing
from remuda.types import Array

LEAST_BYTES = 256  # in a packed row; fewer bytes save too little memory


class Part(NamedTuple):
    """One array in an observation."""

    name: str
    """Its keys in the environment's space, joined by dots; empty for a whole observation."""
    start: int  # the offset of its numbers in the flat observation
    shape: tuple[int, ...]
    is_pixels: bool  # true if it is uint8 with the upper bound 255
    are_bytes: bool = False  # true if its numbers are integers from 0 to 255

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def is_image(self) -> bool:
        """True if it is worth one byte a number: bytes of a screen or of a board."""
        return self.are_bytes and (self.is_pixels or len(self.shape) > 1)


class PartsBox(spaces.Box):
    """A flat `Box` [size] with a list of its parts."""

    def __init__(self, low: Array, high: Array, parts: tuple[Part, ...]) -> None:
        super().__init__(low, high, dtype=low.dtype.type)
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartsBox) and other.parts == self.parts and super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


class IdBox(PartsBox):
    """A flat `Box`: an agent's own observation, then a one-hot id of `count` numbers."""

    def __init__(self, own: spaces.Box, count: int) -> None:
        parts = [part._replace(name=part.name or "observation") for part in parts_of(own)]
        size = sum(part.size for part in parts)
        low = np.concatenate([own.low.ravel(), np.zeros(count, own.low.dtype)])
        high = np.concatenate([own.high.ravel(), np.ones(count, own.high.dtype)])
        parts.append(Part("agent_id", size, (count,), is_pixels=False, are_bytes=True))
        super().__init__(low, high, tuple(parts))
        self.own, self.count = own, count


def parts_of(space: spaces.Space[Any]) -> tuple[Part, ...]:
    """Return the parts of an observation space, in the order in which it is flattened."""
    if isinstance(space, PartsBox):
        return space.parts
    parts: list[Part] = []
    for name, own in _leaves(space, ""):
        shape = own.shape if isinstance(own, spaces.Box) else (spaces.flatdim(own),)
        start = parts[-1].start + parts[-1].size if parts else 0
        parts.append(Part(name, start, shape, is_pixels(own), _is_byte_space(own)))
    return tuple(parts)


def packing_of(
    own: Sequence[Part], dtype: npt.DTypeLike, added: Sequence[Part] = ()
) -> Packing | None:
    """Return how rows are packed that hold an observation and a critic's inputs; None: not at all.

    An observation of floats is packed if it has at least `LEAST_BYTES` numbers of images, and one
    of bytes if it is beside floats. So the packed observation is the beginning of the packed row,
    for policies without a centralised critic.

    dtype: of the observation. added: the critic's inputs; empty: none, or they are not stored.
    """
    kind = np.dtype(dtype)
    if kind.kind == "f":
        images = sum(part.size for part in own if part.is_image)
        packs = kind == np.float32 and images >= LEAST_BYTES
    else:
        beside = sum(part.size for part in added if part.is_image)
        images = sum(part.size for part in own) + beside
        all_bytes = all(part.are_bytes for part in added)
        packs = kind == np.uint8 and not all_bytes and images >= LEAST_BYTES
    sections = (own, added) if added else (own,)
    return Packing(tuple(map(_runs, sections))) if packs else None


def _runs(parts: Iterable[Part]) -> tuple[PackedRun, ...]:
    """Return the runs of neighbouring parts that are stored alike."""
    runs: list[PackedRun] = []
    for part in parts:
        length = part.size
        if runs and runs[-1].are_bytes == part.are_bytes:
            length += runs.pop().length
        runs.append(PackedRun(length, part.are_bytes))
    return tuple(runs)


def size_of(space: spaces.Space[Any] | None) -> int:
    """Return how many numbers an array of a space has; 0 without a space."""
    return 0 if space is None else math.prod(space.shape or ())


def is_pixels(space: spaces.Space[Any]) -> bool:
    """Return whether a space is a uint8 Box with upper bound 255."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and bool((space.high == 255).all())
    )


def are_bytes(space: spaces.Space[Any]) -> bool:
    """Return whether all numbers of a flattened observation are integers from 0 to 255.

    All its parts are then uint8 or bool, or discrete, so that they are flattened to 0 and 1.
    """
    return all(part.are_bytes for part in parts_of(space))


def flat_bytes(space: spaces.Space[Any], observation: Any) -> Array:
    """Return an observation of a space of bytes, flattened as by Gymnasium but in uint8."""
    flat: Any = [spaces.flatten(own, value) for own, value in _values(space, observation)]
    found: Array = np.concatenate(flat, dtype=np.uint8, casting="unsafe")
    return found


def spaces_in(space: spaces.Space[Any]) -> dict[Any, spaces.Space[Any]] | None:
    """Return the spaces in a `Dict` or `Tuple` by their keys; None for any other space."""
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    return dict(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else None


def _is_byte_space(space: spaces.Space[Any]) -> bool:
    """Return whether the flattened numbers of an innermost space are integers from 0 to 255."""
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary) or (
        isinstance(space, spaces.Box) and space.dtype in (np.uint8, np.bool_)
    )


def _leaves(space: spaces.Space[Any], name: str) -> Iterator[tuple[str, spaces.Space[Any]]]:
    inner = spaces_in(space)
    if inner is None:
        yield name, space
        return
    for key, own in inner.items():
        yield from _leaves(own, f"{name}.{key}" if name else str(key))


def _values(space: spaces.Space[Any], value: Any) -> Iterator[tuple[spaces.Space[Any], Any]]:
    """Yield the innermost spaces of a space with their values."""
    inner = spaces_in(space)
    if inner is None:
        yield space, value
        return
    for key, own in inner.items():
        yield from _values(own, value[key])
