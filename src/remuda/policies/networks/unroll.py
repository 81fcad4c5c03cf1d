"""Recurrent steps over sequences."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps inputs [K, G, ...] and states [K, G, S] to features and next states."""


def unroll(step: Step, inputs: Tensor, state: Tensor, burn_in: Tensor | None = None) -> Tensor:
    """Apply a recurrent step along G sequences of T steps, [K, G * T, ...]: [K, G * T, F].

    The first `burn_in` [K, G] steps of a sequence only bring its state [K, G, S] up to date: no
    gradient flows back through them.
    """
    policies, sequences, _ = state.shape
    steps = inputs.view(policies, sequences, -1, *inputs.shape[2:])
    found = []
    for t in range(steps.shape[2]):
        if burn_in is not None:
            state = torch.where((burn_in == t).unsqueeze(-1), state.detach(), state)
        features, state = step(steps[:, :, t], state)
        found.append(features)
    return torch.stack(found, 2).flatten(1, 2)
