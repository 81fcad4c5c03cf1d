"""Proximal policy optimisation (Schulman et al. 2017) for K policies."""

from __future__ import annotations

from torch import Tensor

from remuda.policies.algorithms.autograd import Minibatch
from remuda.policies.algorithms.rollout_algorithm import RolloutAlgorithm
from remuda.policies.losses import clipped_surrogate_loss, value_loss


class PPO(RolloutAlgorithm):
    """The clipped objective, optionally with a clipped value loss."""

    fused = True

    def losses(self, rows: Minibatch) -> tuple[Tensor, Tensor]:
        """Return the losses of equations 7 and 9 of the paper."""
        policy = clipped_surrogate_loss(
            rows.log_probs, rows.old_log_probs, rows.advantages, rows.clip
        )
        return policy, value_loss(rows.values, rows.old_values, rows.targets, rows.value_clip)
