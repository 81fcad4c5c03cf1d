"""What a rollout becomes to be trained on, what the loss weighs, and what a pass tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from remuda.types import Floats


@dataclass(frozen=True)
class Batch:
    """What is trained on, for K policies: [K, R, ...] on the learner's device."""

    observations: Tensor
    actions: Tensor
    masks: Tensor | None
    log_prox: Tensor
    """Log-probabilities of the actions by the policy before the update."""
    weights: Tensor
    """How likely that policy's actions were made by the one that acted: their ratio."""
    advantages: Tensor
    values: Tensor
    """What was thought of the rows before the update."""
    targets: Tensor


class Costs(NamedTuple):
    """Hyperparameters of the loss, each [K, 1]."""

    clip: Floats
    value_cost: Floats
    value_clip: Floats
    """Infinity: none."""
    entropy_cost: Floats
    anchor_cost: Floats


class Means(NamedTuple):
    """What a pass tells of its rows, each [G]: means over those that count."""

    loss: Tensor
    """Of all that is minimised."""
    policy_loss: Tensor
    """That of the policy by itself: with PPO the negative clipped objective."""
    value_loss: Tensor
    """That of the values by itself: with PPO half their squared error."""
    entropy: Tensor
    """In nats."""
    kl: Tensor
    """How far the policy has moved since the update began, in nats."""
    clipped: Tensor
    """The share of rows whose probability ratio was clipped."""
