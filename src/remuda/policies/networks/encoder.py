"""What may stand before a network's linear layers, for K policies at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from remuda.policies.networks.along import along
from remuda.policies.stack import Parameters

Weights = dict[str, Tensor]
"""Plain weights of one pass, by name, each [K, ...]."""


@dataclass(frozen=True)
class Image:
    """How the numbers of an observation lie in space."""

    channels: int
    height: int
    width: int
    channels_last: bool = False
    frames: int = 1
    """Observations that are stacked, each with its own channels."""


class Encoder(ABC):
    """From observations to features, for K policies at once."""

    width: int
    """Features that leave it."""
    work: int = 0
    """Multiplications for one observation in convolutions; 0: there are none."""
    memory: int = 0
    """Numbers that it keeps of a stream from one step to the next; 0: it is not recurrent."""

    @abstractmethod
    def shapes(self, tower: str) -> dict[str, tuple[int, ...]]:
        """The parameters that a tower needs, by name."""

    def buffers(self, tower: str) -> frozenset[str]:  # noqa: ARG002
        """The names of those that are published and not learned."""
        return frozenset()

    def layers(self, tower: str) -> tuple[str, ...]:  # noqa: ARG002
        """The names of the layers that are to be drawn as the network's own are."""
        return ()

    def initialise(self, tower: str, parameters: Parameters, generator: torch.Generator) -> None:  # noqa: B027
        """Draw what `layers` does not name, for one policy: views [1, ...]."""

    def bind(self, weights: Weights) -> None:  # noqa: B027
        """Make ready for passes in inference mode with these weights, which stay where they are.

        Args:
            weights: of K policies.
        """

    @abstractmethod
    def features(self, tower: str, weights: Weights, inputs: Tensor) -> Tensor:
        """Features [K, B, width] of inputs [K, B, num_inputs], where it is not recurrent."""

    def step(
        self, tower: str, weights: Weights, inputs: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same where there is a state [K, B, memory], and what that becomes."""
        return self.features(tower, weights, inputs), state

    def features_along(
        self,
        tower: str,
        weights: Weights,
        inputs: Tensor,
        state: Tensor,
        burn_in: Tensor | None = None,
    ) -> Tensor:
        """Features [K, G * T, width] of G sequences, one after another, of states [K, G, memory].

        Args:
            tower: whose parameters.
            weights: of K policies.
            inputs: [K, G * T, num_inputs].
            state: before each sequence.
            burn_in: [K, G] steps of each that only bring the state up to date; None: none.
        """

        def step(now: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
            return self.step(tower, weights, now, before)

        return along(step, inputs, state, burn_in)
