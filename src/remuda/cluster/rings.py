"""A ring on the node of its learner that follows the ring on the node of its actor.

An actor writes into the ring on its own node, and waits there, where the user lets it, by the words
of the learner that a bridge writes for it. The learner reads the ring on its own node, which a
bridge writes in the order of the actor. So neither knows of the other's node.

Who writes what, and what if it dies there: on the node of the learner the bridge is the ring's only
writer. One that dies leaves an odd sequence, or steps that are not committed, as an actor does; its
successor asks for what it does not have (`Following.holds`), so that they come again. On the node
of the actor the bridge only reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda.cluster import ring_kernels as kernels
from remuda.cluster.ring_kernels import COLUMNS, CUT, ENTRY, FITS, NOT_THE_SAME, WORDS, RingParts
from remuda.errors import RemudaError
from remuda.experience.experience import Experience
from remuda.experience.ring import CLOSED_STEPS, WRITTEN, ExperienceRing
from remuda.types import Array, Integers

STEPS = ("actions", "log_probs", "rewards", "discounts", "versions")
"""The arrays that have a row for each step, and no other."""


@dataclass
class News:
    """What was added to a ring."""

    is_whole: bool
    """Whether it is all there is; if not, nothing is counted before the rest comes."""
    words: Integers
    """[WORDS], or none while it is not whole."""
    heads: Integers
    """[segments, COLUMNS]."""
    entries: Integers
    """[entries, ENTRY] of the queue."""
    payload: Array
    """The bytes of the segments, of uint8."""


class Followed:
    """A ring whose actor is here, as a learner elsewhere is told of it.

    It belongs to the link to that node, and begins anew with it.
    """

    def __init__(self, ring: ExperienceRing) -> None:
        self._ring = ring
        self._fields, self._layout = _bytes_of(ring)
        self._parts = _parts_of(ring)
        segments = ring.num_segments
        self._sent = kernels.Sent(
            np.full(segments, -1, np.int64),
            np.zeros(segments, np.int64),
            np.full(WORDS, -1, np.int64),
        )
        self._sent.words[4] = 0  # the queue comes from its beginning
        self._words: Integers = np.zeros(WORDS, np.int64)
        self._heads: Integers = np.zeros((segments, COLUMNS), np.int64)
        self._entries: Integers = np.zeros((segments, ENTRY), np.int64)
        self._is_pending = True
        self.largest = int(self._layout[:, 0] @ self._layout[:, 2]) + self._parts.memories.shape[1]
        """The most bytes of a segment."""

    def holds(self, sequence: Integers, committed: Integers) -> None:
        """Take note of what the peer has: [segments] each; nothing of it is sent again."""
        self._sent.sequence[:], self._sent.committed[:] = sequence, committed

    def news(self, payload: Array, at: int) -> tuple[News, int] | None:
        """What was added since it was asked last; None: nothing.

        It holds until it is asked again.
        """
        words = self._words
        if not (kernels.has_changed(self._parts, self._sent, words) or self._is_pending):
            return None
        outcome, heads, entries, end = kernels.collect(
            self._fields,
            self._layout,
            self._parts,
            self._sent,
            words,
            self._heads,
            self._entries,
            payload,
            at,
        )
        self._is_pending = outcome != FITS
        if outcome == CUT:
            entries, told = 0, words[:0]
        else:
            self._sent.words[:] = told = words
        return (
            News(
                outcome != CUT, told, self._heads[:heads], self._entries[:entries], payload[at:end]
            ),
            end,
        )


class Following:
    """A ring whose actor is elsewhere: the bridge writes it in that actor's place."""

    def __init__(self, experience: Experience, actor: int) -> None:
        ring = experience.rings[actor]
        self._experience, self._ring = experience, ring
        self._fields, self._layout = _bytes_of(ring)
        self._parts = _parts_of(ring)
        self._watched = CLOSED_STEPS if experience.rollout else WRITTEN
        kernels.mend(self._parts)

    @property
    def holds(self) -> tuple[Integers, Integers]:
        """What it has: the sequence and the committed steps of its segments, [segments] each."""
        return self._parts.sequence.copy(), self._parts.committed.copy()

    def write(self, news: News) -> None:
        """Write down what was added, and wake the learner if it waits for that."""
        found = kernels.follow(
            self._fields,
            self._layout,
            self._parts,
            news.words,
            news.heads,
            news.entries,
            news.payload,
            self._watched,
        )
        if found == NOT_THE_SAME:
            raise RemudaError("steps came that do not go on from those that are here")
        if found or (news.words.size and self._ring.tight):
            self._experience.learner.ring()


def mend(ring: ExperienceRing) -> None:
    """Let its counts agree, whatever its bridge died in; an actor is to write it from now on."""
    kernels.mend(_parts_of(ring))


def warm_up(experience: Experience) -> None:
    """Compile what both ends call, by a ring that is neither read nor written."""
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
    names = RingParts._fields[:-2]
    arrays = [shared[name] for name in names]
    return RingParts._make([*arrays, _flat(shared["memories"]), ring.counters])


def _bytes_of(ring: ExperienceRing) -> tuple[tuple[Array, ...], Integers]:
    """The arrays of its steps as bytes, each [segments, bytes], and how their rows lie."""
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
    """The same memory as bytes: [segments, bytes]."""
    segments = len(array)
    if not array.size:
        return np.zeros((segments, 0), np.uint8)
    return array.reshape(segments, -1).view(np.uint8)
