"""Networks with several heads on separate layers, for user-defined algorithms."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.layers import (
    Scale,
    initialise_layer,
    linear_shapes,
    scaled,
)
from remuda.policies.networks.network import Network, apply, apply_hidden
from remuda.policies.stack import Parameters, Shapes


class Heads(Network):
    """Named linear heads for K policies, each on its own hidden layers (and encoder).

    The first head chooses actions.
    """

    def __init__(
        self,
        num_inputs: int,
        heads: Mapping[str, int],
        config: NetworkConfig,
        encoder: Encoder | None = None,
        scale: Scale = 1.0,
    ) -> None:
        super().__init__(num_inputs, config, encoder, scale)
        self.heads, self._first = dict(heads), next(iter(heads))
        self.layers = tuple(name for head in heads for name in (*self._hidden(head), head))
        if encoder is None and scale == 1.0:
            self.plain_layers = (*self._hidden(self._first), self._first)
        shapes: dict[str, tuple[int, ...]] = {}
        for head, outputs in self.heads.items():
            own, width = self._tower_shapes(head, self._hidden(head))
            shapes |= own | linear_shapes(head, width, outputs)
        self.shapes: Shapes = shapes

    def initialise(self, parameters: Parameters, generator: torch.Generator) -> None:
        for head in self.heads:
            self._initialise_encoder(head, parameters, generator)
            for layer in (*self._hidden(head), head):
                initialise_layer(parameters, layer, generator)

    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:  # noqa: ARG002
        return self._taken(parameters, self._first, (*self._hidden(self._first), self._first))

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        return self.head(self._first, weights, inputs)

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
