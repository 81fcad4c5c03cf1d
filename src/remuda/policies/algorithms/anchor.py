"""The anchor policy that an update stays close to: a snapshot or a running average."""

from __future__ import annotations

import torch
from torch import Tensor

from remuda.config import PPOConfig


def move_anchor(held: Tensor, weights: Tensor, ppo: PPOConfig, updates: int) -> None:
    """Update a policy's anchor [P] before an update: copy the weights, or average them in."""
    with torch.no_grad():
        if ppo.anchor == "average" and updates:
            held.lerp_(weights, 1.0 / ppo.anchor_every)
        elif updates % ppo.anchor_every == 0:
            held.copy_(weights)
