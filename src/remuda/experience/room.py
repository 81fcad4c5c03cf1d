"""Where an actor may have to wait for learners, and for how long.

An actor waits only for experience that the user set to `wait`, and only for learners that make
progress. How far a learner is stands in words of its own in each of its rings: what it took or
consumed, how long an update takes it, as a rule, and what it need not make up for, because it was
written while no actor waited for it. The actor reads these and keeps the rest, who is late since
when, to itself; so it misses nothing while it is stopped or asleep, and a process that dies leaves
nothing here that another would have to mend.

How long a learner's first update takes cannot be known, and it may take long: what is only done
once comes with it. So it is waited for as long as the learner's process computes; one that hangs
meanwhile is ended by supervision. Only what the process computes itself counts, in any of its
threads: one that waits for a process of its own, such as a compiler, computes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from remuda.config import ExperienceConfig
from remuda.experience.ring import (
    CONSUMED,
    EXCUSED,
    ROOM_WANTED,
    TAKEN_STEPS,
    UPDATE_TIME,
    WRITTEN,
    ExperienceRing,
    is_tight,
)
from remuda.experience.words import total, untaken
from remuda.forkserver.activity import Activity, ProcessId, started
from remuda.kernels import njit
from remuda.memory.atomic import fence_full, load, store
from remuda.memory.waiting import Wakeup
from remuda.types import Integers

UPDATES = 2.0
"""A learner is waited for as long as so many of its updates take, as a rule..."""
LEAST = 0.2
"""...but at least so many seconds, unless the user's own limit is less."""


LOOK = 0.1
"""Seconds between two looks at whether a process computes that is at its first update."""

Look = Callable[[int, int], Activity | None]
"""What the process of an id does that started then; None: it is gone."""


class Filled(Protocol):
    """What actors fill, as far as it tells whether there is room."""

    @property
    def config(self) -> ExperienceConfig:
        """As it is configured."""

    @property
    def learner(self) -> Wakeup:
        """Rings the learner's process."""

    @property
    def ahead(self) -> int:
        """Whole rollouts that may wait to be taken."""

    @property
    def rollout(self) -> int:
        """Steps of a rollout; 0: none is taken, but steps are drawn."""

    @property
    def counters(self) -> Integers:
        """[actors, words]: those of each ring."""

    @property
    def rings(self) -> Sequence[ExperienceRing]:
        """By actor."""


class Room:
    """One ring of an actor: whether it may write another turn, where the user lets it wait.

    It may while all actors together are within `capacity` steps of an off-policy learner, and while
    there is not yet a whole rollout for an on-policy learner to take; two, where seats are dealt.
    And it may, overwriting what is oldest, once the learner has been waited for as long as `limit`
    and has taken nothing: until it takes something again.
    """

    def __init__(self, experience: Filled, actor: int, wakeup: Wakeup) -> None:
        self.wakeup = wakeup
        """Rings this actor's process once it may go on."""
        self.config, self.learner = experience.config, experience.learner
        self.process = LearnerProcess([self])
        self.late_since: float | None = None
        """When it was found to have no room, or the learner last took something after that."""
        self.left_behind = False
        """Whether its learner is waited for no more."""
        self._rollout = experience.ahead * experience.rollout
        self._all, self._counters = experience.counters, experience.rings[actor].counters
        ring = experience.rings[actor]
        self._queue, self._numbers = ring.shared["queue"], ring.shared["numbers"]
        self._likely = ring.likely
        self._progress = self._process_progress = 0
        self.excuses = True
        """Whether it excuses what was written before it began, or while there was no learner; where
        the order of updates and turns is fixed, a successor must wait just where another would."""
        self._excused: int | None = None
        """What was written before this actor began to look; None: it has not looked yet."""

    def has_room(self) -> bool:
        """Whether the actor may write another turn; if not, it will be rung once it may."""
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
            self.learner.ring()  # it may be asleep, waiting for more than there is place for
        return False

    def progress(self) -> int:
        """Grows whenever the learner has taken something, or consumed it."""
        if self._rollout:
            return int(total(self._all, TAKEN_STEPS))
        return load(self._counters, CONSUMED)

    @property
    def limit(self) -> float:
        """Seconds that a learner is waited for which takes nothing."""
        usual = load(self._counters, UPDATE_TIME) / 1e6
        if usual <= 0:  # it has not made an update yet
            return self.config.wait_limit
        return min(max(UPDATES * usual, LEAST), self.config.wait_limit)

    @property
    def at_first_update(self) -> int:
        """The id of the learner's process while it makes its first update; 0: it does not."""
        return max(-load(self._counters, UPDATE_TIME), 0)

    def leave_behind(self) -> None:
        """Wait no more for the learner, until it takes something.

        Where nothing was taken of any other policy of its process either, none of them is waited
        for: if the process is stopped, the game stands still once, and not for each policy anew.
        """
        if self.process.progress() == self._process_progress:
            self.process.stand_still()
        self.mark()
        self.left_behind = True

    def mark(self) -> None:
        """Note how far the learner is."""
        self._progress, self.late_since = self.progress(), None

    def _needed(self) -> int:
        """The steps that the learner must be through with before there is room; 0: there is."""
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
    """The rooms of an actor that one learner process makes, as far as waiting for it goes."""

    def __init__(self, rooms: list[Room]) -> None:
        self.rooms = rooms
        self.stands_still = False
        """Whether it has taken nothing of any policy for as long as one of them was waited for."""
        self.computed_at = -math.inf
        """When it was last seen to compute at a first update."""
        self._computed: dict[ProcessId, float] = {}
        """Seconds of processor time at the last look, by the processes that were looked at."""

    def look(self, look: Look) -> bool:
        """Note whether it has computed since the last look, or would if it had a processor.

        Returns whether it makes the first update of any of its policies. The processes that say so
        may be several: one that died during such an update goes on saying so, until its successor
        comes to that policy. An id stands for the process that had it when it was first seen.
        """
        ids = {room.at_first_update for room in self.rooms} - {0}
        known = {pid: (pid, began) for pid, began in self._computed}
        processes = [known.get(pid) or (pid, started(pid)) for pid in ids]
        before = self._computed
        self._computed = {process: before.get(process, 0.0) for process in processes}
        for process in processes:
            activity = look(*process) if process[1] else None  # else it was gone already
            if activity and (activity.runnable or activity.cpu > self._computed[process]):
                self.computed_at = time.monotonic()
                self._computed[process] = activity.cpu
        return bool(ids)

    def progress(self) -> int:
        """Changes whenever the process has taken something."""
        return sum(room.progress() for room in self.rooms)

    def stand_still(self) -> None:
        """Wait for none of its policies, until it takes something of one."""
        self.stands_still = True
        for room in self.rooms:
            room.mark()


class Rooms:
    """All rooms of one actor."""

    def __init__(
        self, rooms: Sequence[Room], exact: bool = False, look: Look = Activity.of
    ) -> None:
        """Gather them.

        Args:
            rooms: of one actor.
            exact: whether a run is repeated turn by turn, so that none excuses.
            look: tells what the process of a learner does.
        """
        self._rooms, self._look = tuple(rooms), look
        processes: dict[Wakeup, LearnerProcess] = {}
        for room in self._rooms:
            room.excuses = not exact
            room.process = processes.setdefault(room.learner, LearnerProcess([]))
            room.process.rooms.append(room)
        self._processes = tuple(processes.values())

    def warm_up(self) -> None:
        """Compile what is called only once there is no room."""
        for room in self._rooms:
            room.has_room()
        for process in self._processes:
            process.progress()

    def has_room(self) -> bool:
        """Whether the actor may write another turn everywhere; if not, it will be rung."""
        return all(room.has_room() for room in self._rooms)

    def wait(self, timeout: float, interrupted: Callable[[], bool]) -> int | None:
        """Sleep until there is room everywhere, for `timeout` seconds at most.

        Returns the learners that were left behind, because they took nothing for their limit; None:
        there was no learner to wait for.
        """
        late = self._late()  # of all of them, so that the time of each begins now
        if not late:
            return None
        until = time.monotonic() + timeout
        while True:
            looks = self._look_at_first_updates(late)
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

    def _look_at_first_updates(self, late: Sequence[tuple[Room, float]]) -> bool:
        """Look at the processes that are late because of a first update; whether there are any."""
        processes = {room.process for room, _ in late}
        return sum(process.look(self._look) for process in processes) > 0  # each is looked at

    def _late(self) -> list[tuple[Room, float]]:
        """The rooms without room, with the time since when."""
        late = [room for room in self._rooms if not room.has_room()]
        return [(room, room.late_since) for room in late if room.late_since is not None]


def _end(room: Room, since: float) -> float:
    """Until when a learner is waited for that has taken nothing since a time."""
    return max(since, room.process.computed_at) + room.limit


@njit(cache=True)
def _has_room_for_rollout(
    counters: Integers, own: Integers, queue: Integers, numbers: Integers, likely: int, rollout: int
) -> bool:
    return untaken(counters) < rollout and not is_tight(own, queue, numbers, likely)
