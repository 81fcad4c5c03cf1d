"""The actor's end of a ring: it writes decisions and what came of them, for many streams at once.

A stream is one copy of the game on one seat. The kernels below walk over all streams of a policy
in one call; only they write into a ring.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from remuda.checkpoint.state import fitting
from remuda.experience.experience import Experience
from remuda.experience.ring import (
    CLOSED,
    CLOSED_STEPS,
    HEAD,
    LOST,
    NEXT_OVERWRITTEN,
    OPEN,
    OVERWRITTEN,
    WANTED,
    WRITTEN,
)
from remuda.memory.atomic import exchange, fence_full, fence_release, load, store
from remuda.types import Array, Bools, Floats, Integers, State

NOWHERE = -1
"""The place of a stream that has no segment open."""


@njit(cache=True)
def _begin_segment(
    sequence: Integers,
    committed: Integers,
    numbers: Integers,
    streams: Integers,
    closed_as: Integers,
    counters: Integers,
    slots: Integers,
    stream: int,
) -> int:
    """Take the oldest segment that no stream is writing; it is left odd, for its frames to come."""
    segments = sequence.size
    head = load(counters, HEAD)
    while True:
        slot = head % segments
        head += 1
        is_open = False
        for other in slots:
            is_open |= other == slot
        if not is_open:
            break
    store(counters, HEAD, head)
    overwritten = counters[OVERWRITTEN] + committed[slot]
    store(counters, NEXT_OVERWRITTEN, overwritten)
    store(sequence, slot, sequence[slot] + 1)
    fence_release()
    store(counters, OVERWRITTEN, overwritten)
    store(committed, slot, 0)
    numbers[slot] = head - 1
    streams[slot] = stream
    closed_as[slot] = OPEN
    return slot


@njit(cache=True)
def _close_segment(
    sequence: Integers,
    committed: Integers,
    queue: Integers,
    queue_sequence: Integers,
    queue_steps: Integers,
    closed_as: Integers,
    counters: Integers,
    slot: int,
) -> None:
    """Add a segment to the queue; its steps are all committed.

    The entry is whole, and the segment bears its number, before `CLOSED` counts it. A writer that
    dies before that leaves the segment open: its successor takes the number back in `repair`, if it
    was there already, and closes the segment. One that dies after it leaves it closed, and `repair`
    takes `CLOSED_STEPS` from the entry. The number, not the entry, is how a successor knows: where
    episodes are short the entry is another's while the segment is still held.

    A reader of the entry that stood here before knows that it was overtaken by `CLOSED`, which it
    loads again after what it read. So whoever sees any of the new entry must also see `CLOSED` as
    the writer stored it last: the store's own release orders only what came before it, and without
    the fence a processor other than x86, or the compiler, may let the entry become visible first.
    """
    closed = counters[CLOSED]
    steps = counters[CLOSED_STEPS] + committed[slot]
    i = closed % queue.size
    fence_release()
    queue[i] = slot
    queue_sequence[i] = sequence[slot]
    queue_steps[i] = steps
    closed_as[slot] = closed + 1
    store(counters, CLOSED, closed + 1)
    store(counters, CLOSED_STEPS, steps)


@njit(cache=True)
def _copy(source: Array, row: int, target: Array, slot: int, t: int) -> None:
    """Copy `source[row]` to `target[slot, t]`.

    Number by number: to take a part of an array counts who holds it, and to assign one looks for
    overlaps; for a step of the game both take longer than the copy.
    """
    for i in range(source.shape[1]):
        target[slot, t, i] = source[row, i]


@njit(cache=True)
def decide_one(
    observations: Array,
    actions: Array,
    log_probs: Floats,
    masks: Bools,
    versions: Integers,
    rewards: Floats,
    sequence: Integers,
    committed: Integers,
    memories: Floats,
    numbers: Integers,
    streams: Integers,
    queue: Integers,
    queue_sequence: Integers,
    queue_steps: Integers,
    closed_as: Integers,
    counters: Integers,
    n_frames: int,
    slots: Integers,
    lengths: Integers,
    stream: int,
    seen: Array,
    chosen: Array,
    chance: float,
    allowed: Bools,
    kept: Floats,
    version: int,
    before: float,
) -> int:
    """Write what a stream sees and does; what it sees also completes the step before.

    What the turn has given the agent `before` this decision belongs to the one before, if there
    is one. The reward of this one begins below zero by as much, because `outcome_one` will add
    all that the turn has given.

    Returns the steps that are complete now.
    """
    old_frames = n_frames - 1
    fresh = 0
    slot, t = slots[stream], lengths[stream]
    if slot == NOWHERE:
        slot = _begin_segment(
            sequence, committed, numbers, streams, closed_as, counters, slots, stream
        )
        observations[slot, :old_frames] = 0
        _copy(seen, stream, observations, slot, old_frames)
        _copy(allowed, stream, masks, slot, 0)
        memories[slot] = kept[stream]
        store(sequence, slot, sequence[slot] + 1)
        t = 0
    else:
        # What is seen and allowed now belongs to the step before, too: written before that counts.
        _copy(seen, stream, observations, slot, old_frames + t)
        if t < masks.shape[1]:
            _copy(allowed, stream, masks, slot, t)
        if t > 0:
            rewards[slot, t - 1] += before
            store(committed, slot, t)
            fresh = 1
        if t == actions.shape[1]:  # the episode goes on in another segment, with the same frames
            last = slot
            _close_segment(
                sequence,
                committed,
                queue,
                queue_sequence,
                queue_steps,
                closed_as,
                counters,
                last,
            )
            slot = _begin_segment(
                sequence, committed, numbers, streams, closed_as, counters, slots, stream
            )
            observations[slot, :n_frames] = observations[last, t : t + n_frames]
            _copy(allowed, stream, masks, slot, 0)
            memories[slot] = kept[stream]
            store(sequence, slot, sequence[slot] + 1)
            t = 0
    _copy(chosen, stream, actions, slot, t)
    log_probs[slot, t] = chance
    versions[slot, t] = version
    rewards[slot, t] = -before
    slots[stream], lengths[stream] = slot, t
    return fresh


@njit(cache=True)
def _decide(
    observations: Array,
    actions: Array,
    log_probs: Floats,
    masks: Bools,
    versions: Integers,
    sequence: Integers,
    committed: Integers,
    memories: Floats,
    numbers: Integers,
    streams: Integers,
    queue: Integers,
    queue_sequence: Integers,
    queue_steps: Integers,
    closed_as: Integers,
    counters: Integers,
    n_frames: int,
    slots: Integers,
    lengths: Integers,
    active: Bools,
    seen: Array,
    chosen: Array,
    chances: Floats,
    allowed: Bools,
    kept: Floats,
    version: int,
    rewards: Floats,
    before: Floats,
) -> int:
    """Write what each active stream sees and does; returns the steps that are complete now."""
    fresh = 0
    for stream in range(slots.size):
        if active[stream]:
            fresh += decide_one(
                observations,
                actions,
                log_probs,
                masks,
                versions,
                rewards,
                sequence,
                committed,
                memories,
                numbers,
                streams,
                queue,
                queue_sequence,
                queue_steps,
                closed_as,
                counters,
                n_frames,
                slots,
                lengths,
                stream,
                seen,
                chosen,
                chances[stream],
                allowed,
                kept,
                version,
                before[stream],
            )
    return fresh


@njit(cache=True)
def outcome_one(
    observations: Array,
    masks: Bools,
    rewards: Floats,
    discounts: Floats,
    sequence: Integers,
    committed: Integers,
    queue: Integers,
    queue_sequence: Integers,
    queue_steps: Integers,
    closed_as: Integers,
    counters: Integers,
    n_frames: int,
    slots: Integers,
    lengths: Integers,
    stream: int,
    acted: bool,
    given: float,
    terminated: bool,
    truncated: bool,
    last_seen: Array,
    last_allowed: Bools,
) -> int:
    """Write what came of a stream's last decision; an episode's end completes it at once.

    Returns the steps that are complete now.
    """
    slot = slots[stream]
    if slot == NOWHERE:
        return 0
    if acted:
        lengths[stream] += 1
    # Without a turn of its own, what it is given belongs to its last decision all the same.
    t = lengths[stream] - 1
    rewards[slot, t] += given
    discounts[slot, t] = 0.0 if terminated else 1.0
    if not (terminated or truncated):
        return 0
    _copy(last_seen, stream, observations, slot, n_frames + t)
    _copy(last_allowed, stream, masks, slot, t + 1)
    store(committed, slot, t + 1)
    _close_segment(
        sequence, committed, queue, queue_sequence, queue_steps, closed_as, counters, slot
    )
    slots[stream] = NOWHERE
    return 1


@njit(cache=True)
def _outcome(
    observations: Array,
    masks: Bools,
    rewards: Floats,
    discounts: Floats,
    sequence: Integers,
    committed: Integers,
    queue: Integers,
    queue_sequence: Integers,
    queue_steps: Integers,
    closed_as: Integers,
    counters: Integers,
    n_frames: int,
    slots: Integers,
    lengths: Integers,
    active: Bools,
    given: Floats,
    terminated: Bools,
    truncated: Bools,
    last_seen: Array,
    last_allowed: Bools,
) -> int:
    """Write what came of each stream's last decision; returns the steps that are complete now."""
    fresh = 0
    for stream in range(slots.size):
        fresh += outcome_one(
            observations,
            masks,
            rewards,
            discounts,
            sequence,
            committed,
            queue,
            queue_sequence,
            queue_steps,
            closed_as,
            counters,
            n_frames,
            slots,
            lengths,
            stream,
            active[stream],
            given[stream],
            terminated[stream],
            truncated[stream],
            last_seen,
            last_allowed,
        )
    return fresh


@njit(cache=True)
def count(counters: Integers, fresh: int, word: int) -> bool:
    """Count committed steps; whether the learner is to be rung, for what the other word counts."""
    store(counters, WRITTEN, counters[WRITTEN] + fresh)
    fence_full()
    wanted = load(counters, WANTED)
    return 0 < wanted <= counters[word] and exchange(counters, WANTED, 0) != 0


@njit(cache=True)
def repair(
    sequence: Integers,
    committed: Integers,
    queue_steps: Integers,
    closed_as: Integers,
    counters: Integers,
) -> None:
    """Empty the segment that a writer before this one may have left half ready.

    It may also have died between a change and its count. Every step that was committed is held, or
    was overwritten; so what the ring holds is counted anew, and what was written follows from it. A
    segment whose closing was not counted is open, before anything else is closed under its number.
    """
    held = 0
    for slot in range(sequence.size):
        if closed_as[slot] > counters[CLOSED]:
            closed_as[slot] = OPEN
        if sequence[slot] % 2 == 1:
            if committed[slot] > 0:  # these are overwritten, and may not be counted as such
                store(counters, OVERWRITTEN, counters[NEXT_OVERWRITTEN])
            store(committed, slot, 0)
            store(sequence, slot, sequence[slot] + 1)
        held += committed[slot]
    store(counters, WRITTEN, max(counters[WRITTEN], counters[OVERWRITTEN] + held))
    store(counters, OVERWRITTEN, counters[WRITTEN] - held)
    if counters[CLOSED] > 0:
        store(counters, CLOSED_STEPS, queue_steps[(counters[CLOSED] - 1) % queue_steps.size])


@njit(cache=True)
def clear_ring(sequence: Integers, committed: Integers, counters: Integers) -> None:
    """Empty every segment; none is open. Readers that are at it throw away what they copied."""
    for slot in range(sequence.size):
        store(sequence, slot, sequence[slot] + 1)
        fence_release()
        store(committed, slot, 0)
        store(sequence, slot, sequence[slot] + 1)
    store(counters, OVERWRITTEN, counters[WRITTEN])
    store(counters, LOST, counters[WRITTEN])


@njit(cache=True)
def close_orphans_of(
    sequence: Integers,
    committed: Integers,
    queue: Integers,
    queue_sequence: Integers,
    queue_steps: Integers,
    closed_as: Integers,
    counters: Integers,
) -> None:
    """Close every segment that has steps and was never closed; `repair` was called before.

    A writer that dies over it is followed by one that repairs, and closes those that are left.
    """
    for slot in range(sequence.size):
        if committed[slot] > 0 and closed_as[slot] == OPEN:
            _close_segment(
                sequence, committed, queue, queue_sequence, queue_steps, closed_as, counters, slot
            )


class ExperienceWriter:
    """Writes the streams of one policy on one seat into its ring, for one actor.

    In each turn `decide` comes first and `outcome` after; a step is committed once the
    observation that followed it is written: the one at the agent's next decision, or the last
    one of an episode. Its reward is all that the agent was given until then; what it was given
    before its first decision of an episode is no step's.
    """

    def __init__(self, experience: Experience, actor: int = 0, num_agents: int = 2) -> None:
        """Begin to write for `actor`; `num_agents`: columns of the arrays that it will be given."""
        self.ring = ring = experience.rings[actor]
        self.room = experience.room(actor) if experience.may_wait else None
        """Where it may have to wait; None: the user lets it overwrite."""
        self._learner = experience.learner
        self._shared = ring.shared
        self._n_frames = ring.shape.n_frames
        streams = ring.num_streams
        self._slots: Integers = np.full(streams, NOWHERE, np.int64)
        self._lengths: Integers = np.zeros(streams, np.int64)
        self._counters = ring.counters
        self._watched = CLOSED_STEPS if experience.rollout else WRITTEN
        self._no_chances: Floats = np.zeros(streams, np.float32)
        self._no_masks: Bools = np.ones((streams, ring.shape.mask_size), np.bool_)
        last_size = ring.shape.mask_size if ring.shape.keeps_last_mask else 0
        self._no_last_masks: Bools = np.ones((streams, last_size), np.bool_)
        self._no_memories: Floats = np.zeros((streams, ring.shape.memory), np.float32)
        # Of the strides of a column, as the environment's own array has them.
        self._nothing: Floats = np.zeros((streams, num_agents), np.float32)[:, 0]
        repair(
            ring.shared["sequence"],
            ring.shared["committed"],
            ring.shared["queue_steps"],
            ring.shared["closed_as"],
            self._counters,
        )
        self._compile(num_agents)

    def decide(
        self,
        seen: Array,
        chosen: Array,
        version: int,
        active: Bools,
        log_probs: Floats | None = None,
        masks: Bools | None = None,
        memories: Floats | None = None,
        before: Floats | None = None,
    ) -> None:
        """Write a decision of the active streams.

        Args:
            seen: [num_streams, size] what each saw, unstacked.
            chosen: [num_streams, action_size] what each does.
            version: of the weights that chose.
            active: [num_streams] bool.
            log_probs: [num_streams] float32, of what was chosen when it was chosen.
            masks: [num_streams, mask_size] bool, what each was allowed to do.
            memories: [num_streams, memory] float32, what each had kept before it saw this.
            before: [num_streams] float32, what each has been given in this turn so far, as a
                column of an array; it belongs to the decision before. None: nothing.
        """
        shared = self._shared
        fresh = _decide(
            shared["observations"],
            shared["actions"],
            shared["log_probs"],
            shared["masks"],
            shared["versions"],
            shared["sequence"],
            shared["committed"],
            shared["memories"],
            shared["numbers"],
            shared["streams"],
            shared["queue"],
            shared["queue_sequence"],
            shared["queue_steps"],
            shared["closed_as"],
            self._counters,
            self._n_frames,
            self._slots,
            self._lengths,
            active,
            seen,
            chosen,
            self._no_chances if log_probs is None else log_probs,
            self._no_masks if masks is None else masks,
            self._no_memories if memories is None else memories,
            version,
            shared["rewards"],
            self._nothing if before is None else before,
        )
        if fresh and count(self._counters, fresh, self._watched):
            self._learner.ring()

    def outcome(
        self,
        rewards: Floats,
        terminated: Bools,
        truncated: Bools,
        last_seen: Array,
        active: Bools,
        last_masks: Bools | None = None,
    ) -> None:
        """Write what came of the decisions.

        Args:
            rewards: [num_streams] float32, of the whole turn.
            terminated: [num_streams] bool.
            truncated: [num_streams] bool.
            last_seen: [num_streams, size] the observation after the turn; read only for streams
                whose episode ended.
            active: [num_streams] bool, the streams that decided in this turn.
            last_masks: [num_streams, mask_size] bool, what is allowed after the turn; read only for
                streams that were truncated, where `keeps_last_mask` says so.
        """
        shared = self._shared
        if last_masks is None or not self.keeps_last_mask:
            last_masks = self._no_last_masks
        fresh = _outcome(
            shared["observations"],
            shared["masks"],
            shared["rewards"],
            shared["discounts"],
            shared["sequence"],
            shared["committed"],
            shared["queue"],
            shared["queue_sequence"],
            shared["queue_steps"],
            shared["closed_as"],
            self._counters,
            self._n_frames,
            self._slots,
            self._lengths,
            active,
            rewards,
            terminated,
            truncated,
            last_seen,
            last_masks,
        )
        if fresh and count(self._counters, fresh, self._watched):
            self._learner.ring()

    @property
    def keeps_last_mask(self) -> bool:
        """Whether it writes what is allowed after the last step of an episode, too."""
        return self.ring.shape.keeps_last_mask

    def close_orphans(self) -> None:
        """Close what a writer before this one had open when it died, so that it can be taken.

        Not for a writer that will be restored: it goes on with these segments.
        """
        shared = self._shared
        close_orphans_of(
            shared["sequence"],
            shared["committed"],
            shared["queue"],
            shared["queue_sequence"],
            shared["queue_steps"],
            shared["closed_as"],
            self._counters,
        )

    def state(self) -> State:
        """Which segments the streams have open; the ring saves the segments themselves."""
        return {"slots": self._slots.copy(), "lengths": self._lengths.copy()}

    def holds(self, state: State) -> bool:
        """Whether the ring has the segments that were open when `state` was called.

        It has none of them where a run is resumed without its experience.
        """
        slots = fitting(state, "slots", self._slots)
        return bool((self._shared["sequence"][slots[slots != NOWHERE]] > 0).all())

    def restore(self, state: State) -> None:
        """Go on writing where `state` was called; the ring must be as it was then."""
        self._slots[...] = fitting(state, "slots", self._slots)
        self._lengths[...] = fitting(state, "lengths", self._lengths)

    def _compile(self, num_agents: int) -> None:
        """Compile the kernels, by a turn in which no stream takes part.

        A column of an array is of another layout where it is the only one.
        """
        streams, shape = self.ring.num_streams, self.ring.shape
        nobody: Bools = np.zeros((streams, num_agents), np.bool_)
        seen = np.zeros((streams, shape.size), shape.dtype)
        given: Floats = np.zeros((streams, num_agents), np.float32)
        chosen = np.zeros((streams, shape.action_size), shape.action_dtype)
        self.decide(seen, chosen, 0, nobody[:, 0])
        self.outcome(given[:, 0], nobody[:, 0], nobody[:, 0], seen, nobody[:, 0])
        close_orphans_of(
            self._shared["sequence"][:0],
            self._shared["committed"][:0],
            self._shared["queue"][:0],
            self._shared["queue_sequence"][:0],
            self._shared["queue_steps"][:0],
            self._shared["closed_as"][:0],
            np.zeros_like(self._counters),
        )
        count(self._counters, 0, WRITTEN)
