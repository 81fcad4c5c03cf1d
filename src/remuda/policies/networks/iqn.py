"""Implicit quantile networks (Dabney et al. 2018) for K policies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from remuda.config import IQNConfig, NetworkConfig
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.kernels.compiled_pass import QuantileLayers
from remuda.policies.networks.layers import Scale, linear_shapes
from remuda.policies.networks.network import apply, apply_hidden
from remuda.policies.networks.q_network import TOWER, QNetwork
from remuda.policies.stack import Parameters


class IQNetwork(QNetwork):
    """Action values at sampled quantiles of the return.

    The encoder, or without one the first hidden layer, maps the observation to features. These are
    multiplied by an embedding of the quantile (equation 4), and the other layers process the
    product. A gated recurrent layer may precede the product.
    """

    def __init__(
        self,
        num_inputs: int,
        num_actions: int,
        config: NetworkConfig,
        encoder: Encoder | None = None,
        scale: Scale = 1.0,
        own: IQNConfig | None = None,
        choices: tuple[int, ...] = (),
    ) -> None:
        self.own = own or IQNConfig()
        self._bases: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self._first = () if encoder is not None else ("state",)
        # layers between the product and the head
        self.hidden = tuple(f"hidden{i}" for i in range(len(config.hidden) - len(self._first)))
        super().__init__(num_inputs, num_actions, config, encoder, scale, choices)
        self.plain_layers = ()
        self.settings += (f"{self.own.quantiles} quantiles",)  # not visible in the shapes

    def _body(self) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]], int]:
        config, encoder = self.config, self.encoder
        if encoder is not None:
            units, shapes = (encoder.width, *config.hidden), encoder.shapes(TOWER)
        else:
            units, shapes = config.hidden, linear_shapes("state", self.num_inputs, config.hidden[0])
        shapes, width = self._with_gates(shapes, units[0])
        shapes |= linear_shapes("quantile", self.own.cosines, width)
        for layer, after in zip(self.hidden, units[1:], strict=True):
            shapes |= linear_shapes(layer, width, after, config.noisy)
            width = after
        return (*self._first, *self._gates, "quantile", *self.hidden), shapes, width

    def _through_hidden(self, weights: Weights, tower: str, x: Tensor) -> Tensor:  # noqa: ARG002
        return apply_hidden(weights, self._first, x, self.config.activation)

    def embed(self, weights: Weights, quantiles: Tensor) -> Tensor:
        """Embed quantiles [K, B, N] in (0, 1) to [K, B * N, F] (equation 4)."""
        return apply_hidden(weights, ("quantile",), self._basis(quantiles), "relu")

    def quantile_values_of(self, weights: Weights, features: Tensor, quantiles: Tensor) -> Tensor:
        """Return values [K, B, N, A] at quantiles [K, B, N] for features [K, B, F]."""
        products = self._products(weights, features, self.embed(weights, quantiles))
        return apply(weights, "head", products).view(*quantiles.shape, self.num_actions)

    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:
        """Return the plain weights, with embeddings [K, N, F] of fixed quantile midpoints."""
        weights = self.plain(parameters, noise)
        bias = weights["head.bias"]
        basis = self._midpoint_basis(bias).expand(len(bias), -1, -1)
        weights["midpoints"] = apply_hidden(weights, ("quantile",), basis, "relu")
        return weights

    def _midpoint_basis(self, like: Tensor) -> Tensor:
        """Return the cosines of quantile midpoints, [1, N, cosines], cached in inference mode."""
        acts, key = torch.is_inference_mode_enabled(), (like.dtype, like.device)
        if acts and key in self._bases:
            return self._bases[key]
        count = self.own.quantiles
        midpoints = (torch.arange(count, dtype=like.dtype, device=like.device) + 0.5) / count
        found = self._basis(midpoints.expand(1, 1, count))
        if acts:
            self._bases[key] = found
        return found

    def _basis(self, quantiles: Tensor) -> Tensor:
        """Return the cosines of quantiles [K, B, N]: [K, B * N, cosines]."""
        cosines = torch.arange(self.own.cosines, dtype=quantiles.dtype, device=quantiles.device)
        return torch.cos(quantiles.flatten(1).unsqueeze(-1) * (math.pi * cosines))

    def values_of(self, weights: Weights, features: Tensor) -> Tensor:
        """Return action values [K, B, A]: the mean over the quantile midpoints."""
        policies, batch, _ = features.shape
        products = self._products(weights, features, weights["midpoints"])
        # The head is linear, so it can be applied to the mean.
        mean = products.view(policies, batch, self.own.quantiles, -1).mean(2)
        return apply(weights, "head", mean)

    def compiled_layers(self, weights: Weights) -> QuantileLayers | None:
        if self.encoder is not None or self.memory or self.input_scale != 1.0:
            return None
        return QuantileLayers(weights, self.hidden, self.config.activation)

    def _products(self, weights: Weights, features: Tensor, embedding: Tensor) -> Tensor:
        """Return the last hidden layer's outputs; an embedding [K, N, F] applies to all samples."""
        policies, _, width = features.shape
        by_sample = embedding.view(policies, -1, self.own.quantiles, width)
        x = (features.unsqueeze(2) * by_sample).flatten(1, 2)
        return apply_hidden(weights, self.hidden, x, self.config.activation)
