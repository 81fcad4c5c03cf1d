"""Policies that an update trains side by side, and the metrics of an update."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.policies.algorithms.autograd import Autograd
from remuda.policies.algorithms.fused import Fused
from remuda.policies.stack import Side
from remuda.types import Floats, Integers


@dataclass(frozen=True)
class RolloutMetrics:
    """Metrics of an update by policy, each [G]; means are over its own minibatches."""

    loss: Floats  # total loss
    policy_loss: Floats  # negative clipped objective
    value_loss: Floats  # half the squared error of the values
    entropy: Floats  # in nats
    kl: Floats  # divergence of the policy by the update, in nats
    clipped: Floats  # share of steps with a clipped probability ratio
    gradient_norm: Floats  # before clipping
    explained_variance: Floats  # by the values before the update; NaN: all targets are equal
    effective: Floats  # effective sample size as a share of the steps
    samples: Integers  # steps trained on, counted each time
    steps: Integers  # steps trained on, counted once
    others: Integers  # steps of the rollout that other policies of its group chose
    others_weight: Floats  # their total weight, where a fresh step weighs 1


@dataclass(frozen=True)
class TrainingGroup:
    """Policies that are trained side by side because they have similar amounts of data."""

    going: Integers  # policies still training, by their position in the update
    members: list[int]  # the same, by their position in the stack
    minibatches: int  # minibatches of an epoch
    limits: Floats | None  # largest divergence of each; None: no limits
    side: Side
    anchor: Side | None
    engine: Fused | Autograd

    def load(self) -> None:
        """Update the copies: other groups have used the same memory since."""
        self.side.load()
        if self.anchor is not None:
            self.anchor.load()
