"""The format of a link: frames of sections, each a few numbers and some bytes. No code.

    frame:    length of the rest, checks of the length and of the rest, then sections
    section:  kind, key, count of numbers, count of bytes; then the numbers; then the bytes

All numbers are little-endian 64-bit words, and everything is aligned to one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from remuda.errors import RemudaError
from remuda.types import Array, Integers

WORD = 8
HEADER = 4  # numbers before a section
# before a frame: bytes of the rest, checks of this number and of the rest (CRC-32)
HEAD = struct.Struct("<QII")
LARGEST = 1 << 34  # maximal bytes of a frame


class Kind(IntEnum):
    """The content of a section."""

    HOLDS_RING = 1  # report of a ring: its sequences, then its committed steps
    HOLDS_WEIGHTS = 2  # report of the versions of weights
    RING = 3  # new data of a ring
    WEIGHTS = 4  # a snapshot
    FAST = 5  # changed words that are checked in every round...
    SLOW = 6  # ...and those that are checked a few times a second
    WAKE = 7  # roles that were rung on a node where they do not live
    TABLE = 9  # changed words of a population's table
    FROZEN = 10  # the weights of a frozen copy
    NEWBORN = 11  # the initial state of a newborn
    SHARD = 12  # results of a follower
    IN_STEP = 8  # all earlier data has been sent


@dataclass(frozen=True)
class Section:
    """A part of a frame."""

    kind: int
    key: int
    numbers: Integers
    data: Array  # [bytes] uint8


@dataclass
class Frame:
    """A frame to be sent: buffers one after another."""

    buffers: list[memoryview] = field(default_factory=list)
    size: int = 0

    def add(self, kind: Kind, key: int, numbers: Integers, data: Sequence[Array] = ()) -> None:
        views = [_bytes(array) for array in data if array.size]
        size = sum(view.nbytes for view in views)
        head = np.array([kind, key, numbers.size, size], np.int64)
        fixed = head.tobytes() + np.ascontiguousarray(numbers, np.int64).tobytes()
        rest = -size % WORD
        self.buffers += [memoryview(fixed), *views]
        if rest:
            self.buffers.append(memoryview(bytes(rest)))
        self.size += len(fixed) + size + rest

    def finished(self) -> list[memoryview]:
        """Return the buffers, preceded by the length and the checks."""
        check = 0
        for buffer in self.buffers:
            check = zlib.crc32(buffer, check)
        return [memoryview(HEAD.pack(self.size, checked(self.size), check)), *self.buffers]


def checked(length: int) -> int:
    """Return the check of a frame's length; without it a damaged length would be waited for."""
    return zlib.crc32(length.to_bytes(WORD, "little"))


def sections(frame: Array) -> Iterator[Section]:
    """Yield the sections of a frame, [bytes] uint8 without its length, aligned to a word."""
    at = 0
    words = frame.view(np.int64)
    while at < len(words):
        if at + HEADER > len(words):
            raise RemudaError("what came is damaged")
        kind, key, numbers, size = words[at : at + HEADER].tolist()
        at += HEADER
        end = at + numbers + -(-size // WORD)
        if numbers < 0 or size < 0 or end > len(words):
            raise RemudaError("what came is damaged")
        begin = (at + numbers) * WORD
        yield Section(kind, key, words[at : at + numbers], frame[begin : begin + size])
        at = end


def _bytes(array: Array) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
