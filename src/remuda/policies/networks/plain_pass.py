"""A forward pass of perceptrons for acting on the processor: few calls, and nothing allocated.

With few streams most of a pass is the cost of calling, so each layer is one call for the product
and one for all that follows it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from remuda.kernels import njit
from remuda.policies.networks.activations import KINDS, STRICT, activate_in_place
from remuda.policies.networks.network import Weights
from remuda.types import Floats

LINEAR = -1
"""The kind of a layer with nothing after it."""


class PlainPass:
    """Inputs [K, N, num_inputs] through layers of K policies, hidden ones first, the head last."""

    def __init__(
        self, weights: Weights, layers: Sequence[str], inputs: Tensor, activation: str
    ) -> None:
        """Look at weights and inputs where they are: both may change between two passes."""
        kinds = [KINDS[activation]] * (len(layers) - 1) + [LINEAR]
        self._layers = []
        for layer, kind in zip(layers, kinds, strict=True):
            weight, bias = weights[f"{layer}.weight"], weights[f"{layer}.bias"][:, 0]
            out = torch.zeros(*inputs.shape[:2], weight.shape[-1])
            product, operands = torch.bmm, (inputs, weight, out)
            if len(weight) == 1:  # torch has a product of its own for this, and calls it quicker
                product, operands = torch.mm, (inputs[0], weight[0], out[0])
            self._layers.append((product, *operands, out.numpy(), bias.numpy(), kind))
            inputs = out
        self._outputs: Floats = inputs.numpy()

    def __call__(self) -> Floats:
        """What the head says, [K, N, outputs]; written anew by the next pass."""
        for product, inputs, weight, out, values, bias, kind in self._layers:
            product(inputs, weight, out=out)
            _finish(values, bias, kind)
        return self._outputs


@njit(**STRICT)
def _finish(x: Floats, bias: Floats, kind: int) -> None:
    """Add the biases [K, outputs], and activate, in place."""
    for k in range(x.shape[0]):
        for i in range(x.shape[1]):
            for j in range(x.shape[2]):
                x[k, i, j] += bias[k, j]
    if kind != LINEAR:
        activate_in_place(x.reshape(-1), kind)
