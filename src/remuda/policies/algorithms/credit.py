"""What the steps of a rollout are credited with, and count: advantages, targets, weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from remuda.config import PolicyConfig
from remuda.experience.ring import OTHERS
from remuda.experience.segments import AFTER, Rollout
from remuda.policies.advantages import (
    effective_share,
    explained_variance,
    generalised_advantages,
    vtrace,
)
from remuda.policies.running_returns import RunningReturns
from remuda.types import Bools, Floats, Integers

HORIZON = 200.0
"""The most steps for which the first rewards of a fresh policy are taken to go on: where nothing is
discounted, an episode that ended early would else decide of all values."""


class Credit(NamedTuple):
    """Of the rollouts of G policies, R rows of each at most."""

    weights: Floats
    """[G, R]: what each row counts."""
    advantages: Floats
    """[G, R]."""
    targets: Floats
    """[G, R]: of the values."""
    effective: Floats
    """[G]: the effective share of the steps, by how likely these weights were to choose them."""
    explained_variance: Floats
    """[G]: what the values explain of their targets."""


def credit_of(
    rollout: Rollout,
    members: Sequence[int],
    configs: Sequence[PolicyConfig],
    returns: Sequence[RunningReturns],
    values: Floats,
    log_probs: Floats,
    fresh: Bools | None = None,
) -> Credit:
    """Credit the steps of some policies, each with its own discount, trace decay and correction.

    Args:
        rollout: which they are trained on.
        members: the policies, by their rows of the rollout.
        configs: by policy of the stack.
        returns: by policy of the stack, how large its returns are; they are counted on.
        values: [G, R] of the weights before the update.
        log_probs: [G, R] of the actions, by the same weights.
        fresh: [G] whose values stand for nothing yet, and become the constant that agrees with what
            came of it: they are changed. None: nobody's.
    """
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
    """Write the advantages and targets of one policy's rows; the targets are its values before."""
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
    """By policy of an update, [G]: the steps that others chose, and the sum of their weights.

    Args:
        rollout: which they are trained on.
        weights: [G, R], what each row counts.
        members: the policies, by their rows of the rollout.
    """
    count, total = np.zeros(len(members), np.int64), np.zeros(len(members), np.float32)
    for i, k in enumerate(members):
        used = int(rollout.num_rows[k])
        chosen = rollout.streams[k, :used] != AFTER
        theirs = chosen & (rollout.versions[k, :used] == OTHERS)
        count[i], total[i] = theirs.sum(), weights[i, :used][theirs].sum()
    return count, total


def steps_of(rollout: Rollout, members: Sequence[int], rows: int) -> Bools:
    """[G, rows]: which of the first rows of some policies hold a step."""
    at = list(members)
    used = np.arange(rows) < rollout.num_rows[at, None]
    steps: Bools = used & (rollout.streams[at, :rows] != AFTER)
    return steps
