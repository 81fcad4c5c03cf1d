"""Advantages of steps that lie one segment after another."""

from __future__ import annotations

import numpy as np

from remuda.kernels import njit
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


@njit(cache=True)
def vtrace(
    r_t: Floats,
    discount_t: Floats,
    values: Floats,
    after: Bools,
    ratios: Floats,
    trace_decay: float,
    most: float,
    advantages: Floats,
    targets: Floats,
) -> None:
    """V-trace (Espeholt et al. 2018, section 4.1): corrected for who acted, step by step.

    Each temporal-difference error is weighted by how likelier the action is now than when it was
    chosen, at most `most`; what follows it is cut by that too, at most 1. Where nothing has changed
    this is `generalised_advantages`: with lambda 1, targets are n-step returns.

    Args:
        r_t: [R] rewards.
        discount_t: [R] what the next row's value counts; 0 after a termination.
        values: [R] values of what was seen.
        after: [R] the row holds no step, but what was seen after the last step of a segment.
        ratios: [R] of the action's probability now to that when it was chosen.
        trace_decay: lambda, in the traces, and as in Espeholt et al.'s later code (RLax) in what
            an action is credited with.
        most: the most that an error counts; rho-bar.
        advantages: [R] to be written: what to credit the action with, before its own weight.
        targets: [R] to be written: of the values.
    """
    beyond = 0.0  # what the targets of the next row are above its value
    for i in range(r_t.size - 1, -1, -1):
        if after[i]:
            beyond = 0.0
            advantages[i] = 0.0
            targets[i] = values[i]
            continue
        error = r_t[i] + discount_t[i] * values[i + 1] - values[i]
        advantages[i] = error + discount_t[i] * trace_decay * beyond
        weight, cut = min(ratios[i], most), min(ratios[i], 1.0)
        beyond = weight * error + discount_t[i] * trace_decay * cut * beyond
        targets[i] = values[i] + beyond


def effective_share(ratios: np.ndarray) -> float:
    """The effective sample size of weighted samples [N], as a share of them (Kong 1992): 0 to 1.

    (sum w)^2 / (N sum w^2): 1 where all weigh the same, 1 / N where one outweighs all.
    """
    squares = float(np.square(ratios, dtype=np.float64).sum())
    return float(ratios.sum(dtype=np.float64)) ** 2 / (len(ratios) * squares) if squares else 0.0


@njit(cache=True)
def explained_variance(values: Floats, targets: Floats, after: Bools) -> float:
    """The share of the targets' variance that values [R] explain: 1 - Var(t - v) / Var(t).

    1 where the values are the targets but for a constant, 0 where they tell no more than a constant
    would, below that where they tell less; NaN where all targets are equal.

    Args:
        values: [R] what was thought of the rows.
        targets: [R] what they should have been.
        after: [R] the row holds no step, and does not count.
    """
    count, mean_target, mean_error = 0, 0.0, 0.0
    for i in range(values.size):
        if not after[i]:
            count += 1
            mean_target += targets[i]
            mean_error += targets[i] - values[i]
    mean_target, mean_error = mean_target / max(count, 1), mean_error / max(count, 1)
    of_targets = of_errors = 0.0
    for i in range(values.size):
        if not after[i]:
            of_targets += (targets[i] - mean_target) ** 2
            of_errors += (targets[i] - values[i] - mean_error) ** 2
    return 1.0 - of_errors / of_targets if of_targets > 0.0 else np.nan


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
