"""The copy of an actor's ring on the node of its learner.

The learner reads the copy on its node. The bridge of that node is the copy's only writer, and
writes in the same order as the actor. An actor that may wait reads the learner's counters, which
the bridge of the actor's node writes. A bridge that dies leaves an odd sequence number or
uncommitted steps, as an actor does. Its successor requests the missing data (`RingIn.holds`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remuda.cluster import ring_kernels as kernels
from remuda.cluster.ring_kernels import (
    AS_BYTES,
    COLUMNS,
    CUT,
    ENTRY,
    FITS,
    NOT_THE_SAME,
    WORDS,
    RingParts,
)
from remuda.errors import RemudaError
from remuda.experience.experience import Experience
from remuda.experience.ring import CLOSED_STEPS, WRITTEN, ExperienceRing
from remuda.types import Array, Integers

# arrays with exactly one row for each step
STEPS = ("actions", "log_probs", "rewards", "discounts", "versions", "streams")


class RingUpdate(NamedTuple):
    """New data of a ring; if `words` is empty, learners do not see the data until more arrives."""

    words: Integers  # [WORDS]
    heads: Integers  # [segments, COLUMNS]
    entries: Integers  # [entries, ENTRY] of the queue
    payload: Array  # [bytes] uint8 of the segments


class RingOut:
    """The sender of a ring from its actor's node to its learner's node, over one link."""

    def __init__(self, ring: ExperienceRing) -> None:
        self._ring, self._parts, segments = ring, _parts_of(ring), ring.num_segments
        self._bytes = _, layout = _bytes_of(ring)
        unknown: Integers = np.full(segments, -1, np.int64)
        sent_words: Integers = np.full(WORDS, -1, np.int64)
        sent_words[4] = 0  # send the queue from its start
        self._sent = kernels.Sent(unknown, np.zeros(segments, np.int64), sent_words)
        self._words: Integers = np.zeros(WORDS, np.int64)
        self._heads: Integers = np.zeros((segments, COLUMNS), np.int64)
        self._entries: Integers = np.zeros((segments, ENTRY), np.int64)
        self._is_pending = True
        # maximum bytes of a segment
        self.largest = int(layout[:, 0] @ layout[:, 2]) + sum(
            getattr(self._parts, name).shape[1] for name in AS_BYTES
        )

    def holds(self, sequence: Integers, committed: Integers) -> None:
        """Record the sequence numbers and committed steps that the peer has, [segments] each."""
        self._sent.sequence[:], self._sent.committed[:] = sequence, committed

    def news(self, payload: Array, at: int) -> tuple[RingUpdate, int] | None:
        """Return the data added since the last call, and its end in `payload`; None if no data.

        The result is valid until the next call.
        """
        words = self._words
        if not (kernels.has_changed(self._parts, self._sent, words) or self._is_pending):
            return None
        source, to = (*self._bytes, self._parts, self._sent), (self._heads, self._entries)
        outcome, heads, entries, end = kernels.collect(*source, words, *to, payload, at)
        self._is_pending = outcome != FITS
        if outcome == CUT:
            entries, words = 0, words[:0]
        else:
            self._sent.words[:] = words
        update = (words, self._heads[:heads], self._entries[:entries], payload[at:end])
        return RingUpdate(*update), end


class RingIn:
    """The writer of a ring whose actor is on another node."""

    def __init__(self, experience: Experience, actor: int) -> None:
        ring = experience.rings[actor]
        self._experience, self._ring = experience, ring
        self._bytes, self._parts = _bytes_of(ring), _parts_of(ring)
        self._watched = CLOSED_STEPS if experience.rollout else WRITTEN
        kernels.mend(self._parts)

    @property
    def holds(self) -> tuple[Integers, Integers]:
        """The sequence numbers and committed steps of the ring's segments, [segments] each."""
        return self._parts.sequence.copy(), self._parts.committed.copy()

    def write(self, news: RingUpdate) -> None:
        outcome = kernels.follow(*self._bytes, self._parts, *news, self._watched)
        if outcome == NOT_THE_SAME:
            raise RemudaError("the received steps do not continue the stored ones")
        if outcome or (news.words.size and self._ring.tight):
            self._experience.learner.ring()


def mend(ring: ExperienceRing) -> None:
    """Repair the counters of a ring that a bridge wrote, before an actor here writes the ring."""
    kernels.mend(_parts_of(ring))


def warm_up(experience: Experience) -> None:
    """Compile the kernels of both ends by calls with an empty ring."""
    ring = experience.rings[0]
    fields, layout = _bytes_of(ring)
    parts = RingParts._make(
        [*(array[:0] for array in _parts_of(ring)[:-1]), np.zeros_like(ring.counters)]
    )
    fields = tuple(field[:0] for field in fields)
    nothing: Integers = np.zeros(0, np.int64)
    sent = kernels.Sent(nothing.copy(), nothing.copy(), np.zeros(WORDS, np.int64))
    heads, entries = np.zeros((0, COLUMNS), np.int64), np.zeros((0, ENTRY), np.int64)
    words, payload = np.zeros(WORDS, np.int64), np.zeros(0, np.uint8)
    kernels.has_changed(parts, sent, words)
    kernels.collect(fields, layout, parts, sent, words, heads, entries, payload, 0)
    kernels.follow(fields, layout, parts, words, heads, entries, payload, WRITTEN)
    ones = (np.zeros((1, *array.shape[1:]), array.dtype) for array in parts[:-1])
    one = RingParts._make([*ones, np.zeros_like(ring.counters)])
    kernels.mend(one)


def _parts_of(ring: ExperienceRing) -> RingParts:
    shared = ring.shared
    arrays = [
        _flat(shared[name]) if name in AS_BYTES else shared[name] for name in RingParts._fields[:-1]
    ]
    return RingParts._make([*arrays, ring.counters])


def _bytes_of(ring: ExperienceRing) -> tuple[tuple[Array, ...], Integers]:
    """Return the arrays of a ring's steps as bytes, each [segments, bytes], and their layout."""
    shared, shape, length = ring.shared, ring.shape, ring.segment_length
    layout = [(shape.n_frames, length + shape.n_frames), (1, shared["masks"].shape[1])]
    layout += [(0, length) for _ in STEPS]
    fields = tuple(_flat(shared[name]) for name in ("observations", "masks", *STEPS))
    rows = [
        (field.shape[1] // max(rows, 1), more, rows)
        for field, (more, rows) in zip(fields, layout, strict=True)
    ]
    return fields, np.array(rows, np.int64)


def _flat(array: Array) -> Array:
    segments = len(array)
    if not array.size:
        return np.zeros((segments, 0), np.uint8)
    return array.reshape(segments, -1).view(np.uint8)
