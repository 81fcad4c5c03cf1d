"""Adjacent rings of several policies, and the tuples of their arrays for the write kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from remuda.experience.ring import COUNTERS, StreamShape, fields_of
from remuda.system.memory.shared import Arena, SharedArrays
from remuda.types import Array, Bools, Floats, Integers

NOWHERE = -1  # the slot of a stream without an open segment


class Block:
    """Adjacent rings of several policies whose steps have the same shape.

    An actor writes the streams of all these policies in one call. Each actor has its own arrays;
    their row k is the ring of policy k. All counters are in one array, ordered by policy and then
    by actor, because `Experience` reads those of a policy together.
    """

    def __init__(
        self,
        shape: StreamShape,
        rings: int,
        length: int,
        segments: int | Sequence[int],
        arena: Arena | None = None,
    ) -> None:
        """Allocate `rings` rings for each actor, of `segments` segments, or `segments[actor]`."""
        counts = (segments,) if isinstance(segments, int) else tuple(segments)
        self.num_actors, self._rings = len(counts), rings
        # Padded at the end, so that the slice in `words_of` is complete for every actor.
        words = (rings * len(counts) + len(counts) - 1) * COUNTERS
        self._shared = []
        for actor, count in enumerate(counts):
            fields = fields_of(shape, length, count)
            found = {name: ((rings, *size), dtype) for name, (size, dtype) in fields.items()}
            if not actor:
                found["counters"] = ((words,), np.dtype(np.int64))
            self._shared.append(SharedArrays(found, arena))

    def row(self, ring: int, actor: int = 0) -> BlockRow:
        return BlockRow(self, ring, actor)

    def shared(self, actor: int) -> SharedArrays:
        return self._shared[actor]

    def words(self, ring: int) -> Integers:
        """Return the counters of a policy's rings: [num_actors, COUNTERS]."""
        size = self.num_actors * COUNTERS
        found: Integers = self._shared[0]["counters"][ring * size : (ring + 1) * size]
        return found.reshape(self.num_actors, COUNTERS)

    def words_of(self, actor: int) -> Integers:
        """Return counters [rings, COUNTERS * actors]; each row starts with those of this actor."""
        size, begin = self.num_actors * COUNTERS, actor * COUNTERS
        found: Integers = self._shared[0]["counters"][begin : begin + self._rings * size]
        return found.reshape(self._rings, size)


class BlockRow:
    """The arrays of one ring in a block; `counters` includes those of the policy's other rings."""

    def __init__(self, block: Block, ring: int, actor: int = 0) -> None:
        self.block, self.ring, self.actor = block, ring, actor
        self._found: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        found = self._found.get(name)
        if found is None:
            if name == "counters":
                found = self.block.words(self.ring)
            else:
                found = self.block.shared(self.actor)[name][self.ring]
            self._found[name] = found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockRow, (self.block, self.ring, self.actor)


class Segments(NamedTuple):
    """The arrays of a ring's segments, its queue of closed segments, and its counters."""

    sequence: Integers
    committed: Integers
    closed_as: Integers
    queue: Integers
    queue_sequence: Integers
    queue_steps: Integers
    counters: Integers


class Beginnings(NamedTuple):
    """The arrays that are written at the start of a segment, or of an episode in it."""

    recurrent_states: Floats
    numbers: Integers
    streams: Integers


class Decisions(NamedTuple):
    """The arrays of a ring that a decision is written to."""

    observations: Array
    actions: Array
    log_probs: Floats
    masks: Bools
    versions: Integers
    rewards: Floats
    discounts: Floats


class Outcomes(NamedTuple):
    """The arrays of a ring that an outcome is written to."""

    rewards: Floats
    discounts: Floats
    final_observations: Array
    final_masks: Bools


class OpenSegments(NamedTuple):
    """The open segments of a ring, by stream, and the others; the writer's own memory."""

    slots: Integers  # the segment of the stream's current episode
    lengths: Integers  # the steps of that segment
    # the segment that the stream's last episode left open; if shared, a heap (`paused_heap`)
    paused: Integers
    # [S] circular: the next segment to reuse is at HEAD, the one closed last before CLOSED
    free: Integers
    # segments that may be started after an open one before it is closed although it is not full
    patience: int
    # whether a stream may continue another's paused segment, because the policies of seats change
    shared: bool


class StreamPlan(NamedTuple):
    """The streams that row k of a stack of networks plays: `streams[begins[k] : begins[k + 1]]`."""

    begins: Integers
    streams: Integers


class Choices(NamedTuple):
    """The decisions of N streams in a turn, [N, ...] each."""

    active: Bools  # streams that decide
    observations: Array
    actions: Array
    log_probs: Floats
    masks: Bools
    recurrent_states: Floats  # before this observation
    versions: Integers  # of the acting weights, by row
    rewards_before: Floats  # rewards of this turn before the decision


class TurnOutcomes(NamedTuple):
    """The outcomes of a turn for N streams, [N, ...] each."""

    acted: Bools
    rewards: Floats
    terminated: Bools
    truncated: Bools
    final_observations: Array
    final_masks: Bools
