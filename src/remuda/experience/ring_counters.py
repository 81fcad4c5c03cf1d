"""Sums over the counters of a policy's rings, and wishes to be rung."""

from __future__ import annotations

import numpy as np

from remuda.experience.ring import CLOSED_STEPS, TAKEN_STEPS, WANTED
from remuda.kernels import njit
from remuda.memory.atomic import fence_full, load, store
from remuda.types import Integers


@njit(cache=True)
def total(counters: Integers, word: int) -> int:
    """Return a counter, summed over all rings."""
    count = 0
    for actor in range(counters.shape[0]):
        count += load(counters[actor], word)
    return count


@njit(cache=True)
def untaken(counters: Integers) -> int:
    """Return the steps that were closed and not taken."""
    return total(counters, CLOSED_STEPS) - total(counters, TAKEN_STEPS)


@njit(cache=True)
def has_steps(counters: Integers, word: int, steps: int) -> bool:
    """Return whether the rings have so many steps together; if not, a writer will ring.

    Each writer is to ring once its ring has grown by an equal share of what is missing: one must,
    before there is enough. The wish is stated before the check, and a writer commits before it
    looks for a wish, so one always sees the other. Where a ring passed its share before its writer
    could see the wish, the wishes are stated again.
    """
    actors = counters.shape[0]
    grown = np.zeros(actors, np.int64)
    while True:
        missing = steps
        for actor in range(actors):
            grown[actor] = load(counters[actor], word)
            missing -= grown[actor]
        if missing <= 0:
            return True
        grown += -(-missing // actors)
        for actor in range(actors):
            store(counters[actor], WANTED, grown[actor])
        fence_full()
        together = 0
        in_time = True
        for actor in range(actors):
            found = load(counters[actor], word)
            together += found
            in_time &= found < grown[actor]
        if together >= steps:
            return True
        if in_time:
            return False
