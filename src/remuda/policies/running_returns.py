"""The running scale of returns, by which rewards are normalised."""

from __future__ import annotations

import numpy as np

from remuda.checkpoint.fitting import FINITE_64, fitting, require
from remuda.experience.segments import AFTER
from remuda.kernels import njit
from remuda.policies.advantages import RunningMoments
from remuda.types import Floats, Integers, State


class RunningReturns:
    """Moments of the discounted sums of one policy's rewards (as in OpenAI Baselines).

    Each stream's sum continues across segments until its episode terminates. Unlike in Baselines,
    truncation does not reset it, because segments do not distinguish it from their own end. So
    where episodes are truncated after a few steps, rewards are scaled down more.
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
        """Return the moments and each stream's sum."""
        moments = np.array([self._moments.mean, self._moments.variance, self._moments.count])
        return {"moments": moments, "sums": self._sums.copy()}

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""
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
