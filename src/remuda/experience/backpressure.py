"""Backpressure: when, and for how long, an actor waits for learners.

An actor waits only for policies with `on_full: wait`, and only while their learners make progress.
A learner publishes its progress in counters of each of its rings. All other state, such as when an
actor began to wait, is private to that actor. So an actor misses nothing while it is stopped or
asleep, and a dead process leaves nothing to repair.

A learner's first update may take long, so actors wait as long as the learner's process uses CPU
time. Supervision ends the process if it hangs, or waits too long for a child process such as a
compiler.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from remuda.experience.experience import UPDATES, Experience
from remuda.experience.ring import (
    CONSUMED,
    EXCUSED,
    ROOM_WANTED,
    TAKEN_STEPS,
    UPDATE_TIME,
    WRITTEN,
    is_tight,
    total,
    untaken,
)
from remuda.system.kernels import njit
from remuda.system.memory.atomic import fence_full, load, store
from remuda.system.memory.waiting import Wakeup
from remuda.system.processes.activity import Activity, ProcessId, started
from remuda.types import Integers

LEAST = 0.2  # minimum seconds to wait, unless `wait_limit` is lower
LOOK = 0.1  # seconds between checks that a process in its first update uses CPU time

# returns the activity of the process with this id and start time; None if it has ended
Look = Callable[[int, int], Activity | None]


class Backpressure:
    """A check of whether an actor may write another turn to a ring, with `on_full: wait`.

    Off-policy, the actor may write while all actors together are at most `max_lead` steps ahead of
    the learner. On-policy, it may write while fewer than `ahead` rollouts wait for the learner (1,
    or 2 if a matchmaker assigns the seats). If the learner makes no progress for `limit` seconds,
    the actor overwrites the oldest steps until the learner makes progress again.
    """

    def __init__(self, experience: Experience, actor: int) -> None:
        self.wakeup = experience.actors[actor]  # rung when the actor may continue
        self.config, self.learner = experience.config, experience.learner
        self.process = LearnerProcess([self])
        # start of the wait, or of the learner's last progress since; None: the actor may write
        self.late_since: float | None = None
        self.left_behind = False  # whether the actor no longer waits for this learner
        self._rollout = experience.ahead * experience.rollout
        self._lead = experience.lead
        self._all, self._counters = experience.counters, experience.rings[actor].counters
        ring = experience.rings[actor]
        self._segments, self._likely = ring.num_segments, ring.likely
        self._progress = self._process_progress = 0
        # Whether to ignore steps that were written before this actor started, or without a learner.
        # False if the order of turns and updates is fixed, so that a restarted actor waits exactly
        # where its predecessor would have waited.
        self.excuses = True
        # steps written before this actor first checked; None: it has not checked yet
        self._excused: int | None = None

    def has_room(self) -> bool:
        """Return whether the actor may write another turn; if not, it is woken when it may."""
        if self.left_behind or self.process.stands_still:
            if self.progress() == self._progress:
                return True
            self.left_behind = self.process.stands_still = False
        needed = self._needed()
        if needed > 0:
            store(self._counters, ROOM_WANTED, needed)
            fence_full()
            needed = self._needed()
        if needed <= 0:
            self.late_since = None
            return True
        if self.late_since is None or self.progress() != self._progress:
            self.late_since, self._progress = time.monotonic(), self.progress()
            self._process_progress = self.process.progress()
        if self._rollout:
            self.learner.ring()  # the learner may wait for more steps than the ring can hold
        return False

    def progress(self) -> int:
        """Return the steps that the learner has taken (on-policy) or consumed (off-policy)."""
        if self._rollout:
            return int(total(self._all, TAKEN_STEPS))
        return load(self._counters, CONSUMED)

    @property
    def limit(self) -> float:
        """Return the seconds to wait for a learner that makes no progress."""
        usual = load(self._counters, UPDATE_TIME) / 1e6
        if usual <= 0:  # the learner has not finished an update yet
            return self.config.wait_limit
        return min(max(UPDATES * usual, LEAST), self.config.wait_limit)

    @property
    def at_first_update(self) -> int:
        """Return the id of the learner's process during its first update; else 0."""
        return max(-load(self._counters, UPDATE_TIME), 0)

    def leave_behind(self) -> None:
        """Stop waiting for the learner until it makes progress.

        If no other policy of the learner's process made progress either, stop waiting for all.
        """
        if self.process.progress() == self._process_progress:
            self.process.stand_still()
        self.mark()
        self.left_behind = True

    def mark(self) -> None:
        self._progress, self.late_since = self.progress(), None

    def _needed(self) -> int:
        """Return 0 if the actor may write, else the learner's progress that allows it to write.

        On-policy, any progress may be enough, so the value is 1.
        """
        if self._rollout:
            has_room = _has_room_for_rollout(
                self._all, self._counters, self._segments, self._likely, self._rollout
            )
            return 0 if has_room else 1
        consumed = self.progress()  # load `CONSUMED` first: the learner stores `EXCUSED` first
        ahead = int(total(self._all, WRITTEN)) - self._lead - consumed
        if self._excused is None:
            self._excused = max(ahead, 0)
        if ahead <= 0:
            self._excused = 0
            return 0
        excused = max(self._excused, load(self._counters, EXCUSED)) if self.excuses else 0
        return ahead - excused + consumed if ahead > excused else 0


class LearnerProcess:
    """The backpressure of one actor for all policies of a learner process."""

    def __init__(self, rooms: list[Backpressure]) -> None:
        self.rooms = rooms
        # whether the actor no longer waits for this process, which made no progress in any policy
        self.stands_still = False
        self.computed_at = -math.inf  # when the process last used CPU time during a first update
        self._computed: dict[ProcessId, float] = {}  # CPU seconds at the last check, by process

    def look(self, look: Look) -> bool:
        """Record whether the process uses CPU time; return whether a policy is in its first update.

        Several process ids may be published: the id of a process that died during a first update
        stays until its successor updates that policy. Because the system may reuse ids, each is
        paired with the start time first seen.
        """
        ids = {room.at_first_update for room in self.rooms} - {0}
        known = {pid: (pid, began) for pid, began in self._computed}
        processes = [known.get(pid) or (pid, started(pid)) for pid in ids]
        before = self._computed
        self._computed = {process: before.get(process, 0.0) for process in processes}
        for process in processes:
            activity = look(*process) if process[1] else None  # no start time if it has ended
            if activity and (activity.runnable or activity.cpu > self._computed[process]):
                self.computed_at = time.monotonic()
                self._computed[process] = activity.cpu
        return bool(ids)

    def progress(self) -> int:
        return sum(room.progress() for room in self.rooms)

    def stand_still(self) -> None:
        """Stop waiting for all policies of the process until it makes progress in one of them."""
        self.stands_still = True
        for room in self.rooms:
            room.mark()


class ActorBackpressure:
    """The backpressure of one actor, over all of its rings."""

    def __init__(
        self, rooms: Sequence[Backpressure], exact: bool = False, look: Look = Activity.of
    ) -> None:
        """Group `rooms` by learner process; `exact` if the order of turns and updates is fixed."""
        self._rooms, self._look = tuple(rooms), look
        processes: dict[Wakeup, LearnerProcess] = {}
        for room in self._rooms:
            room.excuses = not exact
            room.process = processes.setdefault(room.learner, LearnerProcess([]))
            room.process.rooms.append(room)
        self._processes = tuple(processes.values())

    def warm_up(self) -> None:
        """Compile the kernels now, not when the actor first has to wait."""
        for room in self._rooms:
            room.has_room()
        for process in self._processes:
            process.progress()

    def has_room(self) -> bool:
        return all(room.has_room() for room in self._rooms)

    def wait(self, timeout: float, interrupted: Callable[[], bool]) -> int | None:
        """Sleep until the actor may write to all rings, for `timeout` seconds at most.

        Return the number of policies for which the actor stopped waiting; None if it did not wait.
        """
        late = self._late()  # checks all rings, so the wait for each starts now
        if not late:
            return None
        until = time.monotonic() + timeout
        while True:
            processes = {room.process for room, _ in late}
            looks = sum(process.look(self._look) for process in processes) > 0  # check all of them
            now = time.monotonic()
            ends = [until, *(_end(room, since) for room, since in late)]
            if looks:
                ends.append(now + LOOK)
            late[0][0].wakeup.wait(
                lambda: interrupted() or self.has_room(), max(min(ends) - now, 0.0)
            )
            late = self._late()
            if not looks or not late or time.monotonic() >= min(ends[:-1]) or interrupted():
                break
        left = 0
        for room, since in late:
            if not room.process.stands_still and time.monotonic() >= _end(room, since):
                room.leave_behind()
                left += 1
        return left

    def _late(self) -> list[tuple[Backpressure, float]]:
        late = [room for room in self._rooms if not room.has_room()]
        return [(room, room.late_since) for room in late if room.late_since is not None]


def _end(room: Backpressure, since: float) -> float:
    """Return when to stop waiting for a learner that has made no progress since `since`."""
    return max(since, room.process.computed_at) + room.limit


@njit(cache=True)
def _has_room_for_rollout(
    counters: Integers, own: Integers, segments: int, likely: int, rollout: int
) -> bool:
    return untaken(counters) < rollout and not is_tight(own, segments, likely)
