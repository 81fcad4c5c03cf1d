"""Advantage estimates over consecutive segments, and running moments, also of returns."""

from __future__ import annotations

import numpy as np

from remuda.checkpoint.fitting import FINITE_64, fitting, require
from remuda.experience.segments import AFTER
from remuda.kernels import njit
from remuda.types import Bools, Floats, Integers, State


@njit(cache=True)
def generalised_advantages(
    r_t: Floats,  # [R]
    discount_t: Floats,  # [R] 0 after a termination
    values: Floats,  # [R]
    after: Bools,  # [R] rows of final observations, without a step
    trace_decay: float,  # lambda
    advantages: Floats,  # [R], written; 0 in rows without a step
) -> None:
    """Write generalised advantage estimates (Schulman et al. 2016, equation 16).

    A segment that was cut off, by its length or by truncation, bootstraps from its final value.
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
    ratios: Floats,  # [R] importance ratios
    trace_decay: float,
    most: float,  # rho-bar
    advantages: Floats,  # [R], written, before the action's own weight
    targets: Floats,  # [R], written
) -> None:
    """Write V-trace targets and advantages (Espeholt et al. 2018, section 4.1).

    Errors are weighted by ratios up to `most`; what follows is cut by ratios up to 1. Lambda also
    applies to the advantages, as in RLax.
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
    """Return the effective sample share (sum w)^2 / (N sum w^2) of weights [N] (Kong 1992)."""
    squares = float(np.square(ratios, dtype=np.float64).sum())
    return float(ratios.sum(dtype=np.float64)) ** 2 / (len(ratios) * squares) if squares else 0.0


@njit(cache=True)
def explained_variance(values: Floats, targets: Floats, after: Bools) -> float:
    """Return the share 1 - Var(t - v) / Var(t) of variance explained, NaN if Var(t) is 0."""
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
    """Mean and variance of all samples so far, updated by batches (Chan et al. 1983)."""

    def __init__(self, mean: np.ndarray, variance: np.ndarray, count: float) -> None:
        self.mean, self.variance, self.count = mean, variance, count

    def add(self, batch: np.ndarray) -> None:
        """Add a batch [B, ...]."""
        if len(batch) == 0:
            return
        mean, variance, count = batch.mean(0), batch.var(0), float(len(batch))
        total = self.count + count
        apart = mean - self.mean
        squares = self.variance * self.count + variance * count
        squares = squares + apart * apart * (self.count * count / total)
        self.mean = self.mean + apart * (count / total)
        self.variance, self.count = squares / total, total


class RunningReturns:
    """Moments of the discounted sums of one policy's rewards (as in OpenAI Baselines).

    A stream's sum ends with termination only: segments do not tell truncation from their own end.
    """

    def __init__(self, mean: float = 0.0, variance: float = 1.0, count: float = 0.0) -> None:
        self._moments = RunningMoments(np.array(mean), np.array(variance), count)
        self._sums: np.ndarray = np.zeros(0)

    def scale(self, rewards: Floats, discounts: Floats, streams: Integers) -> np.float32:
        """Add a rollout's rewards and return the factor to multiply them by."""
        needed = int(streams.max()) + 1
        if needed > self._sums.size:
            self._sums = np.concatenate((self._sums, np.zeros(needed - self._sums.size)))
        self._moments.add(running_sums(rewards, discounts, streams, self._sums))
        return np.float32(1.0 / np.sqrt(self._moments.variance + 1e-8))

    def state(self) -> State:
        moments = np.array([self._moments.mean, self._moments.variance, self._moments.count])
        return {"moments": moments, "sums": self._sums.copy()}

    def restore(self, state: State) -> None:
        mean, variance, count = fitting(state, "moments", np.zeros(3), FINITE_64)
        require(
            state, "moments", variance >= 0.0 and count >= 0.0, "variance and count are 0 or more"
        )
        self._moments = RunningMoments(np.asarray(mean), np.asarray(variance), float(count))
        sums = state["sums"]
        require(
            state, "sums", isinstance(sums, np.ndarray) and sums.ndim == 1, "one for each stream"
        )
        self._sums = fitting(state, "sums", np.empty(len(sums)), FINITE_64).copy()


@njit(cache=True)
def running_sums(
    rewards: Floats, discounts: Floats, streams: Integers, sums: np.ndarray
) -> np.ndarray:
    """Return the discounted sum of rewards up to each step, and update each stream's `sums`."""
    found = np.zeros(rewards.size)
    count = 0
    for i in range(rewards.size):
        stream = streams[i]
        if stream == AFTER:
            continue
        sums[stream] += rewards[i]
        found[count] = sums[stream]
        sums[stream] *= discounts[i]
        count += 1
    return found[:count]
