"""Advantages of steps that lie one segment after another."""

from __future__ import annotations

import numpy as np
from numba import njit

from remuda.types import Bools, Floats


@njit(cache=True)
def generalised_advantages(
    r_t: Floats,
    discount_t: Floats,
    values: Floats,
    after: Bools,
    trace_decay: float,
    advantages: Floats,
) -> None:
    """Generalised advantage estimates (Schulman et al. 2016, equation 16).

    Sums the temporal-difference errors of what follows in the same segment, each further one
    weighted less by `discount * trace_decay`. A segment that was cut off, by its length or by a
    truncated episode, counts the value of what was seen after it; one that terminated counts
    nothing.

    Args:
        r_t: [R] rewards.
        discount_t: [R] what the next row's value counts; 0 after a termination.
        values: [R] values of what was seen.
        after: [R] the row holds no step, but what was seen after the last step of a segment.
        trace_decay: lambda; 0 looks one step ahead, 1 to the segment's end.
        advantages: [R] to be written; added to `values` they are the targets of the values. 0 in
            rows that hold no step.
    """
    following = 0.0
    for i in range(r_t.size - 1, -1, -1):
        if after[i]:
            following = 0.0
        else:
            error = r_t[i] + discount_t[i] * values[i + 1] - values[i]
            following = error + discount_t[i] * trace_decay * following
        advantages[i] = following


class RunningMoments:
    """Mean and variance of everything seen so far (Chan et al. 1983), by batches."""

    def __init__(self, mean: np.ndarray, variance: np.ndarray, count: float) -> None:
        self.mean, self.variance, self.count = mean, variance, count

    def add(self, batch: np.ndarray) -> None:
        """Count a batch [B, ...] in."""
        if len(batch) == 0:
            return
        mean, variance, count = batch.mean(0), batch.var(0), float(len(batch))
        total = self.count + count
        apart = mean - self.mean
        squares = self.variance * self.count + variance * count
        squares = squares + apart * apart * (self.count * count / total)
        self.mean = self.mean + apart * (count / total)
        self.variance, self.count = squares / total, total
