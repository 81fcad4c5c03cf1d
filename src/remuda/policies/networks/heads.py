"""Networks with several heads, each on layers of its own, for algorithms that users bring."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.layers import (
    initialise_convolution,
    initialise_linear,
    linear_shapes,
)
from remuda.policies.networks.network import Network, apply, apply_hidden
from remuda.policies.networks.scaling import Scale, scaled
from remuda.policies.stack import Parameters, Shapes


class Heads(Network):
    """Linear heads by name, for K policies at once; the first one is what actions are chosen by.

    Each head has a tower of hidden layers of its own, and an encoder before it where there is one.
    """

    def __init__(
        self,
        num_inputs: int,
        heads: Mapping[str, int],
        config: NetworkConfig,
        encoder: Encoder | None = None,
        scale: Scale = 1.0,
    ) -> None:
        """Lay it out.

        Args:
            num_inputs: numbers in one stacked input.
            heads: by name, how many numbers leave it.
            config: layers.
            encoder: what comes before the hidden layers, for each head; None: nothing.
            scale: what inputs are multiplied by, for pixels.
        """
        super().__init__(num_inputs, config)
        self.heads, self.encoder, self.input_scale = dict(heads), encoder, scale
        shapes: dict[str, tuple[int, ...]] = {}
        for head, outputs in self.heads.items():
            width = num_inputs
            if encoder is not None:
                shapes |= encoder.shapes(head)
                self.buffers |= encoder.buffers(head)
                width = encoder.width
            for layer, units in zip(self._hidden(head), config.hidden, strict=True):
                shapes |= linear_shapes(layer, width, units)
                width = units
            shapes |= linear_shapes(head, width, outputs)
        self.shapes: Shapes = shapes

    @property
    def layers(self) -> tuple[str, ...]:
        """The hidden layers of each head, then the head itself."""
        return tuple(name for head in self.heads for name in (*self._hidden(head), head))

    def initialise(self, parameters: Parameters, generator: torch.Generator) -> None:
        """Draw the parameters of one policy, views [1, ...]."""
        for head in self.heads:
            if self.encoder is not None:
                for layer in self.encoder.layers(head):
                    initialise_convolution(parameters, layer, generator)
                self.encoder.initialise(head, parameters, generator)
            for layer in (*self._hidden(head), head):
                initialise_linear(parameters, layer, generator)

    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:  # noqa: ARG002
        """The weights of the first head."""
        return {name: parameters[name] for name in self._names(next(iter(self.heads)))}

    @property
    def plain_layers(self) -> tuple[str, ...]:
        """The layers of the first head, where nothing else comes before."""
        first = next(iter(self.heads))
        if self.encoder is not None or self.input_scale != 1.0:
            return ()
        return (*self._hidden(first), first)

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """What the first head says: [K, B, O]."""
        return self.head(next(iter(self.heads)), weights, inputs)

    def head(self, head: str, weights: Parameters, inputs: Tensor) -> Tensor:
        """What a head says, [K, B, O], of inputs [K, B, num_inputs]."""
        weights = dict(weights)
        x = scaled(inputs, self.input_scale)
        if self.encoder is not None:
            x = self.encoder.features(head, weights, x)
        x = apply_hidden(weights, self._hidden(head), x, self.config.activation)
        return apply(weights, head, x)

    def _hidden(self, head: str) -> tuple[str, ...]:
        return tuple(f"{head}_hidden{i}" for i in range(len(self.config.hidden)))

    def _names(self, head: str) -> list[str]:
        own = list(self.encoder.shapes(head)) if self.encoder is not None else []
        linear = [f"{x}.{part}" for x in (*self._hidden(head), head) for part in ("weight", "bias")]
        return own + linear
