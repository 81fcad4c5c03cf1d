"""A gated recurrent layer for K policies, and how any recurrent step follows sequences."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from remuda.policies.networks.layers import linear_shapes
from remuda.policies.networks.network import Weights, apply

GATES = ("gates_in", "gates_memory")
"""The names of its linear layers."""

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From what is seen [K, G, ...] and the state before [K, G, S] to features and the state after."""


def gate_shapes(inputs: int, units: int) -> dict[str, tuple[int, ...]]:
    """The parameters of a layer of so many units."""
    found = linear_shapes(GATES[0], inputs, 3 * units)
    return found | linear_shapes(GATES[1], units, 3 * units)


def recur(weights: Weights, gates: Tensor, state: Tensor) -> Tensor:
    """A gated recurrent unit, as torch.nn.GRUCell computes it.

    Args:
        weights: with those of `GATES`.
        gates: [K, B, 3 * units] what the layer `gates_in` makes of the features.
        state: [K, B, units] before.
    """
    reset, update, new = gates.chunk(3, -1)
    own_reset, own_update, own_new = apply(weights, "gates_memory", state).chunk(3, -1)
    update = (update + own_update).sigmoid()
    new = (new + (reset + own_reset).sigmoid() * own_new).tanh()
    return new + update * (state - new)


def recur_along(
    weights: Weights, features: Tensor, state: Tensor, burn_in: Tensor | None = None
) -> Tensor:
    """States [K, G * T, units] after each step of G sequences of features [K, G * T, D].

    Args:
        weights: with those of `GATES`.
        features: the sequences one after another, all of T steps.
        state: [K, G, units] before each.
        burn_in: as in `along`.
    """
    gates = apply(weights, "gates_in", features)

    def step(now: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        after = recur(weights, now, before)
        return after, after

    return along(step, gates, state, burn_in)


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
