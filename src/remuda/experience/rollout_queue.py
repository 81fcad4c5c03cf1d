"""The learner's end of experience, by whole segments: each once, in the order of their closing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from remuda.experience.experience import NEVER, Experience
from remuda.experience.ring import CLOSED, TAKEN, TAKEN_STEPS, ExperienceRing
from remuda.kernels import njit
from remuda.memory.atomic import fence_acquire, load
from remuda.types import Array, Bools, Floats, Integers

if TYPE_CHECKING:
    from remuda.experience.segment_replay import SegmentReplay

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


@njit(cache=True)
def _take(
    ring: Steps,
    closed: Closed,
    out: Steps,
    starts: Integers,
    row: int,
    segment: int,
    wanted: int,
    n_frames: int,
    oldest: int,
    first_stream: int,
    check: bool,
    leave: int,
) -> tuple[int, int, int, int, int, int]:
    """Copy segments until `wanted` steps are there, or none is left.

    It passes over all before the newest that have `leave` steps, wanted or not, what was
    overwritten, and versions before `oldest`. Returns the rows, steps and segments copied, the
    segments and steps of the ring up to where it came, and the steps that were passed over.
    """
    num_segments = closed.sequence.size
    count = load(closed.counters, CLOSED)
    taken = load(closed.counters, TAKEN)
    reached = load(closed.counters, TAKEN_STEPS)
    i = max(taken, count - num_segments)
    first = i
    # Entries that the writer goes over meanwhile make it begin elsewhere, and no more than that.
    for later in range(count - 1, first, -1):
        newest = closed.queue_steps[(count - 1) % num_segments]
        if newest - closed.queue_steps[(later - 1) % num_segments] >= leave:
            first = later
            break
    rows, steps, copied, lost = 0, 0, 0, 0
    while i < count:
        at = i % num_segments
        slot, expected, end = closed.queue[at], closed.queue_sequence[at], closed.queue_steps[at]
        fence_acquire()
        i += 1
        if check and load(closed.counters, CLOSED) - (i - 1) >= num_segments:
            continue  # the writer may be at this very entry: what it held is long overwritten
        length = closed.committed[slot]
        fresh = i > first and (load(closed.sequence, slot) == expected or not check)
        if fresh and steps >= wanted:
            break  # it waits for the next rollout, and so do those after it
        # A writer that died may have left a segment closed before its first step: it is no rollout.
        fresh = fresh and length > 0 and ring.versions[slot, 0] >= oldest
        if fresh:
            out.memories[segment + copied] = ring.memories[slot]
            starts[segment + copied] = row + rows
            copy_segment(ring, slot, length, out, row + rows, n_frames, first_stream)
            fence_acquire()
            fresh = load(closed.sequence, slot) == expected or not check
        lost += end - reached
        taken, reached = i, end
        if fresh:
            rows += length + 1
            steps += length
            copied += 1
            lost -= length
    return rows, steps, copied, taken, reached, lost


@njit(cache=True)
def _there(closed: Closed) -> int:
    """Steps of the closed segments that were not taken, without those whose entries are gone."""
    num_segments = closed.sequence.size
    count = load(closed.counters, CLOSED)
    reached = load(closed.counters, TAKEN_STEPS)
    if count <= load(closed.counters, TAKEN):
        return 0
    end = closed.queue_steps[(count - 1) % num_segments]
    # A segment that is written again leaves an entry behind, until as many were closed after it.
    for i in range(max(load(closed.counters, TAKEN), count - num_segments), count):
        at = i % num_segments
        if load(closed.sequence, closed.queue[at]) == closed.queue_sequence[at]:
            break
        reached = closed.queue_steps[at]
    steps: int = max(end - reached, 0)
    return steps


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


class RolloutQueue:
    """Takes the rollouts of one policy, and joins them with what is drawn from the past.

    A segment is handed out at most once. One that was overwritten before it was taken (only where
    the user lets the actor overwrite, or after the actor gave up waiting) is passed over and
    counted, and so is one whose first step was chosen by weights that are too old.
    """

    def __init__(
        self,
        experience: Experience,
        max_staleness: int | None = None,
        check_sequence: bool = True,
        past: SegmentReplay | None = None,
        newest: bool = False,
    ) -> None:
        """Take from experience.

        Args:
            experience: the policy's own.
            max_staleness: versions after which a segment is too old; None: never.
            check_sequence: whether to look if a segment was overwritten while it was copied.
            past: what is drawn besides; None: nothing.
            newest: whether to pass over all but the newest whole rollout, once actors are further
                ahead than they play where no actor is late; else each is taken, in order.
        """
        self.experience, self.past, self._newest = experience, past, newest
        self.lost = 0
        """Steps that were closed, and that it passed over."""
        self._max_staleness, self._check = max_staleness, check_sequence
        self._taken = 0
        experience.take_up()
        experience.warm_up()
        one = Rollout.empty(experience, 1)
        for ring in experience.rings:
            _there(closed_of(ring))  # called for one that is late only, and compiled by then
            self._take(ring, one, 0, 0, 0, NEVER)  # nothing wanted: this compiles the kernel

    def ready(self) -> bool:
        """Whether there is a rollout to take; if not, the learner is rung when there is."""
        return self.experience.has_rollout(self._newest) and self.experience.untaken > 0

    def take(self, out: Rollout, policy: int, version: int) -> int:
        """Copy the next rollout into row `policy` of `out`; returns its steps.

        Args:
            out: made for experience like this by `Rollout.empty`.
            policy: the row.
            version: the newest version of this policy, to which steps may be too old.
        """
        oldest = 0 if self._max_staleness is None else version - self._max_staleness
        out.num_rows[policy] = out.num_steps[policy] = out.num_segments[policy] = 0
        rings, leaves = self.experience.rings, self._leaves()
        # What is left over waits for the next rollout; each time it is another actor's.
        for i in range(len(rings)):
            ring = rings[(self._taken + i) % len(rings)]
            wanted = self.experience.rollout - int(out.num_steps[policy])
            rows, steps, copied, segments, reached, lost = self._take(
                ring, out, policy, wanted, oldest, leaves[ring.actor]
            )
            out.num_rows[policy] += rows
            out.num_steps[policy] += steps
            out.num_segments[policy] += copied
            self.lost += lost
            self.experience.take(ring.actor, segments, reached)
        self._taken += 1
        out.num_taken[policy] = out.num_steps[policy]
        if self.past is not None:
            self.past.join(out, policy, version, self._max_staleness)
        return int(out.num_steps[policy])

    def _take(
        self, ring: ExperienceRing, out: Rollout, policy: int, wanted: int, oldest: int, leave: int
    ) -> tuple[int, int, int, int, int, int]:
        found: tuple[int, int, int, int, int, int] = _take(
            steps_of(ring),
            closed_of(ring),
            row_of(out, policy),
            out.starts[policy],
            int(out.num_rows[policy]),
            int(out.num_segments[policy]),
            wanted,
            self.experience.shape.n_frames,
            oldest,
            sum(other.num_streams for other in self.experience.rings[: ring.actor]),
            self._check,
            leave,
        )
        return found

    def _leaves(self) -> list[int]:
        """By ring, how many of its newest steps are not passed over; `NEVER`: all are taken."""
        experience = self.experience
        most = (experience.ahead + 1) * experience.rollout
        if experience.may_wait:  # an actor looks before each turn, and may close all it has in it
            closing = experience.num_streams * experience.config.segment_length
            most = max(most, experience.ahead * experience.rollout + closing)
        if not self._newest or experience.untaken < most:
            return [NEVER] * len(experience.rings)
        # What was closed tells how late the learner is; what is still there, whose turn it is.
        there = [_there(closed_of(ring)) for ring in experience.rings]
        return [-(-experience.rollout * steps // max(sum(there), 1)) for steps in there]
