"""A forward pass of perceptrons for acting on the processor: few calls, and nothing allocated.

With few streams most of a pass is the cost of calling, so each layer is one call for the product
and one for all that follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from remuda.policies.networks.activations import KINDS
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.products import LARGEST, LINEAR, finish, multiply
from remuda.types import Floats, Integers

FEW = 64
"""Streams of a policy up to which `multiply` is quicker than a library."""


class PlainPass:
    """Inputs [K, N, num_inputs] through layers of K policies, hidden ones first, the head last."""

    def __init__(
        self, weights: Weights, layers: Sequence[str], inputs: Tensor, activation: str
    ) -> None:
        """Look at weights and inputs where they are: both may change between two passes."""
        kinds = [KINDS[activation]] * (len(layers) - 1) + [LINEAR]
        count, streams = inputs.shape[:2]
        self._begins = np.arange(count + 1) * streams
        self._layers: list[tuple[Callable[..., Any], tuple[Any, ...], Floats, Floats, int]] = []
        for layer, kind in zip(layers, kinds, strict=True):
            weight, bias = weights[f"{layer}.weight"], weights[f"{layer}.bias"][:, 0]
            out = torch.zeros(count, streams, weight.shape[-1])
            call, operands = _product(inputs, weight, out, self._begins)
            said = out.view(-1, out.shape[2]).numpy()
            self._layers.append((call, operands, said, bias.numpy(), kind))
            inputs = out
        self._outputs: Floats = inputs.numpy()

    def __call__(self) -> Floats:
        """What the head says, [K, N, outputs]; written anew by the next pass."""
        for product, operands, values, bias, kind in self._layers:
            product(*operands)
            finish(values, self._begins, bias, kind)
        return self._outputs


def _product(
    inputs: Tensor, weight: Tensor, out: Tensor, begins: Integers
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The quickest product of inputs [K, N, I] and weights [K, I, O], and what it is called with.

    Products of narrow layers and of a few streams that fill no four are left to the library, where
    runs of earlier versions had them: its sums run in another order there.
    """
    streams, (num_inputs, num_outputs) = inputs.shape[1], weight.shape[1:]
    few = streams <= FEW and num_inputs * num_outputs <= LARGEST
    if few and streams % 4 == 0 and num_outputs % 8 == 0:
        x, said = (each.view(-1, each.shape[2]).numpy() for each in (inputs, out))
        return multiply, (x, begins, weight.numpy(), said)
    if len(weight) == 1:  # torch has a product of its own for this, and calls it quicker
        return partial(torch.mm, out=out[0]), (inputs[0], weight[0])
    return partial(torch.bmm, out=out), (inputs, weight)
