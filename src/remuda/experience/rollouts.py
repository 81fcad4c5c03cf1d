"""The learner's end of experience, by whole segments: the newest once, and draws of the past."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from remuda.checkpoint.state import random_state, restore_random
from remuda.experience.experience import Experience
from remuda.experience.ring import CLOSED, OTHERS, TAKEN, TAKEN_STEPS, ExperienceRing
from remuda.memory.atomic import fence_acquire, load
from remuda.types import Array, Bools, Floats, Integers, State

AFTER = -1
"""The stream of a row that holds no step, but what was seen after the last step of a segment."""
TRIES = 100
"""Draws in a row that bring nothing, after which no more are made."""


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
def _copy(
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
) -> tuple[int, int, int, int, int, int]:
    """Copy segments until `wanted` steps are there, or none is left.

    Returns the rows, steps and segments copied, the segments and steps of the ring that this brings
    us to, and the steps that were passed over: overwritten, or by versions before `oldest`.
    """
    num_segments = closed.sequence.size
    count = load(closed.counters, CLOSED)
    first = max(load(closed.counters, TAKEN), count - num_segments)
    reached = load(closed.counters, TAKEN_STEPS)
    rows, steps, copied, lost = 0, 0, 0, 0
    i = first
    while i < count and steps < wanted:
        at = i % num_segments
        i += 1
        slot, expected, end = closed.queue[at], closed.queue_sequence[at], closed.queue_steps[at]
        fence_acquire()
        if check and load(closed.counters, CLOSED) - (i - 1) >= num_segments:
            continue  # the writer may be at this very entry: what it held is long overwritten
        length = closed.committed[slot]
        intact = load(closed.sequence, slot) == expected or not check
        fresh = intact and ring.versions[slot, 0] >= oldest
        if fresh:
            out.memories[segment + copied] = ring.memories[slot]
            starts[segment + copied] = row + rows
            _copy(ring, slot, length, out, row + rows, n_frames, first_stream)
            fence_acquire()
            fresh = load(closed.sequence, slot) == expected or not check
        lost += end - reached
        reached = end
        if fresh:
            rows += length + 1
            steps += length
            copied += 1
            lost -= length
    return rows, steps, copied, i, reached, lost


@njit(cache=True)
def _draw(
    ring: Steps,
    closed: Closed,
    places: Integers,
    count: int,
    out: Steps,
    starts: Integers,
    row: int,
    segment: int,
    n_frames: int,
    oldest: int,
    own: bool,
    check: bool,
) -> tuple[int, int, int]:
    """Copy the segments at these places of a ring's queue, when `count` had been closed.

    Segments that were overwritten, or begun by versions before `oldest`, are left out. Returns the
    rows, steps and segments copied.
    """
    num_segments = closed.sequence.size
    rows, steps, copied = 0, 0, 0
    for at in places:
        i = count - 1 - (count - 1 - at) % num_segments  # the newest entry in this place
        slot, expected = closed.queue[at], closed.queue_sequence[at]
        fence_acquire()
        if check and load(closed.counters, CLOSED) - i >= num_segments:
            continue  # the writer may be at this very entry
        length = closed.committed[slot]
        if length == 0 or (check and load(closed.sequence, slot) != expected):
            continue
        if own and ring.versions[slot, 0] < oldest:
            continue
        out.memories[segment + copied] = ring.memories[slot]
        starts[segment + copied] = row + rows
        _copy(ring, slot, length, out, row + rows, n_frames, 0)
        if not own:
            out.versions[row + rows : row + rows + length] = OTHERS
        fence_acquire()
        if load(closed.sequence, slot) == expected or not check:
            rows += length + 1
            steps += length
            copied += 1
    return rows, steps, copied


def _held(ring: ExperienceRing) -> tuple[int, Integers]:
    """How many segments were closed, and where in the queue those stand that are still there.

    It may be overtaken: whoever copies looks again.
    """
    shared, count = ring.shared, load(ring.counters, CLOSED)
    entries = min(count, ring.num_segments)
    queue = shared["queue"][:entries]
    return count, np.flatnonzero(shared["sequence"][queue] == shared["queue_sequence"][:entries])


def _steps_of(ring: ExperienceRing) -> Steps:
    return Steps(*(ring.shared[name] for name in Steps._fields))


def _closed_of(ring: ExperienceRing) -> Closed:
    shared = ring.shared
    return Closed(
        shared["sequence"],
        shared["committed"],
        shared["queue"],
        shared["queue_sequence"],
        shared["queue_steps"],
        ring.counters,
    )


def _row_of(out: Rollout, policy: int) -> Steps:
    return Steps(*(getattr(out, name)[policy] for name in Steps._fields))


class Rollouts:
    """Takes the rollouts of one policy, and joins them with what is drawn from the past.

    A segment is handed out at most once. One that was overwritten before it was taken (only where
    the user lets the actor overwrite, or after the actor waited for its limit) is passed over and
    counted, and so is one whose first step was chosen by weights that are too old.
    """

    def __init__(
        self,
        experience: Experience,
        max_staleness: int | None = None,
        check_sequence: bool = True,
        past: Past | None = None,
    ) -> None:
        """Take from experience.

        Args:
            experience: the policy's own.
            max_staleness: versions after which a segment is too old; None: never.
            check_sequence: whether to look if a segment was overwritten while it was copied.
            past: what is drawn besides; None: nothing.
        """
        self.experience, self.past = experience, past
        self.lost = 0
        """Steps that were closed, and that nobody trained on."""
        self._max_staleness, self._check = max_staleness, check_sequence
        self._taken = 0
        experience.take_up()
        one = Rollout.empty(experience, 1)
        for ring in experience.rings:
            self._take(ring, one, 0, 0, 0)  # nothing wanted: this compiles the kernel

    def ready(self) -> bool:
        """Whether there is a rollout to take; if not, the learner is rung when there is."""
        return self.experience.has_rollout() and self.experience.untaken > 0

    def take(self, out: Rollout, policy: int, version: int) -> int:
        """Copy the next rollout into row `policy` of `out`; returns its steps.

        Args:
            out: made for experience like this by `Rollout.empty`.
            policy: the row.
            version: the newest version of this policy, to which steps may be too old.
        """
        oldest = 0 if self._max_staleness is None else version - self._max_staleness
        out.num_rows[policy] = out.num_steps[policy] = out.num_segments[policy] = 0
        rings = self.experience.rings
        # What is left over waits for the next rollout; each time it is another actor's.
        for i in range(len(rings)):
            ring = rings[(self._taken + i) % len(rings)]
            wanted = self.experience.rollout - int(out.num_steps[policy])
            rows, steps, copied, segments, reached, lost = self._take(
                ring, out, policy, wanted, oldest
            )
            out.num_rows[policy] += rows
            out.num_steps[policy] += steps
            out.num_segments[policy] += copied
            self.lost += lost
            self.experience.take(ring.actor, segments, reached)
        self._taken += 1
        out.num_taken[policy] = out.num_steps[policy]
        if self.past is not None:
            self.past.join(out, policy, oldest)
        return int(out.num_steps[policy])

    def _take(
        self, ring: ExperienceRing, out: Rollout, policy: int, wanted: int, oldest: int
    ) -> tuple[int, int, int, int, int, int]:
        found: tuple[int, int, int, int, int, int] = _take(
            _steps_of(ring),
            _closed_of(ring),
            _row_of(out, policy),
            out.starts[policy],
            int(out.num_rows[policy]),
            int(out.num_segments[policy]),
            wanted,
            self.experience.shape.n_frames,
            oldest,
            sum(other.num_streams for other in self.experience.rings[: ring.actor]),
            self._check,
        )
        return found


class Past:
    """Draws closed segments of a policy's own experience, and of those it shares with.

    Each segment that is still held has the same chance, and so has each step. Nobody is waited for,
    and nothing is taken away: a segment may be drawn again. One that its writer overtakes is drawn
    anew.
    """

    def __init__(
        self,
        sources: Sequence[Experience],
        random: np.random.Generator,
        replays: float,
        alone: bool,
        check_sequence: bool = True,
    ) -> None:
        """Draw from these.

        Args:
            sources: the policy's own experience first.
            random: the stream that decides.
            replays: steps to draw to each step that was taken.
            alone: leave out what was taken, and keep only what is drawn.
            check_sequence: whether to look if a segment was overwritten while it was copied.
        """
        self._rings = [(ring, i == 0) for i, found in enumerate(sources) for ring in found.rings]
        self._n_frames, self._length = sources[0].shape.n_frames, sources[0].config.segment_length
        self._random, self._replays, self._alone = random, replays, alone
        self._check = check_sequence
        one = Rollout.empty(sources[0], 1)
        nothing: Integers = np.zeros(0, np.int64)
        held = [(1, nothing) for _ in self._rings]
        self._draw(nothing, held, one, 0, 0)  # compiles the kernel

    def join(self, out: Rollout, policy: int, oldest: int) -> None:
        """Join what was taken into row `policy` with what is drawn.

        Args:
            out: where it is.
            policy: the row.
            oldest: the first version of the policy's own steps that is not too old.
        """
        wanted = math.ceil(int(out.num_taken[policy]) * self._replays)
        if self._alone:
            out.num_rows[policy] = out.num_steps[policy] = out.num_segments[policy] = 0
        tries = 0
        while wanted > 0 and tries < TRIES:
            held = [_held(ring) for ring, _ in self._rings]
            entries = sum(len(places) for _, places in held)
            if not entries:
                return
            # No more at a time than all are needed, so that none is favoured by the order of rings.
            picks = self._random.integers(0, entries, max(wanted // self._length, 1))
            steps = self._draw(picks, held, out, policy, oldest)
            wanted -= steps
            tries = 0 if steps else tries + 1

    def state(self) -> State:
        """Its random stream."""
        return random_state(self._random)

    def restore(self, state: State) -> None:
        """Go on drawing where `state` was called."""
        restore_random(self._random, state)

    def _draw(
        self,
        picks: Integers,
        held: Sequence[tuple[int, Integers]],
        out: Rollout,
        policy: int,
        oldest: int,
    ) -> int:
        base, drawn = 0, 0
        for (count, places), (ring, own) in zip(held, self._rings, strict=True):
            here = picks[(picks >= base) & (picks < base + len(places))] - base
            rows, steps, copied = _draw(
                _steps_of(ring),
                _closed_of(ring),
                places[here],
                count,
                _row_of(out, policy),
                out.starts[policy],
                int(out.num_rows[policy]),
                int(out.num_segments[policy]),
                self._n_frames,
                oldest,
                own,
                self._check,
            )
            out.num_rows[policy] += rows
            out.num_steps[policy] += steps
            out.num_segments[policy] += copied
            drawn += steps
            base += len(places)
        return drawn
