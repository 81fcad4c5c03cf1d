"""The prepared rollout, the loss's hyperparameters and its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from remuda.types import Floats


@dataclass(frozen=True)
class RolloutBatch:
    """Training data of K policies: [K, R, ...] on the learner's device."""

    observations: Tensor
    actions: Tensor
    masks: Tensor | None
    log_prox: Tensor  # log-probabilities of the actions under the policy before the update
    weights: Tensor  # importance weights: that policy's probability over the acting policy's
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
    """Metrics of a pass, each [G]: means over the rows that count."""

    loss: Tensor  # total loss
    policy_loss: Tensor  # policy part: PPO's negative clipped objective
    value_loss: Tensor  # value part: half the squared error in PPO
    entropy: Tensor  # in nats
    kl: Tensor  # divergence of the policy since the update began, in nats
    clipped: Tensor  # share of rows with a clipped probability ratio
