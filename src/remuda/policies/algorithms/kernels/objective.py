"""The prepared rollout, and PPO's objective for rows of network outputs, by compiled kernels.

`outputs` [G, B, L + 1] are those of the policy head, then the value; *errors* are the gradients of
the loss w.r.t. `outputs`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from remuda.policies.actions import Actions, DiscreteActions
from remuda.policies.algorithms.kernels.ppo_heads import (
    RowsOf,
    Terms,
    differentiate,
    differentiate_normal,
    evaluate,
    evaluate_normal,
    standardise,
)
from remuda.policies.algorithms.samples import Pick
from remuda.policies.continuous_actions import ContinuousActions
from remuda.policies.stack import ParameterStack
from remuda.types import Array, Bools, Floats, Integers


@dataclass(frozen=True)
class RolloutBatch:
    """Training data of K policies: [K, R, ...] on the learner's device."""

    observations: Tensor
    actions: Tensor
    masks: Tensor | None
    log_prox: Tensor  # log-probabilities of the actions under the policy before the update
    # importance weights: the action's probability before the update, divided by its probability
    # when it was chosen
    weights: Tensor
    advantages: Tensor
    values: Tensor  # values before the update
    targets: Tensor


class LossCosts(NamedTuple):
    """Hyperparameters of the loss, each [K, 1]."""

    clip: Floats
    value_cost: Floats
    value_clip: Floats  # infinite: no clipping
    entropy_cost: Floats
    anchor_cost: Floats


class Means(NamedTuple):
    """Metrics of a pass, each [G]: means over the valid rows."""

    loss: Tensor  # total loss
    policy_loss: Tensor  # policy part: PPO's negative clipped objective
    value_loss: Tensor  # value part: half the squared error in PPO
    entropy: Tensor  # in nats
    kl: Tensor  # divergence of the policy since the start of the update, in nats
    clipped: Tensor  # share of rows with a clipped probability ratio


@dataclass(frozen=True)
class RolloutMetrics:
    """Metrics of an update by policy, each [G]; means are over the policy's minibatches."""

    loss: Floats  # total loss
    policy_loss: Floats  # negative clipped objective
    value_loss: Floats  # half the squared error of the values
    entropy: Floats  # in nats
    kl: Floats  # divergence of the policy since the start of the update, in nats
    clipped: Floats  # share of steps with a clipped probability ratio
    gradient_norm: Floats  # before clipping
    explained_variance: Floats  # by the values before the update; NaN: all targets are equal
    effective: Floats  # effective sample size as a share of the steps
    samples: Integers  # steps trained on, counted each time
    steps: Integers  # steps trained on, counted once
    others: Integers  # steps of the rollout by other policies of its group
    others_weight: Floats  # total importance weight of the steps in `others`


def rows_of(pick: Pick) -> tuple[RowsOf, Integers | None]:
    """Return a pick's rows, valid rows first, and their order [G, B] if it changed."""
    if pick.valid is None or pick.memory is None:
        return RowsOf(pick.members, pick.rows, pick.counts), None
    order = np.argsort(pick.valid.numpy() <= 0.0, 1, kind="stable")
    return RowsOf(pick.members, np.take_along_axis(pick.rows, order, 1), pick.counts), order


class Objective:
    """The objective of G policies, and its gradient with respect to each row's outputs."""

    def __init__(self, actions: Actions, costs: LossCosts, normalises: bool) -> None:
        """Use these costs; with `normalises`, normalise advantages in each minibatch."""
        self.costs, self.normalises = costs, normalises
        self.sizes: Integers = np.array(getattr(actions, "sizes", ()), np.int64)

    @staticmethod
    def suits(actions: Actions) -> bool:
        return type(actions) in (DiscreteActions, ContinuousActions)

    def evaluate(
        self, outputs: Floats, log_scales: Floats, rows: RowsOf, batch: RolloutBatch
    ) -> None:
        """Write log-probabilities and values of some rows to the batch."""
        actions = batch.actions.numpy()
        results = batch.log_prox.numpy(), batch.values.numpy()
        if len(self.sizes):
            evaluate(outputs, rows, actions, masks_of(batch), self.sizes, *results)
        else:
            evaluate_normal(outputs, log_scales, rows, actions, *results)


class MinibatchObjective:
    """The objective of one minibatch; `log_scales` are [G, A], or [G, 0] if discrete."""

    def __init__(
        self, objective: Objective, batch: RolloutBatch, rows: RowsOf, log_scales: Floats
    ) -> None:
        # [len(Means), G], complete after all rows have been differentiated
        self.means: Array = np.zeros((len(Means._fields), len(rows.members)))
        # [G, A] gradient w.r.t. the log standard deviations, complete at the same time
        self.by_scales: Floats = np.zeros_like(log_scales)
        self.log_scales, self.sizes = log_scales, objective.sizes
        self.actions, advantages = batch.actions.numpy(), batch.advantages.numpy()
        self.masks = masks_of(batch)
        standard: Floats = np.zeros((len(rows.members), 2), np.float32)
        standard[:, 1] = 1.0
        if objective.normalises:
            standardise(advantages, rows, standard)
        self.terms = Terms(
            batch.log_prox.numpy(),
            batch.weights.numpy(),
            advantages,
            standard,
            batch.values.numpy(),
            batch.targets.numpy(),
            *objective.costs[:4],
            1.0 / np.maximum(rows.counts, 1),
        )

    def another(self) -> MinibatchObjective:
        """Return an objective for other rows of the minibatch, whose means start at 0."""
        other = copy(self)
        other.means, other.by_scales = np.zeros_like(self.means), np.zeros_like(self.by_scales)
        return other

    def add(self, other: MinibatchObjective) -> None:
        """Add the means of other rows."""
        self.means += other.means
        self.by_scales += other.by_scales

    def differentiate(self, outputs: Floats, here: slice, rows: RowsOf) -> None:
        """Overwrite outputs [g, B, L + 1] of the policies `here` with their errors."""
        whole = self.terms
        terms = whole._replace(
            standard=whole.standard[here],
            clip=whole.clip[here],
            value_cost=whole.value_cost[here],
            value_clip=whole.value_clip[here],
            entropy_cost=whole.entropy_cost[here],
            shares=whole.shares[here],
        )
        means = self.means[:, here]
        if len(self.sizes):
            differentiate(outputs, rows, self.actions, self.masks, self.sizes, terms, means)
        else:
            scales = self.log_scales[here], self.by_scales[here]
            differentiate_normal(outputs, *scales, rows, self.actions, terms, means)


def log_scales_of(part: ParameterStack, count: int) -> Floats:
    """Return the log standard deviations: [G, count]."""
    if not count:
        return np.zeros((len(part.flat), 0), np.float32)
    return np.ascontiguousarray(part.parameters["log_scale"].detach()[:, 0].numpy())


def masks_of(batch: RolloutBatch) -> Bools:
    """Return the masks of a batch, or an array [K, R, 0] if there are none."""
    if batch.masks is None:
        return np.zeros((*batch.values.shape, 0), np.bool_)
    masks: Bools = batch.masks.numpy()
    return masks
