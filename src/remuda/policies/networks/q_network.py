"""Q-networks for K policies: the base class, and the multi-layer perceptron."""

from __future__ import annotations

from abc import abstractmethod
from itertools import accumulate

import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.layers import (
    fold_dueling,
    initialise_convolution,
    linear_shapes,
    plain_linear,
)
from remuda.policies.networks.network import Network, apply, apply_hidden
from remuda.policies.networks.recurrent import GATES, gate_shapes, recur, unroll_recurrent
from remuda.policies.networks.scaling import Scale, scaled
from remuda.policies.stack import Parameters, Shapes

TOWER = "hidden"  # the name of its only tower, for encoders


class QNetwork(Network):
    """Action values, for K policies at once.

    A pass has two halves: the encoder, the layers of `before` and an optional recurrent layer map
    observations to features, and features become values.
    """

    def __init__(
        self,
        num_inputs: int,
        num_actions: int,  # values of a state: one for each action or possibility
        config: NetworkConfig,
        encoder: Encoder | None = None,
        scale: Scale = 1.0,  # multiplies inputs
        choices: tuple[int, ...] = (),  # possibilities of each choice of branching actions
    ) -> None:
        super().__init__(num_inputs, config)
        self.choices = choices
        self.num_actions, self.encoder, self.input_scale = num_actions, encoder, scale
        if config.recurrent or self.encoder_memory:
            self.memory = self.encoder_memory or config.recurrent
        if encoder is not None:
            self.buffers = encoder.buffers(TOWER)

    def initialise(self, parameters: Parameters, generator: torch.Generator) -> None:
        """Draw the parameters of one policy, views [1, ...]."""
        if self.encoder is not None:
            for layer in self.encoder.layers(TOWER):
                initialise_convolution(parameters, layer, generator)
            self.encoder.initialise(TOWER, parameters, generator)
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
        """Return the plain weights."""
        return self.plain(parameters, noise)

    def best_of(self, values: Tensor) -> Tensor:
        """Return the first argmax of values [K, B, A]: actions [K, B], or choices [K, B, C]."""
        if not self.choices:
            return values.argmax(-1)
        parts = torch.split(values, list(self.choices), -1)
        return torch.stack([part.argmax(-1) for part in parts], -1)

    def taken(self, values: Tensor, actions: Tensor) -> Tensor:
        """Select values [K, B, ..., A] of actions [K, B], or choices [K, B, C]: [K, B, ...]."""
        if not self.choices:
            index = actions.view(*actions.shape, *[1] * (values.dim() - actions.dim()))
            return values.gather(-1, index.expand(*values.shape[:-1], 1)).squeeze(-1)
        firsts = torch.tensor((0, *accumulate(self.choices[:-1])), device=actions.device)
        index = (actions + firsts).view(*actions.shape[:2], *[1] * (values.dim() - 3), -1)
        return values.gather(-1, index.expand(*values.shape[:-1], -1)).mean(-1)

    @abstractmethod
    def values_of(self, weights: Weights, features: Tensor) -> Tensor:
        """Return action values [K, B, A] of features [K, B, F], by weights from `acting`."""

    def before(self, weights: Weights, encoded: Tensor) -> Tensor:  # noqa: ARG002
        """Apply the layers before the recurrent one to the encoder's output."""
        return encoded

    def values(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Return action values [K, B, A] of inputs [K, B, num_inputs], by weights from `acting`."""
        return self.values_of(weights, self.features(weights, inputs))

    def features(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Return features [K, B, F] of inputs [K, B, num_inputs] without a state."""
        return self.before(weights, self.encoded(weights, inputs))

    def unroll_features(
        self, weights: Weights, inputs: Tensor, state: Tensor, burn_in: Tensor | None = None
    ) -> Tensor:
        """Return features [K, G * T, F] of G sequences from states [K, G, memory]; see `unroll`."""
        if self.encoder is not None and self.encoder.memory:
            scaled = self._scaled(inputs)
            found = self.encoder.unroll_features(TOWER, weights, scaled, state, burn_in)
            return self.before(weights, found)
        return unroll_recurrent(weights, self.features(weights, inputs), state, burn_in)

    def step(self, weights: Weights, inputs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return action values and next states from states [K, B, memory]."""
        if self.encoder is not None and self.encoder.memory:
            found, memory = self.encoder.step(TOWER, weights, self._scaled(inputs), memory)
            return self.values_of(weights, self.before(weights, found)), memory
        gates = apply(weights, GATES[0], self.features(weights, inputs))
        memory = recur(weights, gates, memory)
        return self.values_of(weights, memory), memory

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Return the action values."""
        return self.values(weights, inputs)

    def encoded(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Apply the encoder to inputs [K, B, num_inputs]: [K, B, width]."""
        scaled = self._scaled(inputs)
        return scaled if self.encoder is None else self.encoder.features(TOWER, weights, scaled)

    def _scaled(self, inputs: Tensor) -> Tensor:
        return scaled(inputs, self.input_scale)

    @property
    def width(self) -> int:
        """Return the width of the encoder's output."""
        return self.num_inputs if self.encoder is None else self.encoder.width

    @property
    def widest(self) -> int:
        """Return the largest number of activations of a sample between two layers."""
        return max(super().widest, 3 * self.memory)

    @property
    def _gates(self) -> tuple[str, ...]:
        return GATES if self.config.recurrent else ()

    def _gate_shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        return gate_shapes(inputs, self.memory) if self._gates else {}

    def _head_shapes(self, inputs: int) -> Shapes:
        outputs = self.num_actions + self.config.dueling
        return linear_shapes("head", inputs, outputs, self.config.noisy)


class MLP(QNetwork):
    """Linear layers with activations, and a plain or dueling head.

    A gated recurrent layer may come before the head.
    """

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
        widths = (self.width, *config.hidden)
        shapes = encoder.shapes(TOWER) if encoder is not None else {}
        for i in range(len(config.hidden)):
            noisy = config.noisy and i > 0
            shapes |= linear_shapes(f"hidden{i}", widths[i], widths[i + 1], noisy)
        shapes |= self._gate_shapes(widths[-1])
        self.shapes = shapes | dict(self._head_shapes(config.recurrent or widths[-1]))

    @property
    def layers(self) -> tuple[str, ...]:
        """Return the hidden layers, the recurrent one, the head."""
        return (*self._hidden, *self._gates, "head")

    @property
    def plain_layers(self) -> tuple[str, ...]:
        """Return all of them if nothing else comes before or between them."""
        plain = self.encoder is None and not self.memory and self.input_scale == 1.0
        return self.layers if plain else ()

    @property
    def _hidden(self) -> tuple[str, ...]:
        return tuple(f"hidden{i}" for i in range(len(self.config.hidden)))

    def before(self, weights: Weights, encoded: Tensor) -> Tensor:
        """Apply the hidden layers."""
        return apply_hidden(weights, self._hidden, encoded, self.config.activation)

    def values_of(self, weights: Weights, features: Tensor) -> Tensor:
        """Return action values [K, B, A] of features [K, B, F]."""
        return apply(weights, "head", features)
