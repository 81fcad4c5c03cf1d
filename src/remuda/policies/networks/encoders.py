"""What stands before a network's linear layers: convolutions, or a module of the user's own.

An encoder has no parameters of its own: it names those that it needs for each tower of a network,
and is handed them, of K policies at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from remuda.errors import ContractError
from remuda.policies.networks.activations import activate
from remuda.policies.stack import Parameters

if TYPE_CHECKING:
    from remuda.policies.networks.network import Image, Weights
    from remuda.policies.spec import PolicySpec


class Encoder(ABC):
    """From observations to features, for K policies at once."""

    width: int
    """Features that leave it."""

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

    @abstractmethod
    def features(self, tower: str, weights: Weights, inputs: Tensor) -> Tensor:
        """Features [K, B, width] of inputs [K, B, num_inputs]."""


class Convolutions(Encoder):
    """Convolutions with activations between them; the K policies are groups of one convolution."""

    def __init__(
        self, layers: tuple[tuple[int, int, int], ...], activation: str, image: Image | None
    ) -> None:
        """Lay them out.

        Args:
            layers: channels, kernel and stride of each.
            activation: what follows each.
            image: how the inputs lie.

        Raises:
            ContractError: they do not fit the image, or there is none.
        """
        if image is None:
            raise ContractError("network.convolutions need observations [channels, height, width]")
        self._layers, self._activation, self._image = layers, activation, image
        self._parameters: list[tuple[int, ...]] = []
        channels, height, width = image.channels * image.frames, image.height, image.width
        for i, (out, kernel, stride) in enumerate(layers):
            if kernel > min(height, width):
                raise ContractError(
                    f"network.convolutions: layer {i} has a kernel of {kernel}, and what it sees "
                    f"is {height} x {width}"
                )
            self._parameters.append((out, channels, kernel, kernel))
            channels = out
            height, width = ((size - kernel) // stride + 1 for size in (height, width))
        self.width = channels * height * width

    def layers(self, tower: str) -> tuple[str, ...]:
        """One for each convolution."""
        return tuple(f"{tower}_conv{i}" for i in range(len(self._layers)))

    def shapes(self, tower: str) -> dict[str, tuple[int, ...]]:
        """Weights [channels, channels before, kernel, kernel] and biases [1, channels]."""
        found: dict[str, tuple[int, ...]] = {}
        for layer, shape in zip(self.layers(tower), self._parameters, strict=True):
            found |= {f"{layer}.weight": shape, f"{layer}.bias": (1, shape[0])}
        return found

    def features(self, tower: str, weights: Weights, inputs: Tensor) -> Tensor:
        """Features [K, B, width] of inputs [K, B, num_inputs]."""
        image, (policies, batch, _) = self._image, inputs.shape
        if image.channels_last:
            size = (image.frames, image.height, image.width, image.channels)
            inputs = inputs.view(policies, batch, *size).movedim(-1, 3).flatten(2)
        x = inputs.view(policies, batch, -1, image.height, image.width).transpose(0, 1)
        x = x.reshape(batch, -1, image.height, image.width)
        for layer, (_, _, stride) in zip(self.layers(tower), self._layers, strict=True):
            weight, bias = (weights[f"{layer}.{part}"] for part in ("weight", "bias"))
            x = functional.conv2d(
                x, weight.flatten(0, 1), bias.flatten(), stride=stride, groups=policies
            )
            x = activate(x, self._activation)
        return x.view(batch, policies, -1).transpose(0, 1)


def encoder_for(spec: PolicySpec) -> Encoder | None:
    """What a policy's configuration puts before its linear layers; None: nothing.

    Raises:
        ConfigError: its own module cannot be found or made.
        ContractError: the layers do not fit what it observes.
    """
    network = spec.config.network
    if network.module:
        from remuda.policies.networks.lifted import lifted

        frames = (spec.config.n_frames,) if spec.config.n_frames > 1 else ()
        return lifted(network.module, network.options, (*frames, *spec.observation))
    if network.convolutions:
        return Convolutions(network.convolutions, network.activation, spec.image)
    return None
