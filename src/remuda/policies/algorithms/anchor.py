"""What an update is held close to: the policy as it was, or the average of what it was."""

from __future__ import annotations

import torch
from torch import Tensor

from remuda.config import PPOConfig


def move_anchor(held: Tensor, weights: Tensor, ppo: PPOConfig, updates: int) -> None:
    """Before an update: let a policy [P] be its own anchor, or draw the anchor nearer to it."""
    with torch.no_grad():
        if ppo.anchor == "average" and updates:
            held.lerp_(weights, 1.0 / ppo.anchor_every)
        elif updates % ppo.anchor_every == 0:
            held.copy_(weights)
