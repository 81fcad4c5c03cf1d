"""Whole segments of experience, as they lie in a ring and in a rollout that learners take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from remuda.experience.experience import Experience
from remuda.experience.ring import ExperienceRing
from remuda.kernels import njit
from remuda.types import Array, Bools, Floats, Integers

AFTER = -1
"""The stream of a row that holds no step, but what was seen after the last step of a segment."""


@dataclass(frozen=True)
class Rollout:
    """Segments one after another, for K policies: L rows for L - 1 steps each.

    The last row of a segment holds what was seen after its last step, and nothing else. Rows beyond
    `num_rows` are whatever they were.
    """

    observations: Array
    """[K, R, n_frames * size]: stacked, in the dtype of the game."""
    actions: Array
    """[K, R, action_size]."""
    log_probs: Floats
    """[K, R]: of the actions, when they were chosen."""
    masks: Bools
    """[K, R, mask_size]: what was allowed."""
    rewards: Floats
    """[K, R]."""
    discounts: Floats
    """[K, R]: 0 where the episode terminated, else 1."""
    versions: Integers
    """[K, R]: of the weights that chose, or `OTHERS`."""
    streams: Integers
    """[K, R]: the copy and seat that a step is of, or `AFTER`."""
    memories: Floats
    """[K, G, memory]: what was kept before the first step of each segment."""
    starts: Integers
    """[K, G]: the first row of each segment."""
    num_rows: Integers
    """[K]."""
    num_segments: Integers
    """[K]."""
    num_steps: Integers
    """[K]."""
    num_taken: Integers
    """[K]: steps that were played since the last rollout; in the learning mode `off_policy` they
    are not among the others."""

    @staticmethod
    def empty(experience: Experience, num_policies: int, replays: float = 0.0) -> Rollout:
        """Room for the largest rollout that `take` may bring from experience like this.

        Args:
            experience: of one of the policies.
            num_policies: K.
            replays: steps that are drawn to each step that is taken.
        """
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
            memories=np.zeros((num_policies, rows // 2, shape.memory), np.float32),
            starts=np.zeros((num_policies, rows // 2), np.int64),
            num_rows=np.zeros(num_policies, np.int64),
            num_segments=np.zeros(num_policies, np.int64),
            num_steps=np.zeros(num_policies, np.int64),
            num_taken=np.zeros(num_policies, np.int64),
        )


def rows_for(experience: Experience, replays: float = 0.0) -> int:
    """Rows of the largest rollout from experience like this, with what is drawn to it."""
    length = experience.config.segment_length
    # A rollout passes its number of steps by less than one segment; each has a row more.
    places = sum(ring.num_segments for ring in experience.rings)
    rows = min(2 * (experience.rollout + length), places * (length + 1))
    return rows + (2 * (math.ceil(rows * replays) + length) if replays else 0)


class Steps(NamedTuple):
    """Where steps are: the arrays of a ring [S, ...], or those of one policy in a rollout [R, ...].

    Their meaning is the same, but for `memories`: of a ring [S, memory], of a rollout [G, memory].
    """

    observations: Array
    actions: Array
    log_probs: Floats
    masks: Bools
    rewards: Floats
    discounts: Floats
    versions: Integers
    streams: Integers
    memories: Floats


class Closed(NamedTuple):
    """A ring's closed segments, in the order in which they were closed, and its words."""

    sequence: Integers
    committed: Integers
    queue: Integers
    queue_sequence: Integers
    queue_steps: Integers
    counters: Integers


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
    """The steps of a ring."""
    return Steps(*(ring.shared[name] for name in Steps._fields))


def closed_of(ring: ExperienceRing) -> Closed:
    """Its closed segments."""
    shared = ring.shared
    return Closed(
        shared["sequence"],
        shared["committed"],
        shared["queue"],
        shared["queue_sequence"],
        shared["queue_steps"],
        ring.counters,
    )


def row_of(out: Rollout, policy: int) -> Steps:
    """Where one policy's steps go."""
    return Steps(*(getattr(out, name)[policy] for name in Steps._fields))
