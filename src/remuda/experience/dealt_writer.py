"""The actor's end of a block of rings: it writes the streams of many policies in one call.

Which policy a stream belongs to changes from match to match, and always at an episode's start, so
that no segment ever holds steps of two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from remuda.checkpoint.state import fitting
from remuda.experience.experience import Experience
from remuda.experience.ring import CLOSED_STEPS, WRITTEN, ExperienceRing
from remuda.experience.room import Room
from remuda.experience.writer import (
    NOWHERE,
    clear_ring,
    close_orphans_of,
    count,
    decide_one,
    outcome_one,
    repair,
)
from remuda.types import Array, Bools, Floats, Integers, State

Arrays = tuple[Array, ...]
"""Of a block, each [rings, segments, ...]."""


@njit(cache=True)
def _decide_dealt(
    contents: Arrays,
    books: Arrays,
    begun: Arrays,
    closed: Arrays,
    n_frames: int,
    slots: Integers,
    lengths: Integers,
    rows: Integers,
    begins: Integers,
    streams: Integers,
    active: Bools,
    seen: Array,
    chosen: Array,
    chances: Floats,
    allowed: Bools,
    kept: Floats,
    version: Integers,
    before: Floats,
    watched: int,
    rings: Bools,
) -> None:
    """Write what each active stream sees and does; marks the rings whose learner is to be rung."""
    observations, actions, log_probs, masks, versions, rewards = contents
    sequence, committed = books
    memories, numbers, owners = begun
    queue, queue_sequence, queue_steps, closed_as, counters = closed
    for p in range(rows.size):
        fresh = 0
        # Of this ring, taken once: to take a part of an array counts who holds it, and takes long.
        seen_by, acted, chances_of, allowed_by = observations[p], actions[p], log_probs[p], masks[p]
        version_of, reward, sequences, commits = versions[p], rewards[p], sequence[p], committed[p]
        memory, number, owner, entry = memories[p], numbers[p], owners[p], queue[p]
        entry_sequence, entry_steps = queue_sequence[p], queue_steps[p]
        closing, words, slot, length = closed_as[p], counters[p, 0], slots[p], lengths[p]
        for i in range(begins[rows[p]], begins[rows[p] + 1]):
            stream = streams[i]
            if active[stream]:
                fresh += decide_one(
                    seen_by,
                    acted,
                    chances_of,
                    allowed_by,
                    version_of,
                    reward,
                    sequences,
                    commits,
                    memory,
                    number,
                    owner,
                    entry,
                    entry_sequence,
                    entry_steps,
                    closing,
                    words,
                    n_frames,
                    slot,
                    length,
                    stream,
                    seen,
                    chosen,
                    chances[stream],
                    allowed,
                    kept,
                    version[rows[p]],
                    before[stream],
                )
        rings[p] = fresh > 0 and count(words, fresh, watched)


@njit(cache=True)
def _outcome_dealt(
    contents: Arrays,
    books: Arrays,
    closed: Arrays,
    n_frames: int,
    slots: Integers,
    lengths: Integers,
    rows: Integers,
    begins: Integers,
    streams: Integers,
    active: Bools,
    given: Floats,
    terminated: Bools,
    truncated: Bools,
    last_seen: Array,
    last_allowed: Bools,
    watched: int,
    rings: Bools,
) -> None:
    """Write what came of each stream's last decision; marks the rings likewise."""
    observations, masks, rewards, discounts = contents
    sequence, committed = books
    queue, queue_sequence, queue_steps, closed_as, counters = closed
    for p in range(rows.size):
        fresh = 0
        seen_by, allowed_by = observations[p], masks[p]
        reward, discount = rewards[p], discounts[p]
        sequences, commits, entry = sequence[p], committed[p], queue[p]
        entry_sequence, entry_steps = queue_sequence[p], queue_steps[p]
        closing, words, slot, length = closed_as[p], counters[p, 0], slots[p], lengths[p]
        for i in range(begins[rows[p]], begins[rows[p] + 1]):
            stream = streams[i]
            fresh += outcome_one(
                seen_by,
                allowed_by,
                reward,
                discount,
                sequences,
                commits,
                entry,
                entry_sequence,
                entry_steps,
                closing,
                words,
                n_frames,
                slot,
                length,
                stream,
                active[stream],
                given[stream],
                terminated[stream],
                truncated[stream],
                last_seen,
                last_allowed,
            )
        rings[p] = fresh > 0 and count(words, fresh, watched)


class DealtWriter:
    """Writes the streams of several policies into the rings of a block.

    Streams are numbered over all seats and copies. Each call is given, for every row of a stack of
    networks, the streams that it plays: those of row k are `streams[begins[k] : begins[k + 1]]`.
    """

    def __init__(self, policies: Sequence[tuple[Experience, int]]) -> None:
        """Begin to write.

        Args:
            policies: all whose rings are in one block: the experience of each, and its row in the
                stack.
        """
        experiences, rows = zip(*sorted(policies, key=lambda pair: pair[0].index), strict=True)
        block = experiences[0].block
        assert block is not None
        self._shared = block.shared
        self._learners = [experience.learner for experience in experiences]
        self.rooms: list[Room] = [e.room(0) for e in experiences if e.may_wait]
        """Where it may have to wait."""
        self._rows: Integers = np.array(rows, np.int64)
        ring = experiences[0].rings[0]
        self._n_frames, num_rings = ring.shape.n_frames, len(experiences)
        self._watched = CLOSED_STEPS if experiences[0].rollout else WRITTEN
        self._slots: Integers = np.full((num_rings, ring.num_streams), NOWHERE, np.int64)
        self._lengths: Integers = np.zeros((num_rings, ring.num_streams), np.int64)
        self._rings: Bools = np.zeros(num_rings, np.bool_)
        shared = self._shared
        self._contents = tuple(
            shared[name]
            for name in ("observations", "actions", "log_probs", "masks", "versions", "rewards")
        )
        self._results = tuple(
            shared[name] for name in ("observations", "masks", "rewards", "discounts")
        )
        self.keeps_last_mask = ring.shape.keeps_last_mask
        """Whether it writes what is allowed after the last step of an episode, too."""
        self._no_last_masks: Bools = np.ones((ring.num_streams, 0), np.bool_)
        self._books = tuple(shared[name] for name in ("sequence", "committed"))
        self._closed = tuple(
            shared[name]
            for name in ("queue", "queue_sequence", "queue_steps", "closed_as", "counters")
        )
        self._begun = tuple(shared[name] for name in ("memories", "numbers", "streams"))
        for p in range(num_rings):
            repair(
                shared["sequence"][p],
                shared["committed"][p],
                shared["queue_steps"][p],
                shared["closed_as"][p],
                shared["counters"][p, 0],
            )
        self._compile(ring)

    def decide(
        self,
        begins: Integers,
        streams: Integers,
        active: Bools,
        seen: Array,
        chosen: Array,
        log_probs: Floats,
        masks: Bools,
        memories: Floats,
        versions: Integers,
        before: Floats,
    ) -> None:
        """Write a decision of the streams that are active.

        Args:
            begins: [rows + 1] where each row's streams begin...
            streams: ...in this list of numbers.
            active: [num_streams].
            seen: [num_streams, size] what each saw, unstacked.
            chosen: [num_streams, action_size] what each does.
            log_probs: [num_streams], of what was chosen when it was chosen.
            masks: [num_streams, mask_size] what each was allowed to do.
            memories: [num_streams, memory] what each had kept before it saw this.
            versions: [rows] of the weights that chose.
            before: [num_streams] what each has been given in this turn so far; it belongs to the
                decision before.
        """
        _decide_dealt(
            self._contents,
            self._books,
            self._begun,
            self._closed,
            self._n_frames,
            self._slots,
            self._lengths,
            self._rows,
            begins,
            streams,
            active,
            seen,
            chosen,
            log_probs,
            masks,
            memories,
            versions,
            before,
            self._watched,
            self._rings,
        )
        self._ring()

    def outcome(
        self,
        begins: Integers,
        streams: Integers,
        active: Bools,
        rewards: Floats,
        terminated: Bools,
        truncated: Bools,
        last_seen: Array,
        last_masks: Bools,
    ) -> None:
        """Write what came of the decisions.

        Args:
            begins: [rows + 1] where each row's streams begin...
            streams: ...in this list of numbers.
            active: [num_streams] who decided in this turn.
            rewards: [num_streams] of the whole turn.
            terminated: [num_streams].
            truncated: [num_streams].
            last_seen: [num_streams, size] what was seen after the turn; read only for streams whose
                episode ended.
            last_masks: [num_streams, mask_size] what is allowed after the turn; read only for
                streams that were truncated, where `keeps_last_mask` says so.
        """
        _outcome_dealt(
            self._results,
            self._books,
            self._closed,
            self._n_frames,
            self._slots,
            self._lengths,
            self._rows,
            begins,
            streams,
            active,
            rewards,
            terminated,
            truncated,
            last_seen,
            last_masks if self.keeps_last_mask else self._no_last_masks,
            self._watched,
            self._rings,
        )
        self._ring()

    def clear(self, row: int) -> bool:
        """Forget all that is in the ring of this row, whose streams nobody plays.

        A learner waits for new steps from then on. If the actor dies on the way, some segments are
        empty and some not; whoever wanted it does it again. False: this row's ring is elsewhere.
        """
        for p in np.flatnonzero(self._rows == row):
            clear_ring(
                self._shared["sequence"][p],
                self._shared["committed"][p],
                self._shared["counters"][p, 0],
            )
            return True
        return False

    def wake(self, row: int) -> None:
        """Ring the learner of this row, if its ring is here."""
        for p in np.flatnonzero(self._rows == row):
            self._learners[p].ring()

    def close_orphans(self) -> None:
        """Close what a writer before this one had open when it died, so that it can be taken.

        Not for a writer that will be restored: it goes on with these segments.
        """
        shared = self._shared
        for p in range(len(self._rows)):
            close_orphans_of(
                shared["sequence"][p],
                shared["committed"][p],
                shared["queue"][p],
                shared["queue_sequence"][p],
                shared["queue_steps"][p],
                shared["closed_as"][p],
                shared["counters"][p, 0],
            )

    def state(self) -> State:
        """Which segments the streams have open; the rings save the segments themselves."""
        return {"slots": self._slots.copy(), "lengths": self._lengths.copy()}

    def holds(self, state: State) -> bool:
        """Whether the rings have the segments that were open when `state` was called."""
        slots = fitting(state, "slots", self._slots)
        rings, streams = np.nonzero(slots != NOWHERE)
        return bool((self._shared["sequence"][rings, slots[rings, streams]] > 0).all())

    def restore(self, state: State) -> None:
        """Go on writing where `state` was called; the rings must be as they were then."""
        self._slots[...] = fitting(state, "slots", self._slots)
        self._lengths[...] = fitting(state, "lengths", self._lengths)

    def _compile(self, ring: ExperienceRing) -> None:
        """Compile the kernels, by a turn in which no stream takes part."""
        streams, shape, shared = ring.num_streams, ring.shape, self._shared
        rows = int(self._rows.max()) + 1
        begins: Integers = np.zeros(rows + 1, np.int64)
        none: Integers = np.zeros(0, np.int64)
        nobody: Bools = np.zeros(streams, np.bool_)
        given: Floats = np.zeros(streams, np.float32)
        seen = np.zeros((streams, shape.size), shape.dtype)
        chosen = np.zeros((streams, shape.action_size), shape.action_dtype)
        masks: Bools = np.ones((streams, shape.mask_size), np.bool_)
        memories: Floats = np.zeros((streams, shape.memory), np.float32)
        versions: Integers = np.zeros(rows, np.int64)
        self.decide(begins, none, nobody, seen, chosen, given, masks, memories, versions, given)
        self.outcome(begins, none, nobody, given, nobody, nobody, seen, masks)
        close_orphans_of(
            shared["sequence"][0][:0],
            shared["committed"][0][:0],
            shared["queue"][0][:0],
            shared["queue_sequence"][0][:0],
            shared["queue_steps"][0][:0],
            shared["closed_as"][0][:0],
            np.zeros_like(shared["counters"][0, 0]),
        )
        clear_ring(
            shared["sequence"][0][:0],
            shared["committed"][0][:0],
            np.zeros_like(shared["counters"][0, 0]),
        )

    def _ring(self) -> None:
        """Wake the learners that have enough to train on now."""
        if self._rings.any():
            for p in np.flatnonzero(self._rings):
                self._learners[p].ring()
