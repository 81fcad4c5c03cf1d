"""Whole segments of experience, in a ring and in a rollout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from remuda.experience.experience import Experience
from remuda.experience.ring import ExperienceRing
from remuda.experience.ring_arrays import Segments
from remuda.kernels import njit
from remuda.types import Array, Bools, Floats, Integers

AFTER = -1  # stream of a row that holds a segment's final observation and no step


@dataclass(frozen=True)
class Rollout:
    """Consecutive segments for K policies: L rows for L - 1 steps and the final observation each.

    Rows beyond `num_rows` hold old data.
    """

    observations: Array  # [K, R, n_frames * size] stacked, in the environment's dtype
    actions: Array  # [K, R, action_size]
    log_probs: Floats  # [K, R] of the actions when they were chosen
    masks: Bools  # [K, R, mask_size] allowed actions
    rewards: Floats  # [K, R]
    discounts: Floats  # [K, R] 0 where the episode terminated, else 1
    versions: Integers  # [K, R] of the acting weights, or `OTHERS`
    streams: Integers  # [K, R] copy and seat of the step, or `AFTER`
    recurrent_states: Floats  # [K, G, memory] before the first step of each segment
    starts: Integers  # [K, G] first row of each segment
    num_rows: Integers  # [K]
    num_segments: Integers  # [K]
    num_steps: Integers  # [K]
    # [K] steps played since the last rollout; with learning mode `off_policy` not part of the
    # others
    num_taken: Integers

    @staticmethod
    def empty(experience: Experience, num_policies: int, replays: float = 0.0) -> Rollout:
        """Allocate the largest possible rollout, with `replays` steps per step taken."""
        shape, rows = experience.shape, rows_for(experience, replays)
        at = (num_policies, rows)
        return Rollout(
            observations=np.zeros((*at, shape.n_frames * shape.size), shape.dtype),
            actions=np.zeros((*at, shape.action_size), shape.action_dtype),
            log_probs=np.zeros(at, np.float32),
            masks=np.ones((*at, shape.mask_size), np.bool_),
            rewards=np.zeros(at, np.float32),
            discounts=np.zeros(at, np.float32),
            versions=np.zeros(at, np.int64),
            streams=np.full(at, AFTER, np.int64),
            recurrent_states=np.zeros((num_policies, rows // 2, shape.memory), np.float32),
            starts=np.zeros((num_policies, rows // 2), np.int64),
            num_rows=np.zeros(num_policies, np.int64),
            num_segments=np.zeros(num_policies, np.int64),
            num_steps=np.zeros(num_policies, np.int64),
            num_taken=np.zeros(num_policies, np.int64),
        )


def rows_for(experience: Experience, replays: float = 0.0) -> int:
    """Return the rows of the largest rollout of such experience, with replayed segments."""
    length = experience.config.segment_length
    # A rollout passes its number of steps by less than one segment; each has a row more.
    places = sum(ring.num_segments for ring in experience.rings)
    rows = min(2 * (experience.rollout + length), places * (length + 1))
    return rows + (2 * (math.ceil(rows * replays) + length) if replays else 0)


class Steps(NamedTuple):
    """Arrays of steps, of a ring [S, ...] or a rollout [R, ...]; `recurrent_states` by segment."""

    observations: Array
    actions: Array
    log_probs: Floats
    masks: Bools
    rewards: Floats
    discounts: Floats
    versions: Integers
    streams: Integers
    recurrent_states: Floats


@njit(cache=True)
def copy_segment(
    ring: Steps, slot: int, length: int, out: Steps, row: int, n_frames: int, first_stream: int
) -> None:
    """Copy a segment of so many steps to the rows from `row` on."""
    size = ring.observations.shape[2]
    for t in range(length + 1):
        at = row + t
        for frame in range(n_frames):
            for j in range(size):
                out.observations[at, frame * size + j] = ring.observations[slot, t + frame, j]
        out.streams[at] = AFTER
        out.rewards[at] = 0.0
        out.discounts[at] = 0.0
        if t < length:
            out.actions[at] = ring.actions[slot, t]
            out.log_probs[at] = ring.log_probs[slot, t]
            out.masks[at] = ring.masks[slot, t]
            out.rewards[at] = ring.rewards[slot, t]
            out.discounts[at] = ring.discounts[slot, t]
            out.versions[at] = ring.versions[slot, t]
            out.streams[at] = first_stream + ring.streams[slot]


def steps_of(ring: ExperienceRing) -> Steps:
    """Return the steps of a ring."""
    return Steps(*(ring.shared[name] for name in Steps._fields))


def closed_of(ring: ExperienceRing) -> Segments:
    """Return the arrays of a ring's segments and of the queue of closed ones."""
    *names, _ = Segments._fields
    return Segments._make([*(ring.shared[name] for name in names), ring.counters])


def row_of(out: Rollout, policy: int) -> Steps:
    """Return the steps of one policy."""
    return Steps(*(getattr(out, name)[policy] for name in Steps._fields))
