"""Implicit quantile networks (Dabney et al. 2018) for K policies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from remuda.config import IQNConfig, NetworkConfig
from remuda.policies.networks.activations import activate
from remuda.policies.networks.encoders import Encoder
from remuda.policies.networks.layers import linear_shapes
from remuda.policies.networks.network import Weights, apply
from remuda.policies.networks.q_network import TOWER, QNetwork
from remuda.policies.stack import Parameters


class IQN(QNetwork):
    """Values of actions at given quantiles of their return.

    An encoder sees the state, or where there is none the first hidden layer; its features are
    multiplied with an embedding of the quantile (equation 4), and the other layers see the product.
    """

    def __init__(
        self,
        num_inputs: int,
        num_actions: int,
        config: NetworkConfig,
        encoder: Encoder | None = None,
        scale: float = 1.0,
        own: IQNConfig | None = None,
    ) -> None:
        super().__init__(num_inputs, num_actions, config, encoder, scale)
        self.own = own or IQNConfig()
        self._first = () if encoder is not None else ("state",)
        if encoder is not None:
            first, others, shapes = encoder.width, config.hidden, encoder.shapes(TOWER)
        else:
            first, others = config.hidden[0], config.hidden[1:]
            shapes = linear_shapes("state", num_inputs, first)
        shapes |= linear_shapes("quantile", self.own.cosines, first)
        width = first
        for i, units in enumerate(others):
            shapes |= linear_shapes(f"hidden{i}", width, units, config.noisy)
            width = units
        self.shapes = shapes | dict(self._head_shapes(width))
        self._hidden = tuple(f"hidden{i}" for i in range(len(others)))

    @property
    def layers(self) -> tuple[str, ...]:
        """The state's layer, the quantile's, the hidden layers of their product, the head."""
        return (*self._first, "quantile", *self._hidden, "head")

    @property
    def settings(self) -> tuple[str, ...]:
        """What it was made with; how many quantiles there are is seen by no shape."""
        return (*super().settings, f"{self.own.quantiles} quantiles")

    def embed(self, weights: Weights, quantiles: Tensor) -> Tensor:
        """Embed quantiles [K, B, N] in (0, 1): [K, B * N, first] (equation 4)."""
        cosines = torch.arange(self.own.cosines, device=quantiles.device)
        basis = torch.cos(quantiles.flatten(1).unsqueeze(-1) * (math.pi * cosines))
        return apply(weights, "quantile", basis).relu_()

    def quantile_values(self, weights: Weights, inputs: Tensor, quantiles: Tensor) -> Tensor:
        """Values [K, B, N, A] at quantiles [K, B, N] for inputs [K, B, num_inputs]."""
        features = self._features(weights, inputs, self.embed(weights, quantiles))
        return apply(weights, "head", features).view(*quantiles.shape, self.num_actions)

    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:
        """The plain weights, with the embedding of fixed quantile midpoints [K, N, first]."""
        weights = self.plain(parameters, noise)
        count = self.own.quantiles
        midpoints = (torch.arange(count, device=weights["head.bias"].device) + 0.5) / count
        policies = weights["head.bias"].shape[0]
        weights["midpoints"] = self.embed(weights, midpoints.expand(policies, 1, count))
        return weights

    def values(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Action values [K, B, A]: the mean over the quantile midpoints."""
        policies, batch, _ = inputs.shape
        features = self._features(weights, inputs, weights["midpoints"])
        # The head is linear, so the mean may be taken before it.
        mean = features.view(policies, batch, self.own.quantiles, -1).mean(2)
        return apply(weights, "head", mean)

    def _features(self, weights: Weights, inputs: Tensor, embedding: Tensor) -> Tensor:
        """Features [K, B * N, last]; the embedding is of each sample, or [K, N, first] for all."""
        state = self.encoded(weights, inputs)
        if self._first:
            state = activate(apply(weights, "state", state), self.config.activation)
        policies, _, width = state.shape
        by_sample = embedding.view(policies, -1, self.own.quantiles, width)
        x = (state.unsqueeze(2) * by_sample).flatten(1, 2)
        for layer in self._hidden:
            x = activate(apply(weights, layer, x), self.config.activation)
        return x
