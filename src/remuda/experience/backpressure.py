"""Backpressure: when, and for how long, an actor waits for learners.

An actor waits only for experience with `on_full: wait`, and only for learners that make progress. A
learner publishes its progress in words that it owns in each of its rings. All other state, such as
since when a learner is late, is private to the actor. So the actor misses nothing while it is
stopped or asleep, and a dead process leaves nothing to repair.

A learner's first update may take long: actors wait while threads of its process compute.
Supervision ends a learner that hangs then, or that waits for a child process such as a compiler.
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

LEAST = 0.2  # minimum seconds to wait, unless the user's limit is lower
LOOK = 0.1  # seconds between two checks whether a process in its first update computes

# returns the activity of the process with an id and start time; None if it has ended
Look = Callable[[int, int], Activity | None]


class Backpressure:
    """The check whether an actor may write another turn to a ring, with `on_full: wait`.

    It may write while all actors together are within `capacity` steps of an off-policy learner. For
    an on-policy learner it may while no whole rollout waits to be taken, or two if seats are dealt.
    If the learner takes nothing for `limit` seconds, the actor overwrites the oldest steps until
    the learner takes something again.
    """

    def __init__(self, experience: Experience, actor: int) -> None:
        self.wakeup = experience.actors[actor]  # rung once the actor may continue
        self.config, self.learner = experience.config, experience.learner
        self.process = LearnerProcess([self])
        # when room ran out, or when the learner last took something after that
        self.late_since: float | None = None
        self.left_behind = False  # whether the actor no longer waits for this learner
        self._rollout = experience.ahead * experience.rollout
        self._all, self._counters = experience.counters, experience.rings[actor].counters
        ring = experience.rings[actor]
        self._queue, self._numbers = ring.shared["queue"], ring.shared["numbers"]
        self._likely = ring.likely
        self._progress = self._process_progress = 0
        # whether to excuse steps written before it started, or without a learner; not if the order
        # of updates and turns is fixed, because a successor must wait where its predecessor would
        self.excuses = True
        # steps written before this actor first checked; None: it has not checked yet
        self._excused: int | None = None

    def has_room(self) -> bool:
        """Return whether the actor may write another turn; if not, it is rung once it may."""
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
            self.learner.ring()  # it may wait for more steps than the ring can hold
        return False

    def progress(self) -> int:
        """Return a number that grows whenever the learner has taken or consumed something."""
        if self._rollout:
            return int(total(self._all, TAKEN_STEPS))
        return load(self._counters, CONSUMED)

    @property
    def limit(self) -> float:
        """Return the seconds to wait for a learner that takes nothing."""
        usual = load(self._counters, UPDATE_TIME) / 1e6
        if usual <= 0:  # it has not made an update yet
            return self.config.wait_limit
        return min(max(UPDATES * usual, LEAST), self.config.wait_limit)

    @property
    def at_first_update(self) -> int:
        """Return the id of the learner's process during its first update; else 0."""
        return max(-load(self._counters, UPDATE_TIME), 0)

    def leave_behind(self) -> None:
        """Stop waiting for the learner until it takes something.

        If no other policy of its process made progress either, stop waiting for all of them.
        """
        if self.process.progress() == self._process_progress:
            self.process.stand_still()
        self.mark()
        self.left_behind = True

    def mark(self) -> None:
        self._progress, self.late_since = self.progress(), None

    def _needed(self) -> int:
        """Return the steps that the learner must have finished before there is room, or 0."""
        if self._rollout:
            has_room = _has_room_for_rollout(
                self._all, self._counters, self._queue, self._numbers, self._likely, self._rollout
            )
            return 0 if has_room else 1
        consumed = self.progress()  # before `EXCUSED`, which is stored before it
        ahead = int(total(self._all, WRITTEN)) - self.config.capacity - consumed
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
        # whether it took nothing of any policy until the wait for one of them ended
        self.stands_still = False
        self.computed_at = -math.inf  # when it last computed during a first update
        self._computed: dict[ProcessId, float] = {}  # CPU seconds at the last check, by process

    def look(self, look: Look) -> bool:
        """Record whether it computes or is runnable; return whether it is in a first update.

        Several process ids may be published: one that died during a first update stays until its
        successor comes to that policy. A process id is paired with the start time first seen.
        """
        ids = {room.at_first_update for room in self.rooms} - {0}
        known = {pid: (pid, began) for pid, began in self._computed}
        processes = [known.get(pid) or (pid, started(pid)) for pid in ids]
        before = self._computed
        self._computed = {process: before.get(process, 0.0) for process in processes}
        for process in processes:
            activity = look(*process) if process[1] else None  # else it had already ended
            if activity and (activity.runnable or activity.cpu > self._computed[process]):
                self.computed_at = time.monotonic()
                self._computed[process] = activity.cpu
        return bool(ids)

    def progress(self) -> int:
        return sum(room.progress() for room in self.rooms)

    def stand_still(self) -> None:
        """Stop waiting for all of its policies until it takes something of one."""
        self.stands_still = True
        for room in self.rooms:
            room.mark()


class ActorBackpressure:
    """The backpressure of one actor, over all of its rings."""

    def __init__(
        self, rooms: Sequence[Backpressure], exact: bool = False, look: Look = Activity.of
    ) -> None:
        """Group `rooms` by learner process; an `exact` run excuses nothing."""
        self._rooms, self._look = tuple(rooms), look
        processes: dict[Wakeup, LearnerProcess] = {}
        for room in self._rooms:
            room.excuses = not exact
            room.process = processes.setdefault(room.learner, LearnerProcess([]))
            room.process.rooms.append(room)
        self._processes = tuple(processes.values())

    def warm_up(self) -> None:
        """Compile the kernels that are otherwise first called when room runs out."""
        for room in self._rooms:
            room.has_room()
        for process in self._processes:
            process.progress()

    def has_room(self) -> bool:
        return all(room.has_room() for room in self._rooms)

    def wait(self, timeout: float, interrupted: Callable[[], bool]) -> int | None:
        """Sleep until all rings have room, for `timeout` seconds at most.

        Returns the number of learners that the actor stopped waiting for; None if none was late.
        """
        late = self._late()  # checks all rings, so the wait for each starts now
        if not late:
            return None
        until = time.monotonic() + timeout
        while True:
            processes = {room.process for room, _ in late}
            looks = sum(process.look(self._look) for process in processes) > 0  # no short-circuit
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
    """Return the time until which to wait for a learner that has taken nothing `since`."""
    return max(since, room.process.computed_at) + room.limit


@njit(cache=True)
def _has_room_for_rollout(
    counters: Integers, own: Integers, queue: Integers, numbers: Integers, likely: int, rollout: int
) -> bool:
    return untaken(counters) < rollout and not is_tight(own, queue, numbers, likely)
