"""The ranges of what a writer restores: which segments its streams write, and how far they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from remuda.checkpoint.fitting import Range, fitting_all, require
from remuda.experience.ring import OPEN, ExperienceRing
from remuda.experience.write_kernels import NOWHERE
from remuda.types import Array, Integers, State


def check_places(
    state: State, ring: ExperienceRing, like: Mapping[str, Integers]
) -> dict[str, Array]:
    """Return the saved places of some streams, each of which is in a ring like this.

    Args:
        state: of a writer.
        ring: one of its rings; the others have as many segments.
        like: `slots` and `lengths`, as they are now.

    Raises:
        CheckpointError: one of them is not.
    """
    segments, steps = Range(NOWHERE, ring.num_segments - 1), Range(0, ring.segment_length)
    table = {"slots": (like["slots"], segments), "lengths": (like["lengths"], steps)}
    return fitting_all(state, table)


def check_open(state: State, ring: ExperienceRing, slots: Integers, lengths: Integers) -> None:
    """Raise CheckpointError unless streams [N] can write on in these segments, at these steps.

    Args:
        state: of their writer.
        ring: as it was restored.
        slots: [N] the segment of each stream, or `NOWHERE`.
        lengths: [N] its steps in there, the last of which is not committed.
    """
    open_, steps = slots[slots != NOWHERE], lengths[slots != NOWHERE]
    fits = len(np.unique(open_)) == len(open_) < max(ring.num_segments, 1)
    require(state, "slots", fits, "each stream has a segment of its own, and one is free")
    shared = ring.shared
    fits = bool((shared["closed_as"][open_] == OPEN).all() and (steps >= 1).all())
    require(state, "slots", fits, "a segment that is written is open, and has a step")
    fits = bool((shared["committed"][open_] <= steps).all())
    require(state, "lengths", fits, "no more steps are committed")


def check_steps(state: State, ring: ExperienceRing, actions: Array) -> None:
    """Raise CheckpointError where an action of the steps that streams are at is no choice.

    Args:
        state: of their writer.
        ring: that they are written into.
        actions: [N, action_size].
    """
    ring.check_actions(state, actions[:, None], np.ones(len(actions), np.int64))
