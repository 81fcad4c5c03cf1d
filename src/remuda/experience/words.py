"""Sums over the words of a policy's rings, one row for each actor."""

from __future__ import annotations

from remuda.experience.ring import CLOSED_STEPS, TAKEN_STEPS
from remuda.kernels import njit
from remuda.memory.atomic import load
from remuda.types import Integers


@njit(cache=True)
def total(counters: Integers, word: int) -> int:
    """A word, summed over all rings."""
    count = 0
    for actor in range(counters.shape[0]):
        count += load(counters[actor], word)
    return count


@njit(cache=True)
def untaken(counters: Integers) -> int:
    """Steps that were closed and not taken."""
    return total(counters, CLOSED_STEPS) - total(counters, TAKEN_STEPS)
