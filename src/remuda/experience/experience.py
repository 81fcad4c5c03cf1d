"""One policy's experience: a ring for each actor, and the waiting of learner and actors.

Each ring has one writer. Counters of all rings are in one shared array: the learner sleeps until
there is enough in all of them together, and an actor with `wait` looks at all of them too. So an
actor that dies takes only its own share along: the others make up for it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence

from remuda.checkpoint.fitting import branch
from remuda.config import ExperienceConfig
from remuda.errors import CheckpointError
from remuda.experience import ring as word
from remuda.experience.ring import ExperienceRing, StreamShape, has_steps, total, untaken
from remuda.experience.ring_block import Block
from remuda.experience.store import HeldSteps
from remuda.memory.atomic import exchange, fence_full, load, store
from remuda.memory.shared import Arena
from remuda.memory.waiting import Wakeup
from remuda.types import Integers, State

NEVER = 2**62  # more segments, and more steps, than there will ever be
# closed segments before their mean length is known: in all, and for each stream
FEWEST, FEWEST_OF_STREAM = 100, 4
UPDATES = 2.0  # a learner is waited for as long as its mean update takes, times this
KEPT = 0.8  # weight of past updates in the running mean of an update's duration
# most steps of a stream that a turn commits: the previous one, and one that ends here
STEPS_PER_TURN = 2


class Experience:
    """One policy's experience: an `ExperienceStore` in shared memory.

    A process that dies, at any instruction, leaves counters that the others can continue with.
    """

    def __init__(
        self,
        shape: StreamShape,
        config: ExperienceConfig,
        num_streams: Sequence[int],  # copies and seats that the policy plays at once, by actor
        learner: Wakeup,  # rings its process
        actors: Sequence[Wakeup],  # each rings its process
        rollout: int = 0,  # steps that a learner takes at once; 0: it samples
        block: Block | None = None,  # None: a new one, of its rings alone
        index: int = 0,  # of its ring in the block
        likely: Sequence[int] | None = None,  # usual open segments by actor; None: all streams
        ahead: int = 1,  # rollouts that an actor plays before it waits
        keeps: bool = False,  # keep the capacity besides what rollouts need
        arena: Arena | None = None,
    ) -> None:
        self.shape, self.config, self.rollout = shape, config, rollout
        self.num_streams = sum(num_streams)
        self.learner, self.actors = learner, tuple(actors)
        # The learner's own: when the update began that it is at, and what one takes as a rule.
        self._began: float | None = None
        self._usual: float | None = None
        self._excused: int | None = None  # the value in `EXCUSED`; None: it has just begun
        if block is None:
            segments = ring_segments(config, num_streams, rollout, keeps)
            block = Block(shape, 1, config.segment_length, segments, arena)
        self.block, self.index, self.ahead = block, index, ahead
        self._keeps = keeps or not rollout
        # steps that a resumed run counts and that it restored neither closed nor open; set before
        # any role starts, and the same for all of them
        self._unclosed = 0
        self._row = block.row(index)
        sparse, each = arena is not None and arena.sparse, likely or num_streams
        self.rings = tuple(
            ExperienceRing(shape, config, streams, block.row(index, actor), actor, usual, sparse)
            for actor, (streams, usual) in enumerate(zip(num_streams, each, strict=True))
        )

    @property
    def counters(self) -> Integers:
        counters: Integers = self._row["counters"]
        return counters

    @property
    def written(self) -> int:
        return total(self.counters, word.WRITTEN)

    @property
    def overwritten(self) -> int:
        return total(self.counters, word.OVERWRITTEN)

    @property
    def lost(self) -> int:
        return total(self.counters, word.LOST)

    @property
    def fill(self) -> float:
        if self.rollout:
            return min(self.untaken / self.rollout, 1.0)
        places = sum(ring.num_segments * ring.segment_length for ring in self.rings)
        return min((self.written - self.overwritten) / places, 1.0)

    @property
    def held(self) -> HeldSteps | None:
        """Return how many steps fit, by the mean length of segments; None: not yet known.

        The first segments that close are the shortest of those that the streams opened, so each
        stream must have closed several.
        """
        closed = total(self.counters, word.CLOSED)
        if closed < max(FEWEST, FEWEST_OF_STREAM * self.num_streams):
            return None
        mean = total(self.counters, word.CLOSED_STEPS) / closed
        segments = sum(ring.num_segments for ring in self.rings)
        advised = max(math.ceil(mean), (self.config.burn_in or 0) + 1)

        def fits(segments: int, wanted: int, is_rollout: bool) -> HeldSteps:
            steps, length = int(max(segments, 1) * mean), self.config.segment_length
            return HeldSteps(steps, wanted, is_rollout, mean, length, advised)

        found = []
        if self._keeps:
            found.append(fits(segments, self.config.capacity, False))
        if self.rollout:  # it is taken before the next turn may overwrite it (`is_tight`)
            segments -= 3 * sum(ring.likely for ring in self.rings)
            found.append(fits(segments, self.rollout, True))
        return min(found, key=lambda held: held.share)

    @property
    def passed(self) -> int | None:
        if any(load(ring.counters, word.TAKEN) == NEVER for ring in self.rings):
            return None
        return self._unclosed + total(self.counters, word.TAKEN_STEPS)

    @property
    def is_urgent(self) -> bool:
        full = self.untaken >= self.ahead * self.rollout
        return full or (self.untaken > 0 and any(ring.tight for ring in self.rings))

    @property
    def closed(self) -> list[int]:
        return [load(ring.counters, word.CLOSED) for ring in self.rings]

    @property
    def untaken(self) -> int:
        return max(untaken(self.counters), 0)

    @property
    def may_wait(self) -> bool:
        return self.config.on_full == "wait"

    # The learner's side.

    def warm_up(self) -> None:
        has_steps(self.counters, word.WRITTEN, 0)
        untaken(self.counters)

    def has(self, steps: int, begins: bool = True) -> bool:
        found: bool = has_steps(self.counters, word.WRITTEN, steps)
        if begins and found and self.may_wait and self._began is None:
            self._begin_update()
        return found

    def has_rollout(self, early: bool = False) -> bool:
        """Return whether there is a rollout to take; if not, the learner will be rung for it.

        A writer without room rings too. With `early`, the learner is rung before places run out,
        because no writer checks; see `_reachable`.
        """
        self._end_update()
        wanted = total(self.counters, word.TAKEN_STEPS) + (
            self._reachable() if early and not self.may_wait else self.rollout
        )
        if any(ring.tight for ring in self.rings):
            return True
        return has_steps(self.counters, word.CLOSED_STEPS, wanted) or any(
            ring.tight for ring in self.rings
        )

    def consume(self, steps: int) -> None:
        self._end_update()
        moved = self._excuse(steps)
        for ring in self.rings:
            store(ring.counters, word.CONSUMED, steps)
        # Where the excused steps changed, so did the marks that sleeping actors wait for.
        self._let_in(NEVER if moved else steps)

    def _excuse(self, steps: int) -> bool:
        """Before publishing `steps` consumed, excuse what was written while no actor waited.

        Actors that wait are never ahead by more than their last turn. If they are further ahead,
        one of them did not wait: there was no learner, or it took nothing. All of that is excused
        until the learner has caught up. The learner publishes it for all actors alike, because an
        actor may have been asleep or stopped. A learner that dies leaves the word; its successor
        states it again.
        """
        ahead = self.written - self.config.capacity - steps
        before, slack = self._excused, STEPS_PER_TURN * self.num_streams
        if before is None or ahead <= 0 or ahead > before + slack:
            self._excused = max(ahead, 0)
            for ring in self.rings:
                store(ring.counters, word.EXCUSED, self._excused)
        return self._excused != before

    def take(self, actor: int, segments: int, steps: int) -> None:
        """Publish to an actor that its first closed segments, and their steps, are copied."""
        if self.may_wait:
            self._begin_update()
        self._pass(actor, segments, steps)

    def _pass(self, actor: int, segments: int, steps: int) -> None:
        counters = self.rings[actor].counters
        store(counters, word.TAKEN, segments)
        store(counters, word.TAKEN_STEPS, steps)
        self._let_in(NEVER)

    def release(self) -> None:
        for actor in range(len(self.rings)):
            self._pass(actor, NEVER, NEVER // len(self.rings))
        self.consume(NEVER)

    def skip(self, closed: Sequence[int] | None = None) -> None:
        """Take all that is closed, unread; `closed`: by ring, only so many segments."""
        for ring, segments in zip(self.rings, closed or self.closed, strict=True):
            self._pass(ring.actor, *ring.ends_at(segments))

    def take_up(self) -> None:
        """As a new learner, restate what its predecessor may have left half published.

        It may have died between two words that belong together, or after it took no more. Steps of
        segments that it had taken, and had not yet published, would be waited for forever.
        """
        if any(load(ring.counters, word.TAKEN) == NEVER for ring in self.rings):
            self.skip()  # from now on it takes what is closed
        for ring in self.rings:
            if load(ring.counters, word.CONSUMED) == NEVER:
                store(ring.counters, word.CONSUMED, self.written)
            taken = load(ring.counters, word.TAKEN)
            segments, steps = ring.ends_at(taken)
            if segments == taken:
                store(ring.counters, word.TAKEN_STEPS, steps)
            elif load(ring.counters, word.TAKEN_STEPS) > steps:
                self._pass(ring.actor, segments, steps)  # it died while it began to take again

    def _begin_update(self) -> None:
        self._began = time.monotonic()
        if self._usual is None:
            for ring in self.rings:
                store(ring.counters, word.UPDATE_TIME, -os.getpid())

    def _end_update(self) -> None:
        """Add the duration of the update that ends to the mean that bounds waiting."""
        if self._began is None:
            return
        # A learner that was stopped in the middle of an update must not be waited for longer after.
        took = min(time.monotonic() - self._began, self.config.wait_limit / UPDATES)
        self._began = None
        self._usual = took if self._usual is None else KEPT * self._usual + (1.0 - KEPT) * took
        for ring in self.rings:
            store(ring.counters, word.UPDATE_TIME, max(int(self._usual * 1e6), 1))

    def _reachable(self) -> int:
        """Return the steps of a rollout, or fewer before actors overwrite segments."""
        return min(self.rollout, max(sum(ring.reachable for ring in self.rings), 1))

    def let_in(self) -> None:
        self._let_in(NEVER)

    def _let_in(self, steps: int) -> None:
        """Ring every actor that wanted to be rung at `steps` or fewer."""
        fence_full()
        for ring, wakeup in zip(self.rings, self.actors, strict=True):
            wanted = load(ring.counters, word.ROOM_WANTED)
            if 0 < wanted <= steps and exchange(ring.counters, word.ROOM_WANTED, 0):
                wakeup.ring()

    # For checkpoints.

    def state(self) -> State:
        return {str(actor): ring.state() for actor, ring in enumerate(self.rings)}

    def restore(self, state: State | None, written: int) -> None:
        if state is not None and len(state) != len(self.rings):
            actors = f"{len(state)} actor" + ("s" if len(state) > 1 else "")
            raise CheckpointError(
                f"the checkpoint holds the experience of {actors}, and actor.processes makes "
                f"{len(self.rings)} now; resume with --schedule async --actor.processes "
                f"{len(state)}, or collect afresh with --checkpoint.replay false"
            )
        # Steps written before those that the rings hold are counted in the first.
        for actor in reversed(range(len(self.rings))):
            saved = None if state is None else branch(state, str(actor))
            ring = self.rings[actor]
            ring.restore(saved, 0 if actor else written)
            written -= load(ring.counters, word.WRITTEN)
        closed = total(self.counters, word.CLOSED_STEPS)
        closed += sum(ring.open_steps for ring in self.rings)
        self._unclosed = max(self.written - closed, 0)
        # Until its learner publishes its progress, which an actor then excuses.
        for ring in self.rings:
            store(ring.counters, word.CONSUMED, self.written)


def ring_segments(
    config: ExperienceConfig, num_streams: Sequence[int], rollout: int, keeps: bool
) -> list[int]:
    """Return the segments of each actor's ring for fixed seats; arguments as in `Experience`.

    Every stream keeps one segment open; as many again can be read, or an actor's share of two
    rollouts: so rings grow with the streams, and not with the actors.
    """
    found, total = [], sum(num_streams)
    for streams in num_streams:
        share = -(-config.capacity * streams // total)
        kept = share if keeps or not rollout else 0
        own = -(-rollout * streams // total)
        found.append(segments_for(kept, config.segment_length, streams, streams, own))
    return found


def segments_for(steps: int, length: int, most_open: int, likely: int, rollout: int) -> int:
    """Return the segments of a ring for so many kept steps, or rollouts, and open segments."""
    kept = -(-steps // length)
    if rollout:
        return kept + most_open + 3 * likely + 3 * -(-rollout // length)
    return max(kept, most_open + likely)
