"""Tuples of the arrays that kernels read and write.

Arrays of one ring are [segments, ...] (`remuda.experience.ring.fields_of`), those of a turn
[streams, ...].
"""

from __future__ import annotations

from typing import NamedTuple

from remuda.types import Array, Bools, Floats, Integers


class Segments(NamedTuple):
    """The arrays of a ring's segments, and the queue of closed ones."""

    sequence: Integers
    committed: Integers
    closed_as: Integers
    queue: Integers
    queue_sequence: Integers
    queue_steps: Integers
    counters: Integers


class Beginnings(NamedTuple):
    """The arrays that are written when a segment is begun."""

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


class Outcomes(NamedTuple):
    """The arrays of a ring that an outcome is written to."""

    observations: Array
    masks: Bools
    rewards: Floats
    discounts: Floats


class OpenSegments(NamedTuple):
    """The open segment of each stream of a ring, and its steps so far."""

    slots: Integers
    lengths: Integers


class StreamPlan(NamedTuple):
    """The streams of row k: `streams[begins[k] : begins[k + 1]]`."""

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
