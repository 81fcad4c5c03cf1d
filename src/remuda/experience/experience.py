"""All that one policy lives through: a ring for each actor, and who waits for whom.

Each ring has one writer, so no two actors meet in one. Their words stand in one shared array, a row
for each ring; the learner sleeps until there is enough in all of them together, and an actor that
the user lets wait looks at all of them too. So an actor that dies takes nothing along but its own
share: the others fill up what it leaves.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence

import numpy as np

from remuda.checkpoint.fitting import branch
from remuda.config import ExperienceConfig
from remuda.errors import CheckpointError
from remuda.experience.block import Block, BlockRow
from remuda.experience.ring import (
    CLOSED,
    CLOSED_STEPS,
    CONSUMED,
    COUNTERS,
    EXCUSED,
    LOST,
    OVERWRITTEN,
    ROOM_WANTED,
    TAKEN,
    TAKEN_STEPS,
    UPDATE_TIME,
    WRITTEN,
    ExperienceRing,
    StreamShape,
)
from remuda.experience.room import UPDATES, Room
from remuda.experience.store import Held
from remuda.experience.words import has_steps, total, untaken
from remuda.memory.atomic import exchange, fence_full, load, store
from remuda.memory.shared import Arena, SharedArrays
from remuda.memory.waiting import Wakeup
from remuda.types import Integers, State

NEVER = 2**62
"""More segments, and more steps, than there will ever be."""
FEWEST, FEWEST_OF_STREAM = 100, 4
"""Closed segments from which on their mean length is known: in all, and for each stream."""
KEPT = 0.8
"""The share of what an update took as a rule that is kept when another one is counted in."""
STEPS_PER_TURN = 2
"""The most steps of a stream that a turn commits: the one before it, and one that ends here."""


class Experience:
    """One policy's experience: written by one or more actors, read by one learner.

    What it guarantees, besides what each ring does:

    1. A learner that asks for a number of steps is woken once they are there, by any writer,
       without polling.
    2. An actor waits only where the user set `wait`, only for a learner that makes progress, and is
       rung once it may go on (`remuda.experience.room`).
    3. A process that dies, at any instruction, leaves words that the others can go on with.
    """

    def __init__(
        self,
        shape: StreamShape,
        config: ExperienceConfig,
        num_streams: Sequence[int],
        learner: Wakeup,
        actors: Sequence[Wakeup],
        rollout: int = 0,
        block: Block | None = None,
        index: int = 0,
        likely: Sequence[int] | None = None,
        ahead: int = 1,
        keeps: bool = False,
        arena: Arena | None = None,
    ) -> None:
        """Allocate it, if it is not part of a block.

        Args:
            shape: what a step looks like.
            config: capacity, segments, and whether to overwrite or wait.
            num_streams: copies and seats that the policy plays at once, by actor.
            learner: rings the learner's process.
            actors: each rings an actor's process.
            rollout: steps that a learner takes at once; 0: it draws them, and takes none.
            block: where its rings stand among those of other policies.
            index: its ring in the block.
            likely: by actor, segments that are open at a time, or begun in a turn, unless by a rare
                chance, which may cost steps; None: one for each stream.
            ahead: rollouts that an actor which may wait plays before it does.
            keeps: whether its capacity is kept, besides what rollouts need.
            arena: where its memory is cut from; None: each ring has some of its own.
        """
        self.shape, self.config, self.rollout = shape, config, rollout
        self.num_streams = sum(num_streams)
        self.learner, self._actors = learner, tuple(actors)
        # The learner's own: when the update began that it is at, and what one takes as a rule.
        self._began: float | None = None
        self._usual: float | None = None
        self._excused: int | None = None  # as it stands in `EXCUSED`; None: it has just begun
        self.block, self.index, self.ahead = block, index, ahead
        self._keeps = keeps or not rollout
        self._unclosed = 0
        """Steps that a resumed run counts, and that it brought along neither closed nor open. Set
        before any role begins, and the same for all of them."""
        self._shared: SharedArrays | BlockRow
        if block is not None:
            self._shared = block.row(index)
            rows = [block.row(index, actor) for actor in range(block.num_actors)]
            most = num_streams if likely is None else likely
            self.rings: tuple[ExperienceRing, ...] = tuple(
                ExperienceRing(
                    shape, config, streams, len(row["sequence"]), row, actor, row, own, arena
                )
                for actor, (row, streams, own) in enumerate(
                    zip(rows, num_streams, most, strict=True)
                )
            )
            return
        words = ((len(num_streams), COUNTERS), np.int64)
        self._shared = counters = SharedArrays({"counters": words}, arena)
        counts = ring_segments(config, num_streams, rollout, keeps)
        self.rings = tuple(
            ExperienceRing(shape, config, streams, segments, counters, actor, arena=arena)
            for actor, (streams, segments) in enumerate(zip(num_streams, counts, strict=True))
        )

    @property
    def counters(self) -> Integers:
        """The words of every ring, [num_actors, COUNTERS]."""
        counters: Integers = self._shared["counters"]
        return counters

    @property
    def written(self) -> int:
        """Steps committed since the run began."""
        return total(self.counters, WRITTEN)

    @property
    def overwritten(self) -> int:
        """Committed steps that made room for newer ones."""
        return total(self.counters, OVERWRITTEN)

    @property
    def lost(self) -> int:
        """Steps that a resumed run did not bring along; a learner waits for new ones."""
        return total(self.counters, LOST)

    @property
    def fill(self) -> float:
        """The share of the capacity, or of a rollout, that holds steps to train on."""
        if self.rollout:
            return min(self.untaken / self.rollout, 1.0)
        places = sum(ring.num_segments * ring.segment_length for ring in self.rings)
        return min((self.written - self.overwritten) / places, 1.0)

    @property
    def held(self) -> Held | None:
        """How many steps fit, by the mean length of segments; None: too few were closed to tell.

        The first segments that close are the shortest of those that the streams opened. So each
        stream must have closed several before their mean says anything.
        """
        closed = total(self.counters, CLOSED)
        if closed < max(FEWEST, FEWEST_OF_STREAM * self.num_streams):
            return None
        mean = total(self.counters, CLOSED_STEPS) / closed
        segments = sum(ring.num_segments for ring in self.rings)
        advised = max(math.ceil(mean), (self.config.burn_in or 0) + 1)

        def fits(segments: int, wanted: int, is_rollout: bool) -> Held:
            steps, length = int(max(segments, 1) * mean), self.config.segment_length
            return Held(steps, wanted, is_rollout, mean, length, advised)

        found = []
        if self._keeps:
            found.append(fits(segments, self.config.capacity, False))
        if self.rollout:  # it is taken before the next turn may overwrite it (`is_tight`)
            segments -= 3 * sum(ring.likely for ring in self.rings)
            found.append(fits(segments, self.rollout, True))
        return min(found, key=lambda held: held.share)

    @property
    def passed(self) -> int | None:
        """Steps that wait for the learner no more, trained on or not; None: it was released.

        All others are in closed segments that it may take, or in open ones.
        """
        if any(load(ring.counters, TAKEN) == NEVER for ring in self.rings):
            return None
        return self._unclosed + total(self.counters, TAKEN_STEPS)

    @property
    def is_urgent(self) -> bool:
        """Whether an actor that may wait does so now, for a rollout to be taken."""
        full = self.untaken >= self.ahead * self.rollout
        return full or (self.untaken > 0 and any(ring.tight for ring in self.rings))

    @property
    def closed(self) -> list[int]:
        """By ring, the segments that were closed since the run began."""
        return [load(ring.counters, CLOSED) for ring in self.rings]

    @property
    def untaken(self) -> int:
        """Steps in closed segments that no on-policy learner took yet, and that one may."""
        return max(untaken(self.counters), 0)

    @property
    def may_wait(self) -> bool:
        """Whether the user lets an actor wait for the learner."""
        return self.config.on_full == "wait"

    # The learner's side.

    def warm_up(self) -> None:
        """Compile what a learner sleeps by; no wish is stated."""
        has_steps(self.counters, WRITTEN, 0)
        untaken(self.counters)

    def has(self, steps: int, begins: bool = True) -> bool:
        """Whether `steps` have been committed; if not, the learner will be rung when they are.

        Args:
            steps: at which its next update is due.
            begins: whether that update begins if they are there: actors wait by how long one takes.
        """
        found: bool = has_steps(self.counters, WRITTEN, steps)
        if begins and found and self.may_wait and self._began is None:
            self._begin_update()
        return found

    def has_rollout(self, early: bool = False) -> bool:
        """Whether there is a rollout to take; if not, the learner will be rung when there is.

        Where episodes are short a rollout is taken early: a writer without room rings too.

        Args:
            early: be rung before places run out, because no writer looks; see `_reachable`.
        """
        self._end_update()
        wanted = total(self.counters, TAKEN_STEPS) + (
            self._reachable() if early and not self.may_wait else self.rollout
        )
        if any(ring.tight for ring in self.rings):
            return True
        return has_steps(self.counters, CLOSED_STEPS, wanted) or any(
            ring.tight for ring in self.rings
        )

    def consume(self, steps: int) -> None:
        """Tell waiting actors that the learner has had its share of the first `steps` steps."""
        self._end_update()
        moved = self._excuse(steps)
        for ring in self.rings:
            store(ring.counters, CONSUMED, steps)
        # Where the excused steps changed, so did the marks that sleeping actors wait for.
        self._let_in(NEVER if moved else steps)

    def _excuse(self, steps: int) -> bool:
        """Before `steps` are told as consumed: excuse what was written while no actor waited.

        Actors that wait are never ahead by more than their last turn. So where they are, one of
        them did not wait: there was no learner, or it took nothing. All of that is excused until
        the learner has caught up, or it would have to make up for it before the game goes on. The
        learner says so, for all actors alike, because an actor may have been asleep or stopped. A
        learner that dies leaves the word as it is; its successor begins by stating it anew.
        """
        ahead = self.written - self.config.capacity - steps
        before, slack = self._excused, STEPS_PER_TURN * self.num_streams
        if before is None or ahead <= 0 or ahead > before + slack:
            self._excused = max(ahead, 0)
            for ring in self.rings:
                store(ring.counters, EXCUSED, self._excused)
        return self._excused != before

    def take(self, actor: int, segments: int, steps: int) -> None:
        """Tell an actor that the first closed segments, and their steps, are copied."""
        if self.may_wait:
            self._begin_update()
        self._pass(actor, segments, steps)

    def _pass(self, actor: int, segments: int, steps: int) -> None:
        counters = self.rings[actor].counters
        store(counters, TAKEN, segments)
        store(counters, TAKEN_STEPS, steps)
        self._let_in(NEVER)

    def release(self) -> None:
        """Take nothing any more, so that no writer ever waits for this learner."""
        for actor in range(len(self.rings)):
            self._pass(actor, NEVER, NEVER // len(self.rings))
        self.consume(NEVER)

    def skip(self, closed: Sequence[int] | None = None) -> None:
        """Take all that is closed, unread: it is not this learner's.

        Args:
            closed: by ring, the segments that had been closed when this was so; None: it is now.
        """
        for ring, segments in zip(self.rings, closed or self.closed, strict=True):
            self._pass(ring.actor, *ring.ends_at(segments))

    def take_up(self) -> None:
        """For a new learner: state anew what the one before it may have left half said.

        It may have died between two words that belong together, or after it took no more. Where it
        had taken segments and not yet said how many steps are in them, those would be waited for,
        and found nowhere.
        """
        if any(load(ring.counters, TAKEN) == NEVER for ring in self.rings):
            self.skip()  # from now on it takes what is closed
        for ring in self.rings:
            if load(ring.counters, CONSUMED) == NEVER:
                store(ring.counters, CONSUMED, self.written)
            taken = load(ring.counters, TAKEN)
            segments, steps = ring.ends_at(taken)
            if segments == taken:
                store(ring.counters, TAKEN_STEPS, steps)
            elif load(ring.counters, TAKEN_STEPS) > steps:  # it died while it began to take again
                self._pass(ring.actor, segments, steps)

    def _begin_update(self) -> None:
        """Note when it began. Of the first one, actors cannot know how long it will take."""
        self._began = time.monotonic()
        if self._usual is None:
            for ring in self.rings:
                store(ring.counters, UPDATE_TIME, -os.getpid())

    def _end_update(self) -> None:
        """Count what the update took that ends now, if one does: actors wait by that."""
        if self._began is None:
            return
        # A learner that was stopped in the middle of an update must not be waited for longer after.
        took = min(time.monotonic() - self._began, self.config.wait_limit / UPDATES)
        self._began = None
        self._usual = took if self._usual is None else KEPT * self._usual + (1.0 - KEPT) * took
        for ring in self.rings:
            store(ring.counters, UPDATE_TIME, max(int(self._usual * 1e6), 1))

    def _reachable(self) -> int:
        """The steps of a rollout; fewer, where actors overwrite segments that are too short for it.

        An actor that may wait rings its learner before it runs out of places. One that never waits
        does not look, so the learner must not sleep until places have been written over.
        """
        return min(self.rollout, max(sum(ring.reachable for ring in self.rings), 1))

    def let_in(self) -> None:
        """Ring every actor that waits, after words of the learner's were written in its place."""
        self._let_in(NEVER)

    def _let_in(self, steps: int) -> None:
        """Ring every actor that wanted to be rung at so many steps, or at fewer."""
        fence_full()
        for ring, wakeup in zip(self.rings, self._actors, strict=True):
            counters = ring.counters
            if 0 < load(counters, ROOM_WANTED) <= steps and exchange(counters, ROOM_WANTED, 0):
                wakeup.ring()

    def room(self, actor: int) -> Room:
        """For an actor: whether it may write."""
        return Room(self, actor, self._actors[actor])

    # For checkpoints.

    def state(self) -> State:
        """A copy of all that is committed, taken while the writers may go on."""
        return {str(actor): ring.state() for actor, ring in enumerate(self.rings)}

    def restore(self, state: State | None, written: int) -> None:
        """Hold what was held before, in a run that is resumed and has not begun yet.

        Args:
            state: what `state` returned, or None: the steps were not saved.
            written: steps committed until then.

        Raises:
            CheckpointError: the steps are of another shape, or of another number of actors.
        """
        if state is not None and len(state) != len(self.rings):
            actors = f"{len(state)} actor" + ("s" if len(state) > 1 else "")
            raise CheckpointError(
                f"the checkpoint holds the experience of {actors}, and actor.processes makes "
                f"{len(self.rings)} now; resume with --schedule async --actor.processes "
                f"{len(state)}, or collect afresh with --checkpoint.replay false"
            )
        # What the rings hold is theirs; what was written before is counted in the first.
        for actor in reversed(range(len(self.rings))):
            saved = None if state is None else branch(state, str(actor))
            ring = self.rings[actor]
            ring.restore(saved, 0 if actor else written)
            written -= load(ring.counters, WRITTEN)
        closed = total(self.counters, CLOSED_STEPS) + sum(ring.open_steps for ring in self.rings)
        self._unclosed = max(self.written - closed, 0)
        # Until its learner tells how far it is, which an actor then excuses.
        for ring in self.rings:
            store(ring.counters, CONSUMED, self.written)


def ring_segments(
    config: ExperienceConfig, num_streams: Sequence[int], rollout: int, keeps: bool
) -> list[int]:
    """Segments of each actor's ring, where every agent keeps its policy; as in `Experience`.

    Every stream keeps one segment open; as many again are there to be read, or an actor's share of
    two rollouts, so that all rings together grow with the streams, not with the actors besides.
    While others are away, those that are left fill their places, and rollouts are taken early.
    """
    found, total = [], sum(num_streams)
    for streams in num_streams:
        share = -(-config.capacity * streams // total)
        kept = share if keeps or not rollout else 0
        own = -(-rollout * streams // total)
        found.append(segments_for(kept, config.segment_length, streams, streams, own))
    return found


def segments_for(steps: int, length: int, most_open: int, likely: int, rollout: int) -> int:
    """Segments of a ring that is to hold so many steps, or whole rollouts, while it is written.

    Args:
        steps: that are kept to be drawn from.
        length: of a segment.
        most_open: segments that may be open at a time.
        likely: those that are, as a rule.
        rollout: its steps; 0: the learner takes none.
    """
    kept = -(-steps // length)
    if rollout:
        return kept + most_open + 3 * likely + 3 * -(-rollout // length)
    return max(kept, most_open + likely)
