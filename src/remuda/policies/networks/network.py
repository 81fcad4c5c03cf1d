"""The base class of networks for K policies; parameters are passed to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from remuda.config import NetworkConfig
from remuda.policies.networks.compiled_pass import (
    CompiledLayers,
    CompiledPass,
    GatheredPass,
    PlainLayers,
)
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.layers import initialise_linear
from remuda.policies.networks.perceptron import LINEAR, through
from remuda.policies.stack import Parameters, Shapes
from remuda.types import Floats


class Network(ABC):
    """A map from observations of K policies to outputs."""

    shapes: Shapes  # everything published of one policy: learned parameters and buffers
    buffers: frozenset[str] = frozenset()  # names of what is published and not learned by gradients
    memory: int = 0  # size of the recurrent state; 0: not recurrent
    encoder: Encoder | None = None  # what comes before its linear layers

    def __init__(self, num_inputs: int, config: NetworkConfig) -> None:
        self.num_inputs, self.config = num_inputs, config

    @property
    def settings(self) -> tuple[str, ...]:
        """Return a key: networks of one class with equal shapes and settings act alike."""
        return (self.config.model_dump_json(exclude={"shared"}),)

    @property
    def encoder_memory(self) -> int:
        """Return the size of the encoder's recurrent state; 0: not recurrent."""
        return 0 if self.encoder is None else self.encoder.memory

    @property
    @abstractmethod
    def layers(self) -> tuple[str, ...]:
        """Return the names of the linear layers in order; the last is the head."""

    @property
    def widest(self) -> int:
        """Return the largest number of activations of a sample between two layers."""
        encoded = self.encoder.width if self.encoder is not None else 1
        return max(*self.config.hidden, encoded, 1)

    def initialise(self, parameters: Parameters, generator: torch.Generator) -> None:
        """Draw the parameters of one policy, views [1, ...]."""
        for layer in self.layers:
            initialise_linear(parameters, layer, generator)

    @abstractmethod
    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:
        """Return all that acting needs of one version, computed once."""

    @abstractmethod
    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """Return outputs [K, B, O] of inputs [K, B, num_inputs], by weights of `acting`."""

    def state_values(
        self,
        parameters: Parameters,  # noqa: ARG002
        observations: Tensor,  # noqa: ARG002
        memory: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor | None:
        """Return state values [K, B] for recurrent states [K, B, memory]; None: no head."""
        return None

    @property
    def plain_layers(self) -> tuple[str, ...]:
        """Return the layers of `outputs` if it is a plain perceptron; else empty."""
        return ()

    def compiled_pass(self, weights: Weights, inputs: Tensor) -> Callable[[], Floats] | None:
        """Return a compiled `outputs` that reads both arguments in place; None: there is none."""
        layers = self.compiled_layers(weights)
        return None if layers is None else CompiledPass(layers, inputs)

    def gathered_pass(self, weights: Weights) -> GatheredPass | None:
        """Return the same for streams gathered by policy."""
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
