"""Advantages of steps that lie one segment after another."""

from __future__ import annotations

import numpy as np
from numba import njit

from remuda.types import Bools, Floats


@njit(cache=True)
def generalised_advantages(
    r_t: Floats,
    discount_t: Floats,
    v_tm1: Floats,
    v_t: Floats,
    ends: Bools,
    trace_decay: float,
) -> np.ndarray:
    """Generalised advantage estimates (Schulman et al. 2016, equation 16).

    Sums the temporal-difference errors of what follows in the same segment, each further one
    weighted less by `discount * trace_decay`. A segment that was cut off, by its length or by a
    truncated episode, counts the value of what it saw last; one that terminated counts nothing.

    Args:
        r_t: [B] rewards.
        discount_t: [B] what v_t counts; 0 after a termination.
        v_tm1: [B] values of what was seen before the action.
        v_t: [B] values of what followed.
        ends: [B] whether a step is the last of its segment.
        trace_decay: lambda; 0 looks one step ahead, 1 to the segment's end.

    Returns:
        [B] float32 advantages; added to v_tm1 they are the targets of the values.
    """
    advantages = np.empty(r_t.size, np.float32)
    following = 0.0
    for i in range(r_t.size - 1, -1, -1):
        if ends[i]:
            following = 0.0
        error = r_t[i] + discount_t[i] * v_t[i] - v_tm1[i]
        following = error + discount_t[i] * trace_decay * following
        advantages[i] = following
    return advantages


@njit(cache=True)
def normalise(advantages: Floats) -> None:
    """Give advantages [B] mean 0 and standard deviation 1, in place.

    A batch of one, or of equal advantages, has no deviation to divide by: it is left with mean 0.
    """
    mean = advantages.mean()
    deviation = advantages.std()
    scale = 1.0 / deviation if deviation > 1e-8 else 0.0
    for i in range(advantages.size):
        advantages[i] = (advantages[i] - mean) * scale
