"""A heap of the segments that finished episodes left open: the oldest is continued first.

It is the field `paused` of `OpenSegments` if streams share segments: slots, then `NOWHERE`. An
entry's children are at twice its index, plus 1 and plus 2, and no child is older. `numbers` [S] are
those of the ring, which increase with each segment that is started.
"""

from __future__ import annotations

import numpy as np

from remuda.experience.ring_block import NOWHERE
from remuda.system.kernels import njit
from remuda.types import Integers


@njit(cache=True, _nrt=False)
def _count(paused: Integers) -> int:
    low, high = 0, paused.size
    while low < high:
        middle = (low + high) // 2
        if paused[middle] == NOWHERE:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, _nrt=False)
def push(numbers: Integers, paused: Integers, slot: int) -> None:
    """Add a segment; there must be room."""
    at = _count(paused)
    while at > 0:
        above = (at - 1) // 2
        if numbers[paused[above]] < numbers[slot]:
            break
        paused[at] = paused[above]
        at = above
    paused[at] = slot


@njit(cache=True, _nrt=False)
def pop(numbers: Integers, paused: Integers) -> int:
    """Remove and return the oldest segment, or return `NOWHERE`."""
    oldest: int = paused[0]
    if oldest == NOWHERE:
        return oldest
    last = _count(paused) - 1
    moved = paused[last]
    paused[last] = NOWHERE
    at = 0
    while 2 * at + 1 < last:
        child = 2 * at + 1
        if child + 1 < last and numbers[paused[child + 1]] < numbers[paused[child]]:
            child += 1
        if numbers[moved] < numbers[paused[child]]:
            break
        paused[at] = paused[child]
        at = child
    if last > 0:
        paused[at] = moved
    return oldest


def oldest_first(numbers: Integers, paused: Integers) -> Integers:
    """Return the heap of these slots whose entries are in order."""
    slots = paused[paused != NOWHERE]
    found: Integers = np.full_like(paused, NOWHERE)
    found[: len(slots)] = slots[np.argsort(numbers[slots])]
    return found
