"""A forward pass of perceptrons for acting on the processor: few calls, and nothing allocated.

With few streams most of a pass is the cost of calling, so each layer is one call for the product
and one for what follows it, with all that they are called with at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from remuda.policies.networks.activations import KINDS, activate_in_place
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.products import gemm, terms_of
from remuda.types import Floats


class PlainPass:
    """Inputs [K, N, num_inputs] through layers of K policies, hidden ones first, the head last."""

    def __init__(
        self, weights: Weights, layers: Sequence[str], inputs: Tensor, activation: str
    ) -> None:
        """Look at weights and inputs where they are: both may change between two passes."""
        self._kind = KINDS[activation]
        self._tensors = [inputs]
        """Whose memory the calls name: they stay as long as this."""
        self.hidden: list[Tensor] = []
        """What each hidden layer said, [K, N, units]; written anew by the next pass."""
        calls: list[tuple[tuple[Any, ...], Floats]] = []
        for layer in layers:
            weight, bias = weights[f"{layer}.weight"], weights[f"{layer}.bias"]
            out = inputs.new_zeros(*inputs.shape[:2], weight.shape[-1])
            calls.append((terms_of(inputs, weight, bias, out), out.numpy().reshape(-1)))
            self._tensors += [weight, bias]
            self.hidden.append(out)
            inputs = out
        self._said = self.hidden.pop()
        *self._hidden, (self._head, _) = calls
        self._outputs: Floats = self._said.numpy()

    def __call__(self) -> Floats:
        """What the head says, [K, N, outputs]; written anew by the next pass."""
        for terms, values in self._hidden:
            gemm(*terms)
            activate_in_place(values, self._kind)
        gemm(*self._head)
        return self._outputs
