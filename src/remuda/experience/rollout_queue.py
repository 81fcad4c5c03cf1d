"""The learner's side of rollouts: `RolloutQueue` takes each closed segment at most once."""

from __future__ import annotations

from typing import Any

from remuda.experience.experience import NEVER, Experience
from remuda.experience.pieces import Observed, observed
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
from remuda.system.kernels import njit
from remuda.system.memory.atomic import fence_acquire, load
from remuda.types import Integers


@njit(cache=True)
def _take(
    ring: Steps,
    seen: Observed,
    closed: Segments,
    out: Steps,
    starts: Integers,
    row: int,
    segment: int,
    wanted: int,
    oldest: int,
    first_stream: int,
    check: bool,
    leave: int,
) -> tuple[int, int, int, int, int, int]:
    """Copy segments until `wanted` steps are copied, or no segment is left.

    Skip segments before the newest `leave` steps, overwritten segments, and pieces started by
    versions before `oldest`. Return rows, steps and pieces copied, the new `TAKEN` and
    `TAKEN_STEPS`, and the steps skipped.
    """
    num_segments = closed.sequence.size
    count = load(closed.counters, CLOSED)
    taken = load(closed.counters, TAKEN)
    reached = load(closed.counters, TAKEN_STEPS)
    i = max(taken, count - num_segments)
    first = i
    # If the writer overwrites entries during this loop, the loop only finds another `first`.
    for later in range(count - 1, first, -1):
        newest = closed.queue_steps[(count - 1) % num_segments]
        if newest - closed.queue_steps[(later - 1) % num_segments] >= leave:
            first = later
            break
    rows, steps, copied, lost = 0, 0, 0, 0
    more, pieces, kept = 0, 0, 0
    while i < count:
        at = i % num_segments
        slot, expected, end = closed.queue[at], closed.queue_sequence[at], closed.queue_steps[at]
        fence_acquire()
        i += 1
        if check and load(closed.counters, CLOSED) - (i - 1) >= num_segments:
            continue  # the writer may be replacing this entry: its segment is already overwritten
        length = closed.committed[slot]
        fresh = i > first and (load(closed.sequence, slot) == expected or not check)
        if fresh and steps >= wanted:
            break  # leave this and later segments for the next rollout
        # A dead writer may have left a segment that was closed before its first step: skip it.
        fresh = fresh and length > 0
        if fresh:
            more, pieces, kept = copy_segment(
                ring,
                seen,
                slot,
                length,
                out,
                starts,
                row + rows,
                segment + copied,
                first_stream,
                oldest,
            )
            fence_acquire()
            fresh = load(closed.sequence, slot) == expected or not check
        lost += end - reached
        taken, reached = i, end
        if fresh:
            rows += more
            steps += kept
            copied += pieces
            lost -= kept
    return rows, steps, copied, taken, reached, lost


@njit(cache=True)
def _there(closed: Segments) -> int:
    num_segments = closed.sequence.size
    count = load(closed.counters, CLOSED)
    reached = load(closed.counters, TAKEN_STEPS)
    if count <= load(closed.counters, TAKEN):
        return 0
    end = closed.queue_steps[(count - 1) % num_segments]
    # Entries of reused segments stay in the queue until newer entries replace them.
    for i in range(max(load(closed.counters, TAKEN), count - num_segments), count):
        at = i % num_segments
        if load(closed.sequence, closed.queue[at]) == closed.queue_sequence[at]:
            break
        reached = closed.queue_steps[at]
    steps: int = max(end - reached, 0)
    return steps


class RolloutQueue:
    """The rollouts of one policy: each closed segment at most once, plus segments from `past`.

    A segment that was overwritten before it was taken is skipped, and so is a piece whose first
    step's weights are too old; the skipped steps are added to `lost`.
    """

    def __init__(
        self,
        experience: Experience,
        max_staleness: int | None = None,  # in versions
        check_sequence: bool = True,
        past: SegmentReplay | None = None,  # adds replayed segments
        newest: bool = False,  # skip all but the newest rollout if actors are far ahead
    ) -> None:
        self.experience, self.past, self._newest = experience, past, newest
        self.lost = 0  # closed steps that were skipped
        self._max_staleness, self._check = max_staleness, check_sequence
        self._taken = 0
        experience.take_up()
        experience.warm_up()
        one = Rollout.empty(experience, 1)
        for ring in experience.rings:
            _there(closed_of(ring))  # compile it now, not when the learner first falls behind
            self._take(ring, one, 0, 0, 0, NEVER)  # takes nothing: compiles the kernel

    def ready(self) -> bool:
        """Return whether a rollout can be taken; if not, the learner is woken when it can."""
        return self.experience.has_rollout() and self.experience.untaken > 0

    def take(self, out: Rollout, policy: int, version: int) -> int:
        """Copy the next rollout into row `policy` of `out`; return its steps."""
        oldest = 0 if self._max_staleness is None else version - self._max_staleness
        out.num_rows[policy] = out.num_steps[policy] = out.num_segments[policy] = 0
        rings, leaves = self.experience.rings, self._leaves()
        # Steps of the last rings may be left for the next rollout, so rotate the rings' order.
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
        first_stream = sum(other.num_streams for other in self.experience.rings[: ring.actor])
        seen = observed(ring, self.experience.shape, unpacked=False)
        options: tuple[Any, ...] = (wanted, oldest, first_stream, self._check, leave)
        found: tuple[int, int, int, int, int, int] = _take(
            steps_of(ring), seen, closed_of(ring), *to, *at, *options
        )
        return found

    def _leaves(self) -> list[int]:
        """Return, by ring, how many of the newest steps not to skip; `NEVER` to skip none."""
        experience = self.experience
        most = (experience.ahead + 1) * experience.rollout
        if experience.may_wait:  # one more turn may be played, and close every open segment
            closing = experience.num_streams * experience.config.segment_length
            most = max(most, experience.ahead * experience.rollout + closing)
        if not self._newest or experience.untaken < most:
            return [NEVER] * len(experience.rings)
        # Divide one rollout among the rings in proportion to the steps that they still hold.
        there = [_there(closed_of(ring)) for ring in experience.rings]
        return [-(-experience.rollout * steps // max(sum(there), 1)) for steps in there]
