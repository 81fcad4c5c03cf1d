"""The interface of encoders, which may precede a network's linear layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from remuda.policies.stack import Parameters

Weights = dict[str, Tensor]  # named plain weights of one pass, each [K, ...]
# maps inputs [K, G, ...] and states [K, G, S] to features and next states
Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def unroll(step: Step, inputs: Tensor, state: Tensor, burn_in: Tensor | None = None) -> Tensor:
    """Apply a recurrent step along G sequences of T steps: [K, G * T, ...] to [K, G * T, F].

    The first `burn_in` [K, G] steps of a sequence only update its state [K, G, S]: no gradient
    flows back through them.
    """
    policies, sequences, _ = state.shape
    steps = inputs.view(policies, sequences, -1, *inputs.shape[2:])
    found = []
    for t in range(steps.shape[2]):
        if burn_in is not None:
            state = torch.where((burn_in == t).unsqueeze(-1), state.detach(), state)
        features, state = step(steps[:, :, t], state)
        found.append(features)
    return torch.stack(found, 2).flatten(1, 2)


class Encoder(ABC):
    """A map from observations to features, for K policies at once.

    Each tower of a network (the layers below a head, or below all heads) has separate parameters.
    """

    width: int  # number of features
    work: int = 0  # multiplications of convolutions for one observation
    memory: int = 0  # size of the recurrent state; 0: not recurrent

    @abstractmethod
    def shapes(self, tower: str) -> dict[str, tuple[int, ...]]:
        """Return the parameter shapes for a tower."""

    def buffers(self, tower: str) -> frozenset[str]:  # noqa: ARG002
        """Return the names of parameters that are published but not learned."""
        return frozenset()

    def layers(self, tower: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return the names of layers that are initialised like the network's own."""
        return ()

    def initialise(self, tower: str, parameters: Parameters, generator: torch.Generator) -> None:  # noqa: B027
        """Draw the parameters outside `layers`, for one policy: views [1, ...]."""

    def bind(self, weights: Weights) -> None:  # noqa: B027
        """Prepare inference passes with these weights [K, ...], which are read in place."""

    @abstractmethod
    def features(self, tower: str, weights: Weights, inputs: Tensor) -> Tensor:
        """Return features [K, B, width] of inputs [K, B, num_inputs], without a state."""

    def step(
        self, tower: str, weights: Weights, inputs: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return features and next states from states [K, B, memory]."""
        return self.features(tower, weights, inputs), state
