"""Q-networks for K policies."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.layers import Scale, fold_dueling, linear_shapes, plain_linear, scaled
from remuda.policies.networks.network import Network, apply, gate_shapes
from remuda.policies.stack import Parameters

TOWER = "hidden"  # name of a Q-network's only tower


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
        layers, shapes, width = self._body()
        self.layers = (*layers, "head")
        outputs = num_actions + config.dueling
        self.shapes = shapes | linear_shapes("head", width, outputs, config.noisy)
        if encoder is None and not self.memory and scale == 1.0:
            self.plain_layers = self.layers

    def initialise(self, parameters: Parameters, generator: torch.Generator) -> None:
        self._initialise_encoder(TOWER, parameters, generator)
        super().initialise(parameters, generator)

    def plain(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:
        """Return the plain weights of one pass; gradients flow through them to the parameters."""
        weights: Weights = {}
        for layer in self.layers:
            weight, bias = plain_linear(parameters, layer, noise)
            if layer == self.layers[-1] and self.config.dueling:
                weight, bias = fold_dueling(weight), fold_dueling(bias)
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

    def values_of(self, weights: Weights, features: Tensor) -> Tensor:
        """Return action values [K, B, A] for features [K, B, F] and weights from `acting`."""
        return apply(weights, "head", features)

    def features(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Return features [K, B, F] of inputs [K, B, num_inputs] without a state."""
        return self._tower(weights, TOWER, scaled(inputs, self.input_scale))

    def unroll_features(
        self, weights: Weights, inputs: Tensor, state: Tensor, burn_in: Tensor | None = None
    ) -> Tensor:
        """Return features [K, G * T, F] of G sequences from states [K, G, memory]; see `unroll`."""
        return self._unrolled(weights, TOWER, scaled(inputs, self.input_scale), state, burn_in)

    def step(self, weights: Weights, inputs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        inputs = scaled(inputs, self.input_scale)
        features, memory = self._recurrent_step(weights, TOWER, inputs, memory)
        return self.values_of(weights, features), memory

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        return self.values_of(weights, self.features(weights, inputs))

    @property
    def widest(self) -> int:
        return max(super().widest, 3 * self.memory)

    def _body(self) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]], int]:
        """Return the names and shapes of the layers before the head, and the features' width."""
        shapes, width = self._tower_shapes(TOWER, self.config.noisy)
        return (*self._hidden(TOWER), *self._gates), *self._with_gates(shapes, width)

    def _with_gates(
        self, shapes: dict[str, tuple[int, ...]], width: int
    ) -> tuple[dict[str, tuple[int, ...]], int]:
        """Add the shapes of a gated recurrent layer, if any; return its width too."""
        if not self._gates:
            return shapes, width
        return shapes | gate_shapes(width, self.memory), self.memory
