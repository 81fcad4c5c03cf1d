"""Rows of numbers stored in few bytes: pixels take one byte, other numbers are float32."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers

if TYPE_CHECKING:
    import torch

NUMBER = 4  # bytes of a float32


class PackedRun(NamedTuple):
    """Neighbouring numbers of a row that are stored alike."""

    length: int
    are_bytes: bool  # integers from 0 to 255


@dataclass(frozen=True)
class Packing:
    """The layout of a packed row.

    1. A section has its float32 numbers first, in their order, and then its bytes, in theirs.
    2. Sections follow each other. Zero bytes fill each up to a multiple of 4 bytes, so that float32
       numbers are aligned. So the packed row of the first sections is the beginning of a whole one.
    """

    sections: tuple[tuple[PackedRun, ...], ...]  # each has runs in the order of its numbers

    @cached_property
    def numbers(self) -> int:
        """Return how many numbers a row has."""
        return sum(run.length for section in self.sections for run in section)

    @cached_property
    def size(self) -> int:
        """Return how many bytes a packed row has."""
        return sum(map(_size, self.sections))

    @cached_property
    def table(self) -> Integers:
        """Return the runs: [runs, 3] count, 1 for bytes or 0 for float32, index in the row.

        The index counts bytes or float32 numbers from the start of the row.
        """
        rows, begin = [], 0
        for section in self.sections:
            floats = sum(run.length for run in section if not run.are_bytes)
            starts = [begin // NUMBER, begin + NUMBER * floats]
            for run in section:
                rows.append((run.length, run.are_bytes, starts[run.are_bytes]))
                starts[run.are_bytes] += run.length
            begin += _size(section)
        return np.array(rows, np.int64)

    def pack(self, rows: Array, out: Array) -> None:
        """Write rows [B, numbers] to bytes [B, size]."""
        floats, begin = out.view(np.float32), 0
        for count, are_bytes, at in self.table.tolist():
            kept = out if are_bytes else floats
            kept[:, at : at + count] = rows[:, begin : begin + count]
            begin += count

    def unpack(self, rows: Array) -> Floats:
        """Return the numbers [..., frames * numbers] of packed rows [..., frames * size]."""
        kept = np.ascontiguousarray(rows).reshape(-1, self.size)
        found: Floats = np.empty((len(kept), self.numbers), np.float32)
        floats, begin = kept.view(np.float32), 0
        for count, are_bytes, at in self.table.tolist():
            found[:, begin : begin + count] = (kept if are_bytes else floats)[:, at : at + count]
            begin += count
        return found.reshape(*rows.shape[:-1], rows.shape[-1] // self.size * self.numbers)

    def unpack_tensor(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the numbers of packed rows, as `unpack` does."""
        import torch

        kept = rows.contiguous().view(-1, self.size)
        floats = kept.view(torch.float32)
        parts = [
            (kept if are_bytes else floats)[:, at : at + count].float()
            for count, are_bytes, at in self.table.tolist()
        ]
        return torch.cat(parts, -1).view(
            *rows.shape[:-1], rows.shape[-1] // self.size * self.numbers
        )


def _size(section: Iterable[PackedRun]) -> int:
    count = sum(run.length * (1 if run.are_bytes else NUMBER) for run in section)
    return -(-count // NUMBER) * NUMBER


@cache
def _not_packed(dimensions: int) -> tuple[Floats, Integers]:
    return np.zeros((0,) * dimensions, np.float32), np.zeros((0, 3), np.int64)


def packed(packing: Packing | None, rows: Array) -> tuple[Floats, Integers]:
    """Return the arguments of `write_numbers` for an array of rows: its floats, and the runs.

    Without a packing, there are no runs.
    """
    if packing is None:
        return _not_packed(rows.ndim)
    return rows.view(np.float32), packing.table


@njit(cache=True)
def write_numbers(
    row: Array, floats: Floats, runs: Integers, out: Floats, begin: int, count: int
) -> None:
    """Write the first `count` numbers of a packed row to `out` from `begin` on."""
    end = begin + count
    for run in range(runs.shape[0]):
        size, at = min(runs[run, 0], end - begin), runs[run, 2]
        if runs[run, 1]:
            for j in range(size):
                out[begin + j] = row[at + j]
        else:
            for j in range(size):
                out[begin + j] = floats[at + j]
        begin += size


@njit(cache=True)
def write_rows(rows: Array, floats: Floats, runs: Integers, chosen: Bools, out: Floats) -> None:
    """Write the first numbers of the chosen packed rows, as many as `out` has columns."""
    for i in range(rows.shape[0]):
        if chosen[i]:
            write_numbers(rows[i], floats[i], runs, out[i], 0, out.shape[1])
