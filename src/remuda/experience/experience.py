"""One policy's experience: a ring for each actor, and the counters that processes wait for.

Each ring has one writer. A stream is one seat in one environment copy. The counters of all rings
are in one shared array, because learner and actors wait for sums over all rings. If an actor dies,
the other actors still raise these sums. `word.NAME` is the index of a counter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from remuda.config import ExperienceConfig
from remuda.errors import CheckpointError
from remuda.experience import ring as word
from remuda.experience.ring import ExperienceRing, StreamShape, has_steps, total, untaken
from remuda.experience.ring_block import Block
from remuda.system.checkpoint.fitting import branch
from remuda.system.memory.atomic import exchange, fence_full, load, store
from remuda.system.memory.shared import Arena
from remuda.system.memory.waiting import Wakeup
from remuda.types import Integers, State

NEVER = 2**62  # a number of segments or steps that no run reaches
UPDATES = 2.0  # actors wait for a learner at most this many times its mean update duration
KEPT = 0.8  # weight of past updates in the running mean of an update's duration
# maximum steps that a turn commits per stream: the previous step, and a step that ends an episode
STEPS_PER_TURN = 2


class Experience:
    """An `ExperienceStore` in shared memory; others can continue if a process dies anywhere."""

    def __init__(
        self,
        shape: StreamShape,
        config: ExperienceConfig,
        num_streams: Sequence[int],  # number of streams that the policy may play, by actor
        learner: Wakeup,  # to wake the learner's process
        actors: Sequence[Wakeup],  # to wake each actor's process
        rollout: int = 0,  # steps in a rollout; 0 if the learner samples steps instead
        block: Block | None = None,  # memory of the rings; None: allocate it for this policy only
        index: int = 0,  # the policy's row in the block
        likely: Sequence[int] | None = None,  # typical open segments by actor; None: num_streams
        ahead: int = 1,  # rollouts that actors may write before they wait
        keeps: bool = False,  # hold `capacity` steps for replay in addition to the rollouts
        arena: Arena | None = None,
        lead: int | None = None,  # steps that waiting actors may be ahead; None: `capacity`
    ) -> None:
        self.lead = config.capacity if lead is None else lead
        self.shape, self.config, self.rollout = shape, config, rollout
        self.num_streams = sum(num_streams)
        self.learner, self.actors = learner, tuple(actors)
        # Used only by the learner: start of the current update, mean duration of an update.
        self._began: float | None = None
        self._usual: float | None = None
        self._excused: int | None = None  # last value stored in `EXCUSED`; None: not stored yet
        if block is None:
            segments = ring_segments(config, num_streams, rollout, keeps)
            block = Block(shape, 1, config.segment_length, segments, arena)
        self.block, self.index, self.ahead = block, index, ahead
        # steps that a resumed run counts as written, but not as part of any segment; set before any
        # process starts, so all processes have the same value
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

    def has_rollout(self) -> bool:
        """Return whether a rollout can be taken; if not, the learner is woken when it can.

        An actor that has to wait wakes the learner too.
        """
        self._end_update()
        wanted = total(self.counters, word.TAKEN_STEPS) + self.rollout
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
        # If the excused steps changed, wake all actors, because their thresholds changed too.
        self._let_in(NEVER if moved else steps)

    def _excuse(self, steps: int) -> bool:
        """Publish how many steps actors wrote without waiting; return whether the number changed.

        Call this before `CONSUMED` is set to `steps`. Actors that wait exceed their lead by at
        most their last turn. If they exceed it by more, an actor did not wait, because the learner
        was dead or made no progress. Actors ignore this excess until the learner has caught up. The
        learner publishes the excess, because an actor may have been asleep when it arose.
        """
        ahead = self.written - self.lead - steps
        before, slack = self._excused, STEPS_PER_TURN * self.num_streams
        if before is None or ahead <= 0 or ahead > before + slack:
            self._excused = max(ahead, 0)
            for ring in self.rings:
                store(ring.counters, word.EXCUSED, self._excused)
        return self._excused != before

    def take(self, actor: int, segments: int, steps: int) -> None:
        """Publish that the learner has taken an actor's first `segments` closed segments."""
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
        for ring, segments in zip(self.rings, closed or self.closed, strict=True):
            self._pass(ring.actor, *ring.ends_at(segments))

    def take_up(self) -> None:
        """Correct counters that the learner's dead predecessor may have left inconsistent.

        The predecessor may have died between storing two related counters, or after `release`.
        Without the correction, actors would wait forever for the learner to take segments that
        `TAKEN` includes but `TAKEN_STEPS` does not.
        """
        if any(load(ring.counters, word.TAKEN) == NEVER for ring in self.rings):
            self.skip()  # start with segments that close from now on
        for ring in self.rings:
            if load(ring.counters, word.CONSUMED) == NEVER:
                store(ring.counters, word.CONSUMED, self.written)
            taken = load(ring.counters, word.TAKEN)
            segments, steps = ring.ends_at(taken)
            if segments == taken:
                store(ring.counters, word.TAKEN_STEPS, steps)
            elif load(ring.counters, word.TAKEN_STEPS) > steps:
                self._pass(ring.actor, segments, steps)  # a death in `skip` after `release`

    def _begin_update(self) -> None:
        self._began = time.monotonic()
        if self._usual is None:
            for ring in self.rings:
                store(ring.counters, word.UPDATE_TIME, -os.getpid())

    def _end_update(self) -> None:
        """Add the duration of the finished update to the mean that limits waiting."""
        if self._began is None:
            return
        # A learner that was stopped during an update must not make actors wait longer afterwards.
        took = min(time.monotonic() - self._began, self.config.wait_limit / UPDATES)
        self._began = None
        self._usual = took if self._usual is None else KEPT * self._usual + (1.0 - KEPT) * took
        for ring in self.rings:
            store(ring.counters, word.UPDATE_TIME, max(int(self._usual * 1e6), 1))

    def let_in(self) -> None:
        self._let_in(NEVER)

    def _let_in(self, steps: int) -> None:
        """Wake every actor that waits for at most `steps` consumed steps."""
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
                f"the checkpoint holds the experience of {actors}, but this run has "
                f"{len(self.rings)}; resume with --schedule async --actor.processes "
                f"{len(state)}, or discard the saved experience with --checkpoint.replay false"
            )
        # The first ring's count includes the written steps that no ring holds any more.
        for actor in reversed(range(len(self.rings))):
            saved = None if state is None else branch(state, str(actor))
            ring = self.rings[actor]
            ring.restore(saved, 0 if actor else written)
            written -= load(ring.counters, word.WRITTEN)
        closed = total(self.counters, word.CLOSED_STEPS)
        closed += sum(ring.open_steps for ring in self.rings)
        self._unclosed = max(self.written - closed, 0)
        # A preliminary value, until the learner publishes its progress and excuses the difference.
        for ring in self.rings:
            store(ring.counters, word.CONSUMED, self.written)


def ring_segments(
    config: ExperienceConfig, num_streams: Sequence[int], rollout: int, keeps: bool
) -> list[int]:
    """Return each ring's number of segments if seats are fixed; arguments as in `Experience`.

    Each stream has one open segment. A ring has space for at least as many closed segments, plus
    the actor's share of rollouts. So the total size depends on the number of streams, not of
    actors.
    """
    found, total = [], sum(num_streams)
    for streams in num_streams:
        share = -(-config.capacity * streams // total)
        kept = share if keeps or not rollout else 0
        own = -(-rollout * streams // total)
        found.append(segments_for(kept, config.segment_length, streams, streams, own))
    return found


def segments_for(steps: int, length: int, most_open: int, likely: int, rollout: int) -> int:
    """Return the size of a ring, in segments, that keeps `steps` steps and holds rollouts."""
    kept = -(-steps // length)
    if rollout:
        return kept + most_open + 3 * likely + 3 * -(-rollout // length)
    return max(kept, most_open + likely)
