"""All committed steps of a ring, one by one."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class RingStep:
    slot: int
    t: int
    """Its place in its segment."""
    stream: int
    is_first: bool
    """Whether a piece begins with it."""
    ends: bool
    """Whether its episode ends with it."""
    seen: Any
    after: Any
    """What was observed next in its episode."""


def steps_in(ring):
    """Each committed step of a ring, segment by segment; arrays are views."""
    shared, newest = ring.shared, ring.shape.n_frames - 1
    for slot in np.flatnonzero(shared["committed"]):
        start = 0
        for t in range(shared["committed"][slot]):
            ends = bool(shared["discounts"][slot, t] != 1.0)
            after = shared["observations"][slot, newest + t + 1]
            if ends:
                after = shared["final_observations"][slot, t]
            stream, seen = int(shared["streams"][slot, start]), shared["observations"][slot]
            yield RingStep(int(slot), t, stream, t == start, ends, seen[newest + t], after)
            start = t + 1 if ends else start
