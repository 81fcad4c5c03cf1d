"""How a recurrent step follows sequences."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From what is seen [K, G, ...] and the state before [K, G, S] to features and the state after."""


def along(step: Step, inputs: Tensor, state: Tensor, burn_in: Tensor | None = None) -> Tensor:
    """Features [K, G * T, F] of each step of G sequences of inputs [K, G * T, ...].

    Args:
        step: what is done at each.
        inputs: the sequences one after another, all of T steps.
        state: [K, G, S] before each.
        burn_in: [K, G] how many steps of each only bring the state up to date: what comes after
            sends no gradient back through them; None: there are none.
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
