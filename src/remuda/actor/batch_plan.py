"""Plans of the forward passes for the streams of policies with equal network layouts.

A *stream* is one agent of one environment copy. A *row* is one network of a stack of networks.
Small perceptrons on the CPU process all streams in one call. Other networks run in passes, in which
each row is padded to the same number of streams. If padding costs more than another pass, the rows
are split into several passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda.experience.ring_block import StreamPlan
from remuda.system.kernels import njit
from remuda.types import Integers

PASS = 100  # overhead of a pass, in multiples of the cost of a stream
ROW = 4  # overhead of a row in a pass, in the same unit
STEP = 4  # padded streams per row are multiples of this, so that few shapes occur
LONGEST = 128  # most rows in a pass


@dataclass(frozen=True)
class BatchPlan:
    """The streams of each row of a stack, and the passes that process them."""

    rows: StreamPlan  # the streams of each row
    # (first row, one past the last row, padded streams per row); empty if no passes are needed
    passes: tuple[tuple[int, int, int], ...]


def make_plan(
    rows: Integers, streams: Integers, num_rows: int, in_passes: bool = True
) -> BatchPlan:
    """Sort streams [M] by the row [M] that plays them (-1: no row); split the rows into passes."""
    begins: Integers = np.zeros(num_rows + 1, np.int64)
    ordered: Integers = np.empty(len(streams), np.int64)
    ordered = ordered[: _order(rows, streams, begins, ordered)]
    if not in_passes:
        return BatchPlan(StreamPlan(begins, ordered), ())
    passes: Integers = np.empty((num_rows, 3), np.int64)
    found = _cut(begins, passes)
    cut = tuple(tuple(p) for p in passes[:found].tolist())
    return BatchPlan(StreamPlan(begins, ordered), cut)


@njit(cache=True)
def _order(rows: Integers, streams: Integers, begins: Integers, ordered: Integers) -> int:
    num_rows = begins.size - 1
    counts = np.zeros(num_rows, np.int64)
    for row in rows:
        if row >= 0:
            counts[row] += 1
    for k in range(num_rows):
        begins[k + 1] = begins[k] + counts[k]
    at = begins[:-1].copy()
    for i in range(rows.size):
        if rows[i] >= 0:
            ordered[at[rows[i]]] = streams[i]
            at[rows[i]] += 1
    return int(begins[-1])


@njit(cache=True)
def _cut(begins: Integers, passes: Integers) -> int:
    """Split the rows into passes at minimal cost; return the number of passes."""
    num_rows, counts = begins.size - 1, np.diff(begins)
    # `cost[k]`: minimal cost of the first k rows; `begin[k]`: the first row of the pass that ends
    # with row k - 1, or -1 if row k - 1 has no streams and needs no pass.
    cost = np.zeros(num_rows + 1, np.int64)
    begin = np.zeros(num_rows + 1, np.int64)
    for end in range(1, num_rows + 1):
        if counts[end - 1] == 0:
            cost[end], begin[end] = cost[end - 1], -1
            continue
        width = 0
        cost[end] = 1 << 60
        for first in range(end - 1, max(end - 1 - LONGEST, -1), -1):
            width = max(width, counts[first])
            padded = -(-width // STEP) * STEP
            found = cost[first] + PASS + (end - first) * (padded + ROW)
            if found < cost[end] and counts[first] > 0:
                cost[end], begin[end] = found, first
    count = 0
    end = num_rows
    while end > 0:
        if begin[end] < 0:
            end -= 1
            continue
        first = begin[end]
        width = 0
        for k in range(first, end):
            width = max(width, counts[k])
        passes[count] = first, end, -(-width // STEP) * STEP
        count += 1
        end = first
    passes[:count] = passes[:count][::-1].copy()
    return count
