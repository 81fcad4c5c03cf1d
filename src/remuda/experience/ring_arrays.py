"""The arrays that kernels write, and those that they write from: what belongs together.

Arrays of one ring are [segments, ...] (`remuda.experience.ring.fields_of`), those of a turn
[streams, ...].
"""

from __future__ import annotations

from typing import NamedTuple

from remuda.types import Array, Bools, Floats, Integers


class Segments(NamedTuple):
    """What readers of a ring know of its segments, and the queue of those that are closed."""

    sequence: Integers
    committed: Integers
    closed_as: Integers
    queue: Integers
    queue_sequence: Integers
    queue_steps: Integers
    counters: Integers


class Beginnings(NamedTuple):
    """What is noted of a ring's segments when they are begun."""

    memories: Floats
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


class Places(NamedTuple):
    """Where the streams of a ring write: the segment each has open, and its steps so far."""

    slots: Integers
    lengths: Integers


class Plan(NamedTuple):
    """Who plays which streams: those of row k are `streams[begins[k] : begins[k + 1]]`."""

    begins: Integers
    streams: Integers


class Choices(NamedTuple):
    """What the streams decide in a turn."""

    active: Bools
    """Which of them do."""
    observations: Array
    actions: Array
    log_probs: Floats
    masks: Bools
    recurrent_states: Floats
    """What each carried over from its step before."""
    rewards_before: Floats
    """What the turn has given each before it decided."""
    versions: Integers
    """By row, of the weights that chose."""


class Results(NamedTuple):
    """What comes of a turn for the streams."""

    acted: Bools
    rewards: Floats
    terminated: Bools
    truncated: Bools
    final_observations: Array
    final_masks: Bools
