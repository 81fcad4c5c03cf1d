"""Advantages, value targets and importance weights of segments, and running moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from remuda.config import PolicyConfig
from remuda.experience.ring import OTHERS
from remuda.experience.segments import AFTER, Rollout
from remuda.system.checkpoint.fitting import FINITE_64, fitting, require
from remuda.system.kernels import njit
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

    A segment that ends because of its length or truncation bootstraps from its final value.
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
    advantages: Floats,  # [R], written, not multiplied by the importance weight
    targets: Floats,  # [R], written
) -> None:
    """Write V-trace targets and advantages (Espeholt et al. 2018, section 4.1).

    Errors are weighted by ratios clipped at `most`, traces by ratios clipped at 1. Lambda also
    applies to the advantages, as in RLax.
    """
    excess = 0.0  # target minus value of the next row
    for i in range(r_t.size - 1, -1, -1):
        if after[i]:
            excess = 0.0
            advantages[i] = 0.0
            targets[i] = values[i]
            continue
        error = r_t[i] + discount_t[i] * values[i + 1] - values[i]
        advantages[i] = error + discount_t[i] * trace_decay * excess
        weight, cut = min(ratios[i], most), min(ratios[i], 1.0)
        excess = weight * error + discount_t[i] * trace_decay * cut * excess
        targets[i] = values[i] + excess


def effective_share(ratios: np.ndarray) -> float:
    """Return the effective sample share (sum w)^2 / (N sum w^2) of weights [N] (Kong 1992)."""
    squares = float(np.square(ratios, dtype=np.float64).sum())
    return float(ratios.sum(dtype=np.float64)) ** 2 / (len(ratios) * squares) if squares else 0.0


@njit(cache=True)
def explained_variance(values: Floats, targets: Floats, after: Bools) -> float:
    """Return the explained variance 1 - Var(t - v) / Var(t), NaN if Var(t) is 0."""
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
    """The mean and variance of all samples so far, updated by batches (Chan et al. 1983)."""

    def __init__(self, mean: np.ndarray, variance: np.ndarray, count: float) -> None:
        self.mean, self.variance, self.count = mean, variance, count

    def add(self, batch: np.ndarray) -> None:
        if len(batch) == 0:
            return
        mean, variance, count = batch.mean(0), batch.var(0), float(len(batch))
        total = self.count + count
        difference = mean - self.mean
        squares = self.variance * self.count + variance * count
        squares = squares + difference * difference * (self.count * count / total)
        self.mean = self.mean + difference * (count / total)
        self.variance, self.count = squares / total, total


class RunningReturns:
    """The moments of the discounted sums of one policy's rewards (as in OpenAI Baselines).

    A stream's sum restarts only after termination, since segments do not record truncation.
    """

    def __init__(self, mean: float = 0.0, variance: float = 1.0, count: float = 0.0) -> None:
        self._moments = RunningMoments(np.array(mean), np.array(variance), count)
        self.sums: np.ndarray = np.zeros(0)

    def scale(self, rewards: Floats, discounts: Floats, streams: Integers) -> np.float32:
        """Add a rollout's rewards and return the factor to multiply them by."""
        needed = int(streams.max()) + 1
        if needed > self.sums.size:
            self.sums = np.concatenate((self.sums, np.zeros(needed - self.sums.size)))
        self._moments.add(running_sums(rewards, discounts, streams, self.sums))
        return np.float32(1.0 / np.sqrt(self._moments.variance + 1e-8))

    def state(self) -> State:
        moments = np.array([self._moments.mean, self._moments.variance, self._moments.count])
        return {"moments": moments, "sums": self.sums.copy()}

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
        self.sums = fitting(state, "sums", np.empty(len(sums)), FINITE_64).copy()


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


# maximum number of steps whose rewards the initial value of a fresh policy sums; without a maximum
# it would be huge if rewards are not discounted and few episodes terminated
HORIZON = 200.0


class Credit(NamedTuple):
    """Importance weights and value estimates of G policies' rollouts, of at most R rows each."""

    weights: Floats  # [G, R] importance weights
    advantages: Floats  # [G, R]
    targets: Floats  # [G, R] value targets
    effective: Floats  # [G] effective sample size as a share of the steps
    explained_variance: Floats  # [G] share of the targets' variance that the values explain


def credit_of(
    rollout: Rollout,
    members: Sequence[int],  # the G policies, by their index in the stack and the rollout
    configs: Sequence[PolicyConfig],  # by policy of the stack
    returns: Sequence[RunningReturns],  # by policy of the stack, updated
    values: Floats,  # [G, R] values before the update
    log_probs: Floats,  # [G, R] log-probabilities before the update
    fresh: Bools | None = None,  # [G] whether values are untrained; a constant replaces them
) -> Credit:
    """Compute the `Credit` of some policies, each with its discount, lambda and correction."""
    count = len(members)
    credit = Credit(
        weights=np.ones_like(values),
        advantages=np.zeros_like(values),
        targets=values.copy(),
        effective=np.ones(count, np.float32),
        explained_variance=np.zeros(count, np.float32),
    )
    for i, k in enumerate(members):
        used = int(rollout.num_rows[k])
        ratios = np.ones_like(values[i])
        with np.errstate(over="ignore"):
            ratios[:used] = np.exp(log_probs[i, :used] - rollout.log_probs[k, :used])
        if configs[k].correction != "none":
            credit.weights[i] = np.minimum(ratios, configs[k].correction_limit)
        after = rollout.streams[k, :used] == AFTER
        credit.effective[i] = effective_share(ratios[:used][~after])
        own = (credit.advantages[i, :used], credit.targets[i, :used])
        is_fresh = fresh is not None and bool(fresh[i])
        steps = (values[i, :used], ratios[:used])
        _credit_one(rollout, k, configs[k], returns[k], *steps, *own, is_fresh)
        credit.explained_variance[i] = explained_variance(
            values[i, :used], credit.targets[i, :used], after
        )
    return credit


def _credit_one(
    rollout: Rollout,
    policy: int,
    config: PolicyConfig,
    returns: RunningReturns,
    values: Floats,
    ratios: Floats,
    advantages: Floats,
    targets: Floats,
    is_fresh: bool,
) -> None:
    used = len(values)
    streams = rollout.streams[policy, :used]
    rewards = rollout.rewards[policy, :used] * np.float32(config.reward_scale)
    discounts = rollout.discounts[policy, :used] * np.float32(config.discount)
    if config.ppo.normalise_rewards:
        rewards = rewards * returns.scale(rewards, discounts, streams)
    after, trace_decay = streams == AFTER, config.ppo.gae_lambda

    def credit(rewards: Floats, values: Floats) -> None:
        targets[:] = values
        if config.correction == "vtrace":
            limit = config.correction_limit
            inputs = (rewards, discounts, values, after, ratios, trace_decay, limit)
            vtrace(*inputs, advantages, targets)
            return
        generalised_advantages(rewards, discounts, values, after, trace_decay, advantages)
        targets[:] += advantages

    if is_fresh and not after.all():
        # If all values are equal to v, each target is a sum of rewards plus a factor times v.
        credit(rewards, np.zeros_like(values))
        mean_rewards = float(targets[~after].mean())
        credit(np.ones_like(rewards), np.zeros_like(values))
        steps = float(targets[~after].mean())
        credit(np.zeros_like(rewards), np.ones_like(values))
        unbootstrapped = 1.0 - float(targets[~after].mean())
        horizon = steps / unbootstrapped if unbootstrapped > steps / HORIZON else HORIZON
        values[:] = mean_rewards / steps * horizon if steps > 0.0 else 0.0
    credit(rewards, values)


def others_in(rollout: Rollout, weights: Floats, members: Sequence[int]) -> tuple[Integers, Floats]:
    """Return, by policy [G], the number of other policies' steps and their total weight."""
    count, total = np.zeros(len(members), np.int64), np.zeros(len(members), np.float32)
    for i, k in enumerate(members):
        used = int(rollout.num_rows[k])
        chosen = rollout.streams[k, :used] != AFTER
        is_other = chosen & (rollout.versions[k, :used] == OTHERS)
        count[i], total[i] = is_other.sum(), weights[i, :used][is_other].sum()
    return count, total


def steps_of(rollout: Rollout, members: Sequence[int], rows: int) -> Bools:
    """Return which of the first `rows` rows of some policies are steps: [G, rows]."""
    at = list(members)
    used = np.arange(rows) < rollout.num_rows[at, None]
    steps: Bools = used & (rollout.streams[at, :rows] != AFTER)
    return steps
