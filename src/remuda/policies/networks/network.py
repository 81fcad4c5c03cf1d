"""The base class of networks for K policies, which take their parameters as arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.networks.encoder import Encoder, Weights, unroll
from remuda.policies.networks.kernels.compiled_pass import (
    CompiledLayers,
    CompiledPass,
    GatheredPass,
    PlainLayers,
)
from remuda.policies.networks.kernels.perceptron import LINEAR, through
from remuda.policies.networks.layers import Scale, initialise_layer, linear_shapes
from remuda.policies.stack import Parameters, Shapes
from remuda.types import Floats

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

    def _tower_shapes(
        self, tower: str, layers: Sequence[str], noisy: bool = False
    ) -> tuple[dict[str, tuple[int, ...]], int]:
        """Return the shapes of a tower's encoder and hidden layers, and its output width."""
        shapes, width = {}, self.num_inputs
        if self.encoder is not None:
            shapes, width = self.encoder.shapes(tower), self.encoder.width
            self.buffers |= self.encoder.buffers(tower)
        for i, (layer, units) in enumerate(zip(layers, self.config.hidden, strict=True)):
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

    def state_values(
        self,
        parameters: Parameters,  # noqa: ARG002
        observations: Tensor,  # noqa: ARG002
        memory: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor | None:
        """Return state values [K, B] for recurrent states [K, B, memory]; None: no value head."""
        return None

    def compiled_pass(self, weights: Weights, inputs: Tensor) -> Callable[[], Floats] | None:
        """Return a compiled `outputs` that reads both arguments in place; None: unsupported."""
        layers = self.compiled_layers(weights)
        return None if layers is None else CompiledPass(layers, inputs)

    def gathered_pass(self, weights: Weights) -> GatheredPass | None:
        """Return a compiled `outputs` for inputs that are gathered by policy; None: unsupported."""
        layers = self.compiled_layers(weights)
        return None if layers is None else GatheredPass(layers)

    def compiled_layers(self, weights: Weights) -> CompiledLayers | None:
        """Return all layers with these weights, if `outputs` can run in one compiled call."""
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


def recur(weights: Weights, gates: Tensor, state: Tensor) -> Tensor:
    """Return a GRU's next state [K, B, units], as torch.nn.GRUCell; `gates` are from `gates_in`."""
    reset, update, new = gates.chunk(3, -1)
    own_reset, own_update, own_new = apply(weights, "gates_memory", state).chunk(3, -1)
    update = (update + own_update).sigmoid()
    new = (new + (reset + own_reset).sigmoid() * own_new).tanh()
    return new + update * (state - new)


def unroll_recurrent(
    weights: Weights, features: Tensor, state: Tensor, burn_in: Tensor | None = None
) -> Tensor:
    """Return states [K, G * T, units] along G sequences of features [K, G * T, D]; see `unroll`."""
    gates = apply(weights, "gates_in", features)

    def step(now: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        after = recur(weights, now, before)
        return after, after

    return unroll(step, gates, state, burn_in)
