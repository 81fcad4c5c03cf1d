"""Q-networks for K policies: the base class, and the multi-layer perceptron."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.networks.activations import activate
from remuda.policies.networks.layers import fold_dueling, linear_shapes, plain_linear
from remuda.policies.networks.network import Network, Weights, apply
from remuda.policies.stack import Parameters, Shapes


class QNetwork(Network):
    """Values of actions, for K policies at once."""

    def __init__(self, num_inputs: int, num_actions: int, config: NetworkConfig) -> None:
        super().__init__(num_inputs, config)
        self.num_actions = num_actions

    def plain(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:
        """The plain weights of one pass; gradients flow through them to the parameters."""
        weights: Weights = {}
        for layer in self.layers:
            weight, bias = plain_linear(parameters, layer, noise)
            if layer == self.layers[-1] and self.config.dueling:
                weight, bias = fold_dueling(weight, bias)
            weights[f"{layer}.weight"], weights[f"{layer}.bias"] = weight, bias
        return weights

    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:
        """All that acting needs of one version, worked out once."""
        return self.plain(parameters, noise)

    @abstractmethod
    def values(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Action values [K, B, A] of inputs [K, B, num_inputs], by weights from `acting`."""

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """The action values: whoever acts takes the greatest, or explores."""
        return self.values(weights, inputs)

    def _head_shapes(self, inputs: int) -> Shapes:
        outputs = self.num_actions + self.config.dueling
        return linear_shapes("head", inputs, outputs, self.config.noisy)


class MLP(QNetwork):
    """Linear layers with rectifiers between them, and a plain or dueling head."""

    def __init__(self, num_inputs: int, num_actions: int, config: NetworkConfig) -> None:
        super().__init__(num_inputs, num_actions, config)
        widths = (num_inputs, *config.hidden)
        shapes: dict[str, tuple[int, ...]] = {}
        for i in range(len(config.hidden)):
            noisy = config.noisy and i > 0
            shapes |= linear_shapes(f"hidden{i}", widths[i], widths[i + 1], noisy)
        self.shapes = shapes | dict(self._head_shapes(widths[-1]))

    @property
    def layers(self) -> tuple[str, ...]:
        """The hidden layers, then the head."""
        return (*(f"hidden{i}" for i in range(len(self.config.hidden))), "head")

    @property
    def plain_layers(self) -> tuple[str, ...]:
        """All of them."""
        return self.layers

    def values(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Action values [K, B, A] of inputs [K, B, num_inputs]."""
        x = inputs
        for layer in self.layers[:-1]:
            x = activate(apply(weights, layer, x), self.config.activation)
        return apply(weights, "head", x)
