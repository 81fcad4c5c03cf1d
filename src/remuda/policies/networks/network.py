"""Networks for K policies: the base class, and one with several heads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.networks.encoder import Encoder, Weights, unroll
from remuda.policies.networks.kernels.compiled_pass import PlainLayers
from remuda.policies.networks.kernels.gru import run_gru
from remuda.policies.networks.kernels.perceptron import LINEAR, through
from remuda.policies.networks.layers import Scale, initialise_layer, linear_shapes, scaled
from remuda.policies.stack import Parameters, Shapes

GATES = ("gates_in", "gates_memory")  # the linear layers of a gated recurrent layer


class Network(ABC):
    """A map from observations of K policies to outputs."""

    shapes: Shapes  # of one policy's learned parameters and buffers, all of which are published
    buffers: frozenset[str] = frozenset()  # names of parameters that are published but not learned
    memory: int = 0  # size of the recurrent state; 0: not recurrent
    layers: tuple[str, ...]  # names of the linear layers in order; the last is the head
    plain_layers: tuple[str, ...] = ()  # all layers that `outputs` applies; empty if it does more

    def __init__(
        self,
        num_inputs: int,
        config: NetworkConfig,
        encoder: Encoder | None = None,  # precedes the linear layers
        scale: Scale = 1.0,  # multiplies inputs
    ) -> None:
        self.num_inputs, self.config = num_inputs, config
        self.encoder, self.input_scale = encoder, scale
        self._gates = GATES if config.recurrent else ()
        # networks of one class with equal shapes and settings are equivalent
        self.settings: tuple[str, ...] = (config.model_dump_json(exclude={"shared"}),)

    def _hidden(self, tower: str) -> tuple[str, ...]:
        """Return the names of a tower's hidden layers."""
        return tuple(f"{tower}{i}" for i in range(len(self.config.hidden)))

    def _tower_shapes(
        self, tower: str, noisy: bool = False
    ) -> tuple[dict[str, tuple[int, ...]], int]:
        """Return the shapes of a tower's encoder and hidden layers, and its output width."""
        shapes, width = {}, self.num_inputs
        if self.encoder is not None:
            shapes, width = self.encoder.shapes(tower), self.encoder.width
            self.buffers |= self.encoder.buffers(tower)
        layers = zip(self._hidden(tower), self.config.hidden, strict=True)
        for i, (layer, units) in enumerate(layers):
            shapes |= linear_shapes(layer, width, units, noisy and i > 0)
            width = units
        return shapes, width

    def _taken(self, parameters: Parameters, tower: str, layers: Sequence[str]) -> Weights:
        """Return the parameters of some layers and of a tower's encoder."""
        names = [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]
        if self.encoder is not None:
            names += self.encoder.shapes(tower)
        return {name: parameters[name] for name in names}

    @property
    def widest(self) -> int:
        """Return the maximum number of activations per sample between two layers."""
        encoded = self.encoder.width if self.encoder is not None else 1
        return max(*self.config.hidden, encoded, 1)

    def _initialise_encoder(
        self, tower: str, parameters: Parameters, generator: torch.Generator
    ) -> None:
        if self.encoder is not None:
            for layer in self.encoder.layers(tower):
                initialise_layer(parameters, layer, generator)
            self.encoder.initialise(tower, parameters, generator)

    def initialise(self, parameters: Parameters, generator: torch.Generator) -> None:
        """Draw the parameters of one policy, views [1, ...]."""
        for layer in self.layers:
            initialise_layer(parameters, layer, generator)

    @abstractmethod
    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:
        """Return the weights for acting, computed once per version."""

    @abstractmethod
    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Return outputs [K, B, O] for inputs [K, B, num_inputs] and weights of `acting`."""

    def _tower(self, weights: Weights, tower: str, inputs: Tensor) -> Tensor:
        """Return features [K, B, F] of a tower, before a gated recurrent layer, without a state."""
        x = inputs if self.encoder is None else self.encoder.features(tower, weights, inputs)
        return self._through_hidden(weights, tower, x)

    def _through_hidden(self, weights: Weights, tower: str, x: Tensor) -> Tensor:
        """Apply the layers between a tower's encoder and its head or recurrent layer."""
        return apply_hidden(weights, self._hidden(tower), x, self.config.activation)

    def _recurrent_step(
        self, weights: Weights, tower: str, inputs: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return features and next states from states [K, B, memory]."""
        if self.encoder is not None and self.encoder.memory:
            x, state = self.encoder.step(tower, weights, inputs, state)
            return self._through_hidden(weights, tower, x), state
        state = self._recur(weights, self._tower(weights, tower, inputs), state)
        return state, state

    def _unrolled(
        self,
        weights: Weights,
        tower: str,
        inputs: Tensor,
        state: Tensor,
        burn_in: Tensor | None = None,
    ) -> Tensor:
        """Return features [K, G * T, F] of G sequences from states [K, G, memory]; see `unroll`."""
        if self.encoder is not None and self.encoder.memory:
            x = unroll(partial(self.encoder.step, tower, weights), inputs, state, burn_in)
            return self._through_hidden(weights, tower, x)

        return self._recur(weights, self._tower(weights, tower, inputs), state, burn_in)

    def _recur(
        self, weights: Weights, features: Tensor, state: Tensor, burn_in: Tensor | None = None
    ) -> Tensor:
        gates, memory = apply(weights, GATES[0], features), GATES[1]
        return run_gru(
            gates, weights[f"{memory}.weight"], weights[f"{memory}.bias"], state, burn_in
        )

    def compiled_layers(self, weights: Weights) -> PlainLayers | None:
        """Return all layers, which read these weights in place, if `outputs` can be compiled."""
        layers = self.plain_layers
        return PlainLayers(weights, layers, self.config.activation) if layers else None

    def step(self, weights: Weights, inputs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs and next states from states [K, B, memory]."""
        return self.outputs(weights, inputs), memory


def apply(weights: Weights, layer: str, inputs: Tensor) -> Tensor:
    """Apply one linear layer: [K, B, inputs] to [K, B, outputs]."""
    return through(inputs, [(weights[f"{layer}.weight"], weights[f"{layer}.bias"])], LINEAR)


def apply_hidden(
    weights: Weights, layers: Sequence[str], inputs: Tensor, activation: str
) -> Tensor:
    """Apply linear layers, each with an activation: [K, B, inputs] to [K, B, outputs]."""
    parts = [(weights[f"{layer}.weight"], weights[f"{layer}.bias"]) for layer in layers]
    return through(inputs, parts, activation)


def gate_shapes(inputs: int, units: int) -> dict[str, tuple[int, ...]]:
    """Return the parameter shapes of a gated recurrent layer."""
    found = linear_shapes(GATES[0], inputs, 3 * units)
    return found | linear_shapes(GATES[1], units, 3 * units)


class Heads(Network):
    """Named linear heads for K policies, each on its own hidden layers (and encoder).

    The first head chooses actions; the others are for user-defined algorithms.
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
            own, width = self._tower_shapes(head)
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
        return apply(weights, head, self._tower(weights, head, scaled(inputs, self.input_scale)))

    def _hidden(self, head: str) -> tuple[str, ...]:
        return tuple(f"{head}_hidden{i}" for i in range(len(self.config.hidden)))
