"""Networks with several heads, each on its own layers, for user-defined algorithms."""

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
    """Named linear heads for K policies at once; actions are chosen by the first.

    Each head has its own tower of hidden layers, and its own encoder if there is one.
    """

    def __init__(
        self,
        num_inputs: int,
        heads: Mapping[str, int],
        config: NetworkConfig,
        encoder: Encoder | None = None,
        scale: Scale = 1.0,
    ) -> None:
        """Compute the shapes; `heads` maps names to outputs, and `scale` multiplies inputs."""
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
        """Return the hidden layers of each head, then the head itself."""
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
        """Return the weights of the first head."""
        return {name: parameters[name] for name in self._names(next(iter(self.heads)))}

    @property
    def plain_layers(self) -> tuple[str, ...]:
        """Return the layers of the first head if nothing else comes before them."""
        first = next(iter(self.heads))
        if self.encoder is not None or self.input_scale != 1.0:
            return ()
        return (*self._hidden(first), first)

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Return the outputs of the first head: [K, B, O]."""
        return self.head(next(iter(self.heads)), weights, inputs)

    def head(self, head: str, weights: Parameters, inputs: Tensor) -> Tensor:
        """Return the outputs of a head, [K, B, O], for inputs [K, B, num_inputs]."""
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
