"""The ring of segments: what one policy has lived through, in shared memory.

A ring has S segments of at most T steps. Step t of a segment saw the frames in rows t to
t + n_frames - 1, the newest last; the rows of step t + 1 are what followed it. So a segment has
T + n_frames rows: the frames before its first step, its T observations, and the observation after
its last step. At an episode's start the frames before the first step are zeros; where a long
episode goes on in another segment they are copied from the segment before.

A segment that is full, or whose episode is over, is *closed*, and its place is added to a queue.
An off-policy learner samples committed steps of any segment; an on-policy learner takes closed
segments whole, once, in the order of the queue.

Who writes what: everything here belongs to the writer (the actor), except the words `WANTED`,
`CONSUMED`, `TAKEN` and `TAKEN_STEPS`, which belong to the learner. Nobody locks anything.

- A segment's `sequence` is odd while the writer makes it ready for other steps and even otherwise.
- Steps below `committed` never change while `sequence` stays the same. `committed` is stored with
  release and loaded with acquire ordering, so whoever sees a step counted sees all of it.
- A reader notes `sequence`, copies, and looks again; if it changed, the copy is thrown away.
- A writer that dies leaves at most one odd sequence behind. Readers skip it; the next writer
  (`ExperienceWriter`) makes it even again, and begins at the segment after. It also closes what
  was left open.
- A learner says that it took segments before it trains on them, so one that dies takes them along.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from remuda.checkpoint.state import fitting
from remuda.config import ExperienceConfig
from remuda.memory.atomic import exchange, fence_acquire, fence_full, load, store
from remuda.memory.shared import SharedArrays
from remuda.memory.waiting import Wakeup
from remuda.types import Array, Integers, State

# Words of `counters`; each stands on a cache line of its own, so that no two processes fight.
STRIDE = 8
WRITTEN = 0 * STRIDE
"""Steps committed since the run began."""
OVERWRITTEN = 1 * STRIDE
"""Committed steps that made room for newer ones."""
HEAD = 2 * STRIDE
"""Segments begun since the run began; the next takes the place HEAD modulo S."""
WANTED = 3 * STRIDE
"""Steps at which the learner wants to be woken; 0: it is awake."""
CONSUMED = 4 * STRIDE
"""Steps that the learner has trained its share on, by the replay ratio."""
ROOM_WANTED = 5 * STRIDE
"""Steps consumed at which the actor wants to be woken; 0: it is awake."""
LOST = 6 * STRIDE
"""Steps that were committed before a resumed run began, and that it did not bring along."""
CLOSED = 7 * STRIDE
"""Segments closed since the run began."""
CLOSED_STEPS = 8 * STRIDE
"""Steps in them."""
TAKEN = 9 * STRIDE
"""Closed segments that an on-policy learner has taken, or passed over because they were lost."""
TAKEN_STEPS = 10 * STRIDE
"""Steps in them."""
COUNTERS = 11 * STRIDE

CONTENTS = ("observations", "actions", "log_probs", "masks", "rewards", "discounts", "versions")
"""The arrays of the steps themselves."""
BOOKS = ("memories", "numbers", "streams", "queue", "queue_sequence", "queue_steps")
"""What is noted of segments: which they are, whose, and in what order they were closed."""

NEVER = 2**62
"""More segments, and more steps, than there will ever be."""
POISON = 0xA5
"""Fresh integers are made of this byte and fresh floats are not a number, so that reading what
nobody wrote cannot pass for data."""


@dataclass(frozen=True)
class StreamShape:
    """What a step of a policy looks like."""

    observation: tuple[int, ...]
    """The shape of one observation, unstacked."""
    dtype: npt.DTypeLike
    """Its dtype, as the environment writes it."""
    n_frames: int
    """Observations in one stacked input."""
    action_size: int = 1
    """Numbers in one action."""
    action_dtype: npt.DTypeLike = np.int64
    """Their dtype: integers, or float32 where actions are continuous."""
    mask_size: int = 0
    """Entries of an action mask; 0: every action is always allowed."""
    memory: int = 0
    """Numbers that a recurrent policy keeps from one step to the next."""

    @property
    def size(self) -> int:
        """Numbers in one observation."""
        return int(np.prod(self.observation, dtype=np.int64))


class ExperienceRing:
    """One policy's experience: written by one actor, read by one learner.

    What it guarantees:

    1. A step is read whole or not at all.
    2. No reader ever makes the writer wait. The writer waits only where the user set `wait`.
    3. A learner that asks for a number of steps is woken once they are there, without polling.
    4. Whoever dies, at any instruction, leaves a ring that the others can go on with.
    """

    def __init__(
        self,
        shape: StreamShape,
        config: ExperienceConfig,
        num_streams: int,
        learner: Wakeup,
        actor: Wakeup,
        rollout: int = 0,
    ) -> None:
        """Allocate it.

        Args:
            shape: what a step looks like.
            config: capacity, segments, and whether to overwrite or wait.
            num_streams: copies and seats that the policy plays at once.
            learner: rings the learner's process.
            actor: rings the actor's process.
            rollout: steps that an on-policy learner takes at once; 0: the learner is off-policy.
        """
        length = config.segment_length
        # Every stream keeps one segment open; as many again are there to be read, or two rollouts.
        segments = max(-(-config.capacity // length), 2 * num_streams)
        if rollout:
            segments = 4 * num_streams + 3 * -(-rollout // length)
        self.rollout = rollout
        self.shape, self.config = shape, config
        self.num_segments, self.segment_length, self.num_streams = segments, length, num_streams
        self.learner, self.actor = learner, actor
        self.shared = SharedArrays(
            {
                "observations": ((segments, length + shape.n_frames, shape.size), shape.dtype),
                "actions": ((segments, length, shape.action_size), shape.action_dtype),
                "log_probs": (
                    (segments, length),
                    np.float32,
                ),  # of the actions, when they were chosen
                "masks": ((segments, length, shape.mask_size), np.bool_),
                "rewards": ((segments, length), np.float32),
                "discounts": ((segments, length), np.float32),  # 0: the episode terminated here
                "versions": ((segments, length), np.int64),
                "sequence": ((segments,), np.int64),
                "committed": ((segments,), np.int64),
                "memories": ((segments, shape.memory), np.float32),  # before the first step
                "numbers": ((segments,), np.int64),  # HEAD when it was begun
                "streams": ((segments,), np.int64),
                "queue": ((segments,), np.int64),
                "queue_sequence": ((segments,), np.int64),
                "queue_steps": ((segments,), np.int64),
                "counters": ((COUNTERS,), np.int64),
            }
        )
        self._forgiven = 0
        for name in CONTENTS:
            _poison(self.shared[name])

    @property
    def written(self) -> int:
        """Steps committed since the run began."""
        return load(self.shared["counters"], WRITTEN)

    @property
    def overwritten(self) -> int:
        """Committed steps that made room for newer ones."""
        return load(self.shared["counters"], OVERWRITTEN)

    @property
    def lost(self) -> int:
        """Steps that a resumed run did not bring along; a learner waits for new ones."""
        return load(self.shared["counters"], LOST)

    @property
    def fill(self) -> float:
        """The share of the ring's capacity, or of a rollout, that holds steps to train on."""
        if self.rollout:
            return min(self.untaken / self.rollout, 1.0)
        held = self.written - self.overwritten
        return min(held / (self.num_segments * self.segment_length), 1.0)

    @property
    def untaken(self) -> int:
        """Steps in closed segments that no on-policy learner took yet, and that one may."""
        counters = self.shared["counters"]
        return max(load(counters, CLOSED_STEPS) - load(counters, TAKEN_STEPS), 0)

    @property
    def tight(self) -> bool:
        """Whether a turn might begin a segment in a place whose steps nobody took yet.

        So it is where episodes are much shorter than segments; a rollout is then taken early.
        """
        shared = self.shared
        return _is_tight(shared["counters"], shared["queue"], shared["numbers"], self.num_streams)

    def has(self, steps: int) -> bool:
        """Whether `steps` have been committed; if not, the writer will ring when they are.

        For the learner. The wish is stated before the check, and the writer commits before it looks
        for a wish, so one of the two always sees the other.
        """
        counters = self.shared["counters"]
        if load(counters, WRITTEN) >= steps:
            return True
        store(counters, WANTED, steps)
        fence_full()
        return load(counters, WRITTEN) >= steps

    def has_rollout(self) -> bool:
        """Whether there is a rollout to take; if not, the writer will ring when there is."""
        counters = self.shared["counters"]
        steps = load(counters, TAKEN_STEPS) + self.rollout
        if load(counters, CLOSED_STEPS) >= steps or self.tight:
            return True
        store(counters, WANTED, steps)
        fence_full()
        return load(counters, CLOSED_STEPS) >= steps or self.tight

    def consume(self, steps: int) -> None:
        """Tell a waiting actor that the learner has had its share of the first `steps` steps."""
        counters = self.shared["counters"]
        store(counters, CONSUMED, steps)
        fence_full()
        if 0 < load(counters, ROOM_WANTED) <= steps and exchange(counters, ROOM_WANTED, 0):
            self.actor.ring()

    @property
    def may_wait(self) -> bool:
        """Whether the user lets this ring make the actor wait."""
        return self.config.on_full == "wait"

    def has_room(self) -> bool:
        """Whether the actor may write another turn; if not, it will be rung once it may.

        It may while it is within `capacity` steps of an off-policy learner, and while there is not
        yet a whole rollout for an on-policy learner to take.
        """
        counters = self.shared["counters"]
        if self.rollout:
            return self._has_room_for_rollout()
        needed = load(counters, WRITTEN) - self.config.capacity
        if max(load(counters, CONSUMED), self._forgiven) >= needed:
            return True
        store(counters, ROOM_WANTED, needed)
        fence_full()
        return load(counters, CONSUMED) >= needed

    def _has_room_for_rollout(self) -> bool:
        counters = self.shared["counters"]

        def room() -> bool:
            taken = load(counters, TAKEN_STEPS)
            if load(counters, CLOSED_STEPS) - max(taken, self._forgiven) >= self.rollout:
                return False
            return self._forgiven > taken or not self.tight

        if room():
            return True
        store(counters, ROOM_WANTED, 1)
        fence_full()
        if room():
            return True
        self.learner.ring()  # it may be asleep, waiting for more than there is place for
        return False

    def take(self, segments: int, steps: int) -> None:
        """Tell the writer that the first so many closed segments, and their steps, are copied."""
        counters = self.shared["counters"]
        store(counters, TAKEN, segments)
        store(counters, TAKEN_STEPS, steps)
        fence_full()
        if load(counters, ROOM_WANTED) and exchange(counters, ROOM_WANTED, 0):
            self.actor.ring()

    def release(self) -> None:
        """For the learner: take nothing any more, so that the writer never waits for it."""
        self.take(NEVER, NEVER)

    def take_up(self) -> None:
        """For a new learner: take what is closed from now on, if the one before it took no more."""
        counters, queue_steps = self.shared["counters"], self.shared["queue_steps"]
        if load(counters, TAKEN) == NEVER:
            closed = load(counters, CLOSED)
            self.take(closed, int(queue_steps[(closed - 1) % queue_steps.size]) if closed else 0)

    def state(self) -> State:
        """A copy of all that is committed, taken while the writer may go on.

        A segment that is taken over by other steps meanwhile is left out, like any torn read.
        """
        shared = self.shared
        before = shared["sequence"].copy()
        committed = shared["committed"].copy()
        fence_acquire()
        saved: State = {name: shared[name].copy() for name in (*CONTENTS, *BOOKS)}
        fence_acquire()
        torn = (before % 2 == 1) | (shared["sequence"] != before)
        committed[torn] = 0
        counters = {name: load(shared["counters"], word) for name, word in SAVED_COUNTERS.items()}
        return saved | {"committed": committed, "sequence": before, "counters": counters}

    def restore(self, state: State | None, written: int) -> None:
        """Hold what a ring held before, in a run that is resumed and has not begun yet.

        Args:
            state: what `state` returned, or None: the steps were not saved.
            written: steps committed until then.

        Raises:
            CheckpointError: the steps are of another shape.
        """
        shared, counters = self.shared, self.shared["counters"]
        if state is not None:
            for name in (*CONTENTS, *BOOKS, "committed"):
                shared[name][...] = fitting(state, name, shared[name])
            # A sequence that was odd is even now: its segment is empty, and is begun anew.
            sequence = fitting(state, "sequence", shared["sequence"])
            shared["sequence"][...] = sequence + sequence % 2
            for name, word in SAVED_COUNTERS.items():
                store(counters, word, state["counters"][name])
        held = int(shared["committed"].sum())
        written = max(written, held)
        store(counters, WRITTEN, written)
        store(counters, OVERWRITTEN, written - held)
        store(counters, LOST, 0 if state is not None else written)

    def forgive(self) -> None:
        """Let the actor write one more capacity of steps, though the learner is behind."""
        counters = self.shared["counters"]
        self._forgiven = load(counters, CLOSED_STEPS if self.rollout else WRITTEN)


SAVED_COUNTERS = {
    "head": HEAD,
    "closed": CLOSED,
    "closed_steps": CLOSED_STEPS,
    "taken": TAKEN,
    "taken_steps": TAKEN_STEPS,
}


@njit(cache=True)
def _is_tight(counters: Integers, queue: Integers, numbers: Integers, num_streams: int) -> bool:
    """Whether the next turn's segments might take the place of a closed one that nobody took.

    A turn begins at most one segment for each stream, and passes over at most as many open ones.
    """
    segments = queue.size
    head, closed = load(counters, HEAD), load(counters, CLOSED)
    for i in range(max(load(counters, TAKEN), closed - segments), closed):
        if head + 2 * num_streams > numbers[queue[i % segments]] + segments:
            return True
    return False


def _poison(array: Array) -> None:
    if np.issubdtype(array.dtype, np.floating):
        array[...] = np.nan
    else:
        array.view(np.uint8)[...] = POISON
