"""What stands before a network's linear layers: convolutions, or a module of the user's own.

An encoder has no parameters of its own: it names those that it needs for each tower of a network,
and is handed them, of K policies at once.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from remuda.config import PolicyConfig
from remuda.errors import ConfigError, ContractError
from remuda.policies.networks.convolution import as_groups, by_torch, convolve
from remuda.policies.networks.encoder import Encoder, Image, Weights
from remuda.policies.networks.lifted import lifted, memory_of_module
from remuda.policies.networks.products import suits


class Observer(Protocol):
    """What an encoder goes by of a policy's specification."""

    @property
    def config(self) -> PolicyConfig:
        """How the policy is configured."""

    @property
    def observation(self) -> tuple[int, ...]:
        """The shape of what it observes."""

    @property
    def image(self) -> Image | None:
        """How that lies in space; None: it is no image."""


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
        self.work = 0
        """Multiplications for one observation."""
        channels, height, width = image.channels * image.frames, image.height, image.width
        for i, (out, kernel, stride) in enumerate(layers):
            if kernel > min(height, width):
                raise ContractError(
                    f"network.convolutions: layer {i} has a kernel of {kernel}, and what it sees "
                    f"is {height} x {width}"
                )
            self._parameters.append((out, channels, kernel, kernel))
            height, width = ((size - kernel) // stride + 1 for size in (height, width))
            self.work += height * width * out * channels * kernel * kernel
            channels = out
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
        parts = [
            (weights[f"{layer}.weight"], weights[f"{layer}.bias"], stride)
            for layer, (_, _, stride) in zip(self.layers(tower), self._layers, strict=True)
        ]
        image, (policies, batch, _) = self._image, inputs.shape
        size = (image.frames, image.height, image.width, image.channels)
        if image.channels_last:
            x = inputs.view(policies, batch, *size).movedim(2, 4)
        else:
            x = inputs.view(policies, batch, size[0] * size[3], *size[1:3]).movedim(2, 4)
        x = x.reshape(policies, batch, *size[1:3], -1)
        if suits(inputs, *(each for weight, bias, _ in parts for each in (weight, bias))):
            for weight, bias, stride in parts:
                x = convolve(x, weight, bias, stride, self._activation)
            return x.movedim(4, 2).flatten(2)
        x = as_groups(x)
        for weight, bias, stride in parts:
            x = by_torch(x, weight, bias, stride, self._activation)
        return x.reshape(batch, policies, -1).transpose(0, 1)


def encoder_for(spec: Observer) -> Encoder | None:
    """What a policy's configuration puts before its linear layers; None: nothing.

    Raises:
        ConfigError: its own module cannot be found or made, or remembers where nothing may.
        ContractError: the layers do not fit what it observes.
    """
    network = spec.config.network
    if network.module:
        found = lifted(network.module, network.options, _shape_of(spec))
        if found.memory:
            _check_recurrent(spec)
        return found
    if network.convolutions:
        return Convolutions(network.convolutions, network.activation, spec.image)
    return None


def memory_of(spec: Observer) -> int:
    """Numbers that a policy's network keeps of a stream from one step to the next.

    Raises:
        ConfigError: its own module cannot be found or made.
        ContractError: its own module does not fit what it observes.
    """
    network = spec.config.network
    if not network.module:
        return network.recurrent
    return memory_of_module(network.module, network.options, _shape_of(spec)) or network.recurrent


def _shape_of(spec: Observer) -> tuple[int, ...]:
    """Of what a module of the user's observes; where frames are stacked, their number first."""
    frames = (spec.config.n_frames,) if spec.config.n_frames > 1 else ()
    return (*frames, *spec.observation)


def _check_recurrent(spec: Observer) -> None:
    """Refuse a recurrent module where `network.recurrent` is refused, too, or beside it."""
    config, network = spec.config, spec.config.network
    told = f"policy.network.module {network.module} has a state_size"
    if network.recurrent:
        raise ConfigError(f"{told}, and network.recurrent is {network.recurrent}; set that to 0")
    if config.shares_network is False:
        raise ConfigError(f"{told}, which needs network.shared true: there is one memory")
    if config.experience.group:
        raise ConfigError(
            f"{told}, and experience.group is for policies without a memory: what another kept in "
            "mind is of no use"
        )
    if config.rollout_length and config.ppo.anchor_cost:
        raise ConfigError(f"{told}, and ppo.anchor_cost is for policies without a memory")
    try:
        config.check_waiting(recurrent=True)
    except ValueError as error:
        raise ConfigError(f"{told}, so that batches are whole segments, and {error}") from None
