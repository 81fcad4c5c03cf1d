"""Checks of a writer's saved state: open segments and the steps in them."""

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
    """Return the saved `slots` and `lengths`; raise CheckpointError where they do not fit."""
    segments, steps = Range(NOWHERE, ring.num_segments - 1), Range(0, ring.segment_length)
    table = {"slots": (like["slots"], segments), "lengths": (like["lengths"], steps)}
    return fitting_all(state, table)


def check_open(state: State, ring: ExperienceRing, slots: Integers, lengths: Integers) -> None:
    """Raise CheckpointError unless streams [N] can continue these segments at these steps."""
    open_, steps = slots[slots != NOWHERE], lengths[slots != NOWHERE]
    fits = len(np.unique(open_)) == len(open_) < max(ring.num_segments, 1)
    require(state, "slots", fits, "streams have different segments, and one is free")
    shared = ring.shared
    fits = bool((shared["closed_as"][open_] == OPEN).all() and (steps >= 1).all())
    require(state, "slots", fits, "a segment that is written is open, and has a step")
    fits = bool((shared["committed"][open_] <= steps).all())
    require(state, "lengths", fits, "no more steps are committed")


def check_steps(state: State, ring: ExperienceRing, actions: Array) -> None:
    """Raise CheckpointError where a current action [N, action_size] is out of range."""
    ring.check_actions(state, actions[:, None], np.ones(len(actions), np.int64))
