"""Q-networks for K policies: the base class, and the multi-layer perceptron."""

from __future__ import annotations

from abc import abstractmethod
from itertools import accumulate

import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.layers import (
    Scale,
    fold_dueling,
    linear_shapes,
    plain_linear,
    scaled,
)
from remuda.policies.networks.network import (
    GATES,
    Network,
    apply,
    apply_hidden,
    gate_shapes,
    recur,
    unroll_recurrent,
)
from remuda.policies.stack import Parameters, Shapes

TOWER = "hidden"  # name of a Q-network's only tower, for its encoder


class QNetwork(Network):
    """A map from observations to features, and from features to action values, for K policies."""

    def __init__(
        self,
        num_inputs: int,
        num_actions: int,  # outputs: one for each action, or for each option if branching
        config: NetworkConfig,
        encoder: Encoder | None = None,
        scale: Scale = 1.0,  # multiplies inputs
        choices: tuple[int, ...] = (),  # number of options of each choice, if branching
    ) -> None:
        super().__init__(num_inputs, config, encoder, scale)
        self.num_actions, self.choices = num_actions, choices
        if encoder is not None:
            self.buffers, self.memory = encoder.buffers(TOWER), encoder.memory or self.memory
        if config.recurrent:
            self.memory = self.memory or config.recurrent

    def initialise(self, parameters: Parameters, generator: torch.Generator) -> None:
        self._initialise_encoder(TOWER, parameters, generator)
        super().initialise(parameters, generator)

    def plain(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:
        """Return the plain weights of one pass; gradients flow through them to the parameters."""
        weights: Weights = {}
        for layer in self.layers:
            weight, bias = plain_linear(parameters, layer, noise)
            if layer == self.layers[-1] and self.config.dueling:
                weight, bias = fold_dueling(weight, bias)
            weights[f"{layer}.weight"], weights[f"{layer}.bias"] = weight, bias
        if self.encoder is not None:
            weights |= {name: parameters[name] for name in self.encoder.shapes(TOWER)}
        return weights

    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:
        return self.plain(parameters, noise)

    def best_of(self, values: Tensor) -> Tensor:
        """Return the first argmax of values [K, B, A]: actions [K, B], or choices [K, B, C]."""
        if not self.choices:
            return values.argmax(-1)
        parts = torch.split(values, list(self.choices), -1)
        return torch.stack([part.argmax(-1) for part in parts], -1)

    def taken(self, values: Tensor, actions: Tensor) -> Tensor:
        """Select values [K, B, ..., A] of actions [K, B], or average those of choices [K, B, C]."""
        if not self.choices:
            index = actions.view(*actions.shape, *[1] * (values.dim() - actions.dim()))
            return values.gather(-1, index.expand(*values.shape[:-1], 1)).squeeze(-1)
        firsts = torch.tensor((0, *accumulate(self.choices[:-1])), device=actions.device)
        index = (actions + firsts).view(*actions.shape[:2], *[1] * (values.dim() - 3), -1)
        return values.gather(-1, index.expand(*values.shape[:-1], -1)).mean(-1)

    @abstractmethod
    def values_of(self, weights: Weights, features: Tensor) -> Tensor:
        """Return action values [K, B, A] for features [K, B, F] and weights from `acting`."""

    def before(self, weights: Weights, encoded: Tensor) -> Tensor:  # noqa: ARG002
        """Apply the layers before the recurrent one to the encoder's output."""
        return encoded

    def values(self, weights: Weights, inputs: Tensor) -> Tensor:
        return self.values_of(weights, self.features(weights, inputs))

    def features(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Return features [K, B, F] of inputs [K, B, num_inputs] without a state."""
        encoded = scaled(inputs, self.input_scale)
        if self.encoder is not None:
            encoded = self.encoder.features(TOWER, weights, encoded)
        return self.before(weights, encoded)

    def unroll_features(
        self, weights: Weights, inputs: Tensor, state: Tensor, burn_in: Tensor | None = None
    ) -> Tensor:
        """Return features [K, G * T, F] of G sequences from states [K, G, memory]; see `unroll`."""
        if self.encoder is not None and self.encoder.memory:
            inputs = scaled(inputs, self.input_scale)
            found = self.encoder.unroll_features(TOWER, weights, inputs, state, burn_in)
            return self.before(weights, found)
        return unroll_recurrent(weights, self.features(weights, inputs), state, burn_in)

    def step(self, weights: Weights, inputs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        if self.encoder is not None and self.encoder.memory:
            inputs = scaled(inputs, self.input_scale)
            found, memory = self.encoder.step(TOWER, weights, inputs, memory)
            return self.values_of(weights, self.before(weights, found)), memory
        gates = apply(weights, GATES[0], self.features(weights, inputs))
        memory = recur(weights, gates, memory)
        return self.values_of(weights, memory), memory

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        return self.values(weights, inputs)

    @property
    def widest(self) -> int:
        return max(super().widest, 3 * self.memory)

    def _gate_shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        return gate_shapes(inputs, self.memory) if self._gates else {}

    def _head_shapes(self, inputs: int) -> Shapes:
        outputs = self.num_actions + self.config.dueling
        return linear_shapes("head", inputs, outputs, self.config.noisy)


class MLP(QNetwork):
    """Linear layers with activations, an optional recurrent layer, and a plain or dueling head."""

    def __init__(
        self,
        num_inputs: int,
        num_actions: int,
        config: NetworkConfig,
        encoder: Encoder | None = None,
        scale: Scale = 1.0,
        choices: tuple[int, ...] = (),
    ) -> None:
        super().__init__(num_inputs, num_actions, config, encoder, scale, choices)
        self._hidden = tuple(f"hidden{i}" for i in range(len(config.hidden)))
        self.layers = (*self._hidden, *self._gates, "head")
        if encoder is None and not self.memory and scale == 1.0:
            self.plain_layers = self.layers
        shapes, width = self._tower_shapes(TOWER, self._hidden, config.noisy)
        shapes |= self._gate_shapes(width)
        self.shapes = shapes | dict(self._head_shapes(config.recurrent or width))

    def before(self, weights: Weights, encoded: Tensor) -> Tensor:
        return apply_hidden(weights, self._hidden, encoded, self.config.activation)

    def values_of(self, weights: Weights, features: Tensor) -> Tensor:
        return apply(weights, "head", features)
