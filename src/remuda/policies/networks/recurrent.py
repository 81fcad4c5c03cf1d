"""A gated recurrent layer for K policies."""

from __future__ import annotations

from torch import Tensor

from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.layers import linear_shapes
from remuda.policies.networks.network import apply
from remuda.policies.networks.unroll import unroll

GATES = ("gates_in", "gates_memory")  # names of its linear layers


def gate_shapes(inputs: int, units: int) -> dict[str, tuple[int, ...]]:
    """Return the parameters of a layer of so many units."""
    found = linear_shapes(GATES[0], inputs, 3 * units)
    return found | linear_shapes(GATES[1], units, 3 * units)


def recur(weights: Weights, gates: Tensor, state: Tensor) -> Tensor:
    """Return a GRU's next state [K, B, units], as torch.nn.GRUCell, from `gates_in` outputs."""
    reset, update, new = gates.chunk(3, -1)
    own_reset, own_update, own_new = apply(weights, "gates_memory", state).chunk(3, -1)
    update = (update + own_update).sigmoid()
    new = (new + (reset + own_reset).sigmoid() * own_new).tanh()
    return new + update * (state - new)


def unroll_recurrent(
    weights: Weights, features: Tensor, state: Tensor, burn_in: Tensor | None = None
) -> Tensor:
    """Return states [K, G * T, units] along G sequences of features [K, G * T, D]; see `unroll`."""
    gates = apply(weights, "gates_in", features)

    def step(now: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        after = recur(weights, now, before)
        return after, after

    return unroll(step, gates, state, burn_in)
