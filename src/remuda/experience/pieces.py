"""The pieces of a segment, each of one episode: the observations around each step.

Episodes never mix: frames before a piece are zeros, and the observation after its last step is the
final one of the episode. The compiled functions here take a ring's arrays; `slot` is the
segment, `t` a step in it.
"""

from __future__ import annotations

from typing import NamedTuple

from remuda.experience.ring import ExperienceRing, StreamShape
from remuda.system.kernels import njit
from remuda.system.memory.packing import packed, write_numbers
from remuda.types import Array, Floats, Integers


@njit(cache=True, _nrt=False)
def first_frame(discounts: Floats, slot: int, t: int, n_frames: int) -> int:
    """Return the first frame of a step's stacked observation that is of its episode."""
    for back in range(1, min(n_frames, t + 1)):
        if discounts[slot, t - back] != 1.0:
            return n_frames - back
    return 0  # the rows before a segment's first step are of its episode, or zeros


@njit(cache=True, _nrt=False)
def piece_end(discounts: Floats, slot: int, start: int, committed: int) -> int:
    """Return the step after the last one of the piece that starts at `start`."""
    for t in range(start, committed):
        if discounts[slot, t] != 1.0:
            return t + 1
    return committed


class Observed(NamedTuple):
    """The arrays of a ring that observations are copied from, and how they are stacked."""

    observations: Array
    final_observations: Array
    floats: Floats  # of packed observations
    final_floats: Floats
    runs: Integers  # of packed observations
    discounts: Floats
    n_frames: int


def observed(ring: ExperienceRing, shape: StreamShape, unpacked: bool = True) -> Observed:
    """Return these arrays of a ring; without `unpacked`, rows stay packed when they are copied."""
    rows, final = ring.shared["observations"], ring.shared["final_observations"]
    packing = shape.packing if unpacked else None
    floats, runs = packed(packing, rows)
    final_floats, _ = packed(packing, final)
    return Observed(
        rows, final, floats, final_floats, runs, ring.shared["discounts"], shape.n_frames
    )


@njit(cache=True)
def _write_frames(
    ring: Observed, slot: int, t: int, first: int, is_final: bool, out: Array, b: int, size: int
) -> None:
    """Write the stacked observation of step t, whose first frame in its episode is `first`.

    If `is_final`, the episode ended before this step, and its newest frame is the final one.
    """
    for frame in range(ring.n_frames):
        begin, row = frame * size, t + frame
        if frame < first:
            for j in range(size):
                out[b, begin + j] = 0
        elif is_final and frame == ring.n_frames - 1:
            if ring.runs.size:
                found, floats = ring.final_observations[slot, t - 1], ring.final_floats[slot, t - 1]
                write_numbers(found, floats, ring.runs, out[b], begin, size)
            else:
                for j in range(size):
                    out[b, begin + j] = ring.final_observations[slot, t - 1, j]
        elif ring.runs.size:
            found, floats = ring.observations[slot, row], ring.floats[slot, row]
            write_numbers(found, floats, ring.runs, out[b], begin, size)
        else:
            for j in range(size):
                out[b, begin + j] = ring.observations[slot, row, j]


@njit(cache=True)
def write_observation(ring: Observed, slot: int, t: int, out: Array, b: int) -> None:
    """Write the stacked observation of step t to `out[b]`."""
    first = first_frame(ring.discounts, slot, t, ring.n_frames)
    _write_frames(ring, slot, t, first, False, out, b, out.shape[1] // ring.n_frames)


@njit(cache=True)
def write_next_observation(ring: Observed, slot: int, t: int, out: Array, b: int) -> None:
    """Write the stacked observation after step t, in the same episode, to `out[b]`."""
    first = max(first_frame(ring.discounts, slot, t, ring.n_frames) - 1, 0)
    ended = ring.discounts[slot, t] != 1.0
    _write_frames(ring, slot, t + 1, first, ended, out, b, out.shape[1] // ring.n_frames)
