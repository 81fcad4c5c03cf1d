"""Credit assignment over a rollout: advantages, value targets and importance weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from remuda.config import PolicyConfig
from remuda.experience.ring import OTHERS
from remuda.experience.segments import AFTER, Rollout
from remuda.policies.advantages import (
    RunningReturns,
    effective_share,
    explained_variance,
    generalised_advantages,
    vtrace,
)
from remuda.types import Bools, Floats, Integers

# most steps over which a fresh policy's first rewards are extrapolated; without discounting, an
# early end of an episode would otherwise decide all values
HORIZON = 200.0


class Credit(NamedTuple):
    """The credit of G policies' rollouts, of R rows each at most."""

    weights: Floats  # [G, R] importance weights
    advantages: Floats  # [G, R]
    targets: Floats  # [G, R] value targets
    effective: Floats  # [G] effective sample size as a share of the steps
    explained_variance: Floats  # [G] share of the targets' variance that the values explain


def credit_of(
    rollout: Rollout,
    members: Sequence[int],  # their rows of the rollout
    configs: Sequence[PolicyConfig],  # by policy of the stack
    returns: Sequence[RunningReturns],  # by policy of the stack, updated
    values: Floats,  # [G, R] before the update
    log_probs: Floats,  # [G, R] before the update
    fresh: Bools | None = None,  # [G] whose values mean nothing and become a constant
) -> Credit:
    """Compute the credit of some policies, each with its own discount, lambda and correction."""
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
            given = (rewards, discounts, values, after, ratios, trace_decay, limit)
            vtrace(*given, advantages, targets)
            return
        generalised_advantages(rewards, discounts, values, after, trace_decay, advantages)
        targets[:] += advantages

    if is_fresh and not after.all():
        # Targets are linear in values that are all alike: those of rewards, and so often the value.
        credit(rewards, np.zeros_like(values))
        earned = float(targets[~after].mean())
        credit(np.ones_like(rewards), np.zeros_like(values))
        steps = float(targets[~after].mean())
        credit(np.zeros_like(rewards), np.ones_like(values))
        left = 1.0 - float(targets[~after].mean())
        horizon = steps / left if left > steps / HORIZON else HORIZON
        values[:] = earned / steps * horizon if steps > 0.0 else 0.0
    credit(rewards, values)


def others_in(rollout: Rollout, weights: Floats, members: Sequence[int]) -> tuple[Integers, Floats]:
    """Return, by policy of an update [G], the steps of other policies and their total weight."""
    count, total = np.zeros(len(members), np.int64), np.zeros(len(members), np.float32)
    for i, k in enumerate(members):
        used = int(rollout.num_rows[k])
        chosen = rollout.streams[k, :used] != AFTER
        theirs = chosen & (rollout.versions[k, :used] == OTHERS)
        count[i], total[i] = theirs.sum(), weights[i, :used][theirs].sum()
    return count, total


def steps_of(rollout: Rollout, members: Sequence[int], rows: int) -> Bools:
    """Return which of the first rows of some policies hold a step: [G, rows]."""
    at = list(members)
    used = np.arange(rows) < rollout.num_rows[at, None]
    steps: Bools = used & (rollout.streams[at, :rows] != AFTER)
    return steps
