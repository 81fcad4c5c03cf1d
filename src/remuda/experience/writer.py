"""The actor's end of a ring: it writes decisions and what came of them, for many streams at once.

A stream is one copy of the game on one seat. The kernels below walk over all streams of a policy
in one call; only they write into a ring.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from remuda.checkpoint.state import fitting
from remuda.experience.ring import (
    HEAD,
    OVERWRITTEN,
    WANTED,
    WRITTEN,
    ExperienceRing,
)
from remuda.memory.atomic import exchange, fence_full, fence_release, load, store
from remuda.types import Array, Bools, Floats, Integers, State

CLOSED = -1


@njit(cache=True)
def _begin_segment(
    sequence: Integers, committed: Integers, counters: Integers, slots: Integers
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
    store(sequence, slot, sequence[slot] + 1)
    fence_release()
    store(counters, OVERWRITTEN, counters[OVERWRITTEN] + committed[slot])
    store(committed, slot, 0)
    return slot


@njit(cache=True)
def _decide(
    observations: Array,
    actions: Integers,
    versions: Integers,
    sequence: Integers,
    committed: Integers,
    counters: Integers,
    n_frames: int,
    slots: Integers,
    lengths: Integers,
    active: Bools,
    seen: Array,
    chosen: Integers,
    version: int,
) -> int:
    """Write what each stream sees and does; what it sees also completes the step before."""
    before = n_frames - 1
    full_length = actions.shape[1]
    fresh = 0
    for stream in range(slots.size):
        if not active[stream]:
            continue
        slot, t = slots[stream], lengths[stream]
        if slot == CLOSED:
            slot = _begin_segment(sequence, committed, counters, slots)
            observations[slot, :before] = 0
            observations[slot, before] = seen[stream]
            store(sequence, slot, sequence[slot] + 1)
            t = 0
        else:
            observations[slot, before + t] = seen[stream]
            if t > 0:
                store(committed, slot, t)
                fresh += 1
            if t == full_length:  # the episode goes on in another segment, with the same frames
                last = slot
                slot = _begin_segment(sequence, committed, counters, slots)
                observations[slot, :n_frames] = observations[last, t : t + n_frames]
                store(sequence, slot, sequence[slot] + 1)
                t = 0
        actions[slot, t] = chosen[stream]
        versions[slot, t] = version
        slots[stream], lengths[stream] = slot, t
    return fresh


@njit(cache=True)
def _outcome(
    observations: Array,
    rewards: Floats,
    discounts: Floats,
    committed: Integers,
    n_frames: int,
    slots: Integers,
    lengths: Integers,
    active: Bools,
    given: Floats,
    terminated: Bools,
    truncated: Bools,
    last_seen: Array,
) -> int:
    """Write what came of each stream's last decision; an episode's end completes it at once."""
    fresh = 0
    for stream in range(slots.size):
        slot = slots[stream]
        if slot == CLOSED:
            continue
        if active[stream]:
            t = lengths[stream]
            lengths[stream] = t + 1
            rewards[slot, t] = given[stream]
        else:  # it had no turn of its own: what it is given belongs to its last decision
            t = lengths[stream] - 1
            rewards[slot, t] += given[stream]
        discounts[slot, t] = 0.0 if terminated[stream] else 1.0
        if terminated[stream] or truncated[stream]:
            observations[slot, n_frames + t] = last_seen[stream]
            store(committed, slot, t + 1)
            fresh += 1
            slots[stream] = CLOSED
    return fresh


@njit(cache=True)
def _count(counters: Integers, fresh: int) -> bool:
    """Count committed steps; whether the learner is to be rung for them."""
    written = counters[WRITTEN] + fresh
    store(counters, WRITTEN, written)
    fence_full()
    wanted = load(counters, WANTED)
    return 0 < wanted <= written and exchange(counters, WANTED, 0) != 0


@njit(cache=True)
def _repair(sequence: Integers, committed: Integers, counters: Integers) -> None:
    """Empty the segment that a writer before this one may have left half ready.

    It may also have died between a change and its count: what the ring holds is counted anew.
    """
    held = 0
    for slot in range(sequence.size):
        if sequence[slot] % 2 == 1:
            store(committed, slot, 0)
            store(sequence, slot, sequence[slot] + 1)
        held += committed[slot]
    store(counters, WRITTEN, max(counters[WRITTEN], held))
    store(counters, OVERWRITTEN, counters[WRITTEN] - held)


class ExperienceWriter:
    """Writes the streams of one policy on one seat into its ring.

    In each turn `decide` comes first and `outcome` after; a step is committed once the
    observation that followed it is written: the one at the agent's next decision, or the last
    one of an episode.
    """

    def __init__(self, ring: ExperienceRing) -> None:
        self.ring = ring
        self._shared = ring.shared
        self._n_frames = ring.shape.n_frames
        self._slots: Integers = np.full(ring.num_streams, CLOSED, np.int64)
        self._lengths: Integers = np.zeros(ring.num_streams, np.int64)
        self._counters: Integers = ring.shared["counters"]
        _repair(ring.shared["sequence"], ring.shared["committed"], self._counters)
        self._compile()

    def decide(self, seen: Array, chosen: Integers, version: int, active: Bools) -> None:
        """Write a decision of the active streams.

        Args:
            seen: [num_streams, size] what each saw, unstacked.
            chosen: [num_streams] int64 what each does.
            version: of the weights that chose.
            active: [num_streams] bool.
        """
        shared = self._shared
        fresh = _decide(
            shared["observations"],
            shared["actions"],
            shared["versions"],
            shared["sequence"],
            shared["committed"],
            self._counters,
            self._n_frames,
            self._slots,
            self._lengths,
            active,
            seen,
            chosen,
            version,
        )
        if fresh and _count(self._counters, fresh):
            self.ring.learner.ring()

    def outcome(
        self,
        rewards: Floats,
        terminated: Bools,
        truncated: Bools,
        last_seen: Array,
        active: Bools,
    ) -> None:
        """Write what came of the decisions.

        Args:
            rewards: [num_streams] float32.
            terminated: [num_streams] bool.
            truncated: [num_streams] bool.
            last_seen: [num_streams, size] the observation after the turn; read only for streams
                whose episode ended.
            active: [num_streams] bool, the streams that decided in this turn.
        """
        shared = self._shared
        fresh = _outcome(
            shared["observations"],
            shared["rewards"],
            shared["discounts"],
            shared["committed"],
            self._n_frames,
            self._slots,
            self._lengths,
            active,
            rewards,
            terminated,
            truncated,
            last_seen,
        )
        if fresh and _count(self._counters, fresh):
            self.ring.learner.ring()

    def state(self) -> State:
        """Which segments the streams have open; the ring saves the segments themselves."""
        return {"slots": self._slots.copy(), "lengths": self._lengths.copy()}

    def restore(self, state: State) -> None:
        """Go on writing where `state` was called; the ring must be as it was then."""
        self._slots[...] = fitting(state, "slots", self._slots)
        self._lengths[...] = fitting(state, "lengths", self._lengths)

    def _compile(self) -> None:
        """Compile the kernels, by a turn in which no stream takes part."""
        streams, shape = self.ring.num_streams, self.ring.shape
        nobody: Bools = np.zeros((streams, 2), np.bool_)
        seen = np.zeros((streams, shape.size), shape.dtype)
        given: Floats = np.zeros((streams, 2), np.float32)
        self.decide(seen, np.zeros(streams, np.int64), 0, nobody[:, 0])
        self.outcome(given[:, 0], nobody[:, 0], nobody[:, 0], seen, nobody[:, 0])
        _count(self._counters, 0)
