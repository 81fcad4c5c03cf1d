"""Networks for K policies: they hold no parameters, which are handed to them."""

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
    """From what K policies see to what they make of it."""

    shapes: Shapes
    """All that is published of one policy, by name: what is learned, and the buffers."""
    buffers: frozenset[str] = frozenset()
    """The names of what is published and not learned by gradients."""
    memory: int = 0
    """Numbers that it keeps of a stream from one step to the next."""
    encoder: Encoder | None = None
    """What comes before its linear layers; None: nothing."""

    def __init__(self, num_inputs: int, config: NetworkConfig) -> None:
        self.num_inputs, self.config = num_inputs, config

    @property
    def settings(self) -> tuple[str, ...]:
        """What it was made with: those of one kind, with the same shapes and these, act alike."""
        return (self.config.model_dump_json(exclude={"shared"}),)

    @property
    def encoder_memory(self) -> int:
        """Numbers that its encoder keeps; 0: it has none, or one that is not recurrent."""
        return 0 if self.encoder is None else self.encoder.memory

    @property
    @abstractmethod
    def layers(self) -> tuple[str, ...]:
        """The names of the linear layers, in the order of the pass; the last is the head."""

    @property
    def widest(self) -> int:
        """The most numbers of a sample between two layers."""
        encoded = self.encoder.width if self.encoder is not None else 1
        return max(*self.config.hidden, encoded, 1)

    def initialise(self, parameters: Parameters, generator: torch.Generator) -> None:
        """Draw the parameters of one policy, views [1, ...]."""
        for layer in self.layers:
            initialise_linear(parameters, layer, generator)

    @abstractmethod
    def acting(self, parameters: Parameters, noise: torch.Generator | None) -> Weights:
        """All that acting needs of one version, worked out once."""

    @abstractmethod
    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """What to choose actions by, [K, B, O], from inputs [K, B, num_inputs] and `acting`."""

    def state_values(
        self,
        parameters: Parameters,  # noqa: ARG002
        observations: Tensor,  # noqa: ARG002
        memory: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor | None:
        """What states are worth by a head for values, [K, B]; None: it has none.

        Args:
            parameters: of K policies.
            observations: [K, B, num_inputs].
            memory: [K, B, memory] of a recurrent network: what it kept before them.
        """
        return None

    @property
    def plain_layers(self) -> tuple[str, ...]:
        """The layers that `outputs` is made of, if it is a perceptron; else none."""
        return ()

    def compiled_pass(self, weights: Weights, inputs: Tensor) -> Callable[[], Floats] | None:
        """`outputs` on the processor in few calls, where there is such a thing.

        Args:
            weights: from `acting`, of K policies...
            inputs: ...and [K, N, num_inputs]: both are looked at where they are in each pass.
        """
        layers = self.compiled_layers(weights)
        return None if layers is None else CompiledPass(layers, inputs)

    def gathered_pass(self, weights: Weights) -> GatheredPass | None:
        """The same for streams that are gathered by policy."""
        layers = self.compiled_layers(weights)
        return None if layers is None else GatheredPass(layers)

    def compiled_layers(self, weights: Weights) -> CompiledLayers | None:
        """All layers with these weights, where `outputs` goes through them in a compiled call."""
        layers = self.plain_layers
        return PlainLayers(weights, layers, self.config.activation) if layers else None

    def step(self, weights: Weights, inputs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The same where there is a memory [K, B, memory], and what it becomes."""
        return self.outputs(weights, inputs), memory


def apply(weights: Weights, layer: str, inputs: Tensor) -> Tensor:
    """One linear layer: [K, B, inputs] to [K, B, outputs]."""
    return through(inputs, [(weights[f"{layer}.weight"], weights[f"{layer}.bias"])], LINEAR)


def apply_hidden(
    weights: Weights, layers: Sequence[str], inputs: Tensor, activation: str
) -> Tensor:
    """Linear layers, each with an activation after it: [K, B, inputs] to [K, B, outputs]."""
    parts = [(weights[f"{layer}.weight"], weights[f"{layer}.bias"]) for layer in layers]
    return through(inputs, parts, activation)
