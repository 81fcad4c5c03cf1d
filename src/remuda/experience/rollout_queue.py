"""The learner's end of experience for rollouts: each segment once, in order of closing."""

from __future__ import annotations

from typing import Any

from remuda.experience.experience import NEVER, Experience
from remuda.experience.ring import CLOSED, TAKEN, TAKEN_STEPS, ExperienceRing
from remuda.experience.ring_block import Segments
from remuda.experience.segments import (
    Rollout,
    SegmentReplay,
    Steps,
    closed_of,
    copy_segment,
    row_of,
    steps_of,
)
from remuda.kernels import njit
from remuda.memory.atomic import fence_acquire, load
from remuda.types import Integers


@njit(cache=True)
def _take(
    ring: Steps,
    closed: Segments,
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

    It skips all before the newest that have `leave` steps, what was overwritten, and versions
    before `oldest`. Returns rows, steps and segments copied, the ring's segments and steps up to
    there, and steps skipped.
    """
    num_segments = closed.sequence.size
    count = load(closed.counters, CLOSED)
    taken = load(closed.counters, TAKEN)
    reached = load(closed.counters, TAKEN_STEPS)
    i = max(taken, count - num_segments)
    first = i
    # Entries that the writer overwrites meanwhile only change where it begins.
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
            out.recurrent_states[segment + copied] = ring.recurrent_states[slot]
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
def _there(closed: Segments) -> int:
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


class RolloutQueue:
    """Takes the rollouts of one policy, each segment at most once; joins them with replayed ones.

    A segment that was overwritten before it was taken is skipped and counted, and so is one whose
    first step was chosen by weights that are too old.
    """

    def __init__(
        self,
        experience: Experience,
        max_staleness: int | None = None,  # in versions
        check_sequence: bool = True,
        past: SegmentReplay | None = None,  # joins replayed segments
        newest: bool = False,  # skip all but the newest rollout once actors are far ahead
    ) -> None:
        self.experience, self.past, self._newest = experience, past, newest
        self.lost = 0  # closed steps that were skipped
        self._max_staleness, self._check = max_staleness, check_sequence
        self._taken = 0
        experience.take_up()
        experience.warm_up()
        one = Rollout.empty(experience, 1)
        for ring in experience.rings:
            _there(closed_of(ring))  # called for one that is late only, and compiled by then
            self._take(ring, one, 0, 0, 0, NEVER)  # nothing wanted: this compiles the kernel

    def ready(self) -> bool:
        """Return whether there is a rollout to take; if not, the learner is rung when there is."""
        return self.experience.has_rollout(self._newest) and self.experience.untaken > 0

    def take(self, out: Rollout, policy: int, version: int) -> int:
        """Copy the next rollout into row `policy` of `out`; return its steps."""
        oldest = 0 if self._max_staleness is None else version - self._max_staleness
        out.num_rows[policy] = out.num_steps[policy] = out.num_segments[policy] = 0
        rings, leaves = self.experience.rings, self._leaves()
        # Remaining steps wait for the next rollout; each time they are another actor's.
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
        to = (row_of(out, policy), out.starts[policy])
        at = (int(out.num_rows[policy]), int(out.num_segments[policy]))
        n_frames, before = self.experience.shape.n_frames, self.experience.rings[: ring.actor]
        first_stream = sum(other.num_streams for other in before)
        options: tuple[Any, ...] = (wanted, n_frames, oldest, first_stream, self._check, leave)
        found: tuple[int, int, int, int, int, int] = _take(
            steps_of(ring), closed_of(ring), *to, *at, *options
        )
        return found

    def _leaves(self) -> list[int]:
        """Return, by ring, how many of its newest steps are not skipped; `NEVER`: all are taken."""
        experience = self.experience
        most = (experience.ahead + 1) * experience.rollout
        if experience.may_wait:  # an actor looks before each turn, and may close all it has in it
            closing = experience.num_streams * experience.config.segment_length
            most = max(most, experience.ahead * experience.rollout + closing)
        if not self._newest or experience.untaken < most:
            return [NEVER] * len(experience.rings)
        # Closed steps show how late the learner is; steps still there, which ring is next.
        there = [_there(closed_of(ring)) for ring in experience.rings]
        return [-(-experience.rollout * steps // max(sum(there), 1)) for steps in there]
