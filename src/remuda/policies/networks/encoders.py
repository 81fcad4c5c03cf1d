"""Selection of an encoder: convolutions of images in observations, or a user's module."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.nn.functional import pad

from remuda.errors import ConfigError, ContractError
from remuda.policies.networks.actor_critic import CriticInput
from remuda.policies.networks.encoder import Encoder, Weights
from remuda.policies.networks.images import Image
from remuda.policies.networks.kernels.convolution import as_groups, by_torch, convolve
from remuda.policies.networks.kernels.gemm import suits
from remuda.policies.networks.layers import simplified
from remuda.policies.networks.lifted import lifted
from remuda.policies.spec import PolicySpec

VALUE_MODULE = "policy.network.value_module"


class Convolutions(Encoder):
    """Convolutions with activations, of an observation that is one image."""

    def __init__(
        self,
        layers: tuple[tuple[int, int, int], ...],
        activation: str,
        image: Image,
        padding: str = "valid",
    ) -> None:
        """Use these layers (channels, kernel, stride); raise ContractError if they do not fit."""
        self._layers, self._activation, self._image = layers, activation, image
        self._parameters: list[tuple[int, ...]] = []
        self._margins: list[tuple[int, int, int, int]] = []  # left, right, top, bottom
        self.work = 0
        channels, height, width = image.channels * image.frames, image.height, image.width
        for i, (out, kernel, stride) in enumerate(layers):
            across, down = (
                _margins(size, kernel, stride) if padding == "same" else (0, 0)
                for size in (width, height)
            )
            self._margins.append((*across, *down))
            height, width = height + sum(down), width + sum(across)
            if kernel > min(height, width):
                raise ContractError(
                    f"network.convolutions: layer {i} has a kernel of {kernel}, but its input "
                    f"is {height} x {width}; use a smaller kernel, or network.padding same"
                )
            self._parameters.append((out, channels, kernel, kernel))
            height, width = ((size - kernel) // stride + 1 for size in (height, width))
            self.work += height * width * out * channels * kernel * kernel
            channels = out
        self.width = channels * height * width

    def layers(self, tower: str) -> tuple[str, ...]:
        return tuple(f"{tower}_conv{i}" for i in range(len(self._layers)))

    def shapes(self, tower: str) -> dict[str, tuple[int, ...]]:
        """Return weights [channels, input channels, kernel, kernel] and biases [1, channels]."""
        found: dict[str, tuple[int, ...]] = {}
        for layer, shape in zip(self.layers(tower), self._parameters, strict=True):
            found |= {f"{layer}.weight": shape, f"{layer}.bias": (1, shape[0])}
        return found

    def features(self, tower: str, weights: Weights, inputs: Tensor) -> Tensor:
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
            for (weight, bias, stride), margins in zip(parts, self._margins, strict=True):
                x = pad(x, (0, 0, *margins)) if any(margins) else x
                x = convolve(x, weight, bias, stride, self._activation)
            return x.movedim(4, 2).flatten(2)
        x = as_groups(x)
        for (weight, bias, stride), margins in zip(parts, self._margins, strict=True):
            x = pad(x, margins) if any(margins) else x
            x = by_torch(x, weight, bias, stride, self._activation)
        return x.reshape(batch, policies, -1).transpose(0, 1)


def _margins(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the zeros before and after a row, so that ceil(size / stride) outputs remain."""
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2


class PictureEncoder(Encoder):
    """Convolutions of each image in an observation; other values come first in the features."""

    def __init__(
        self,
        layers: tuple[tuple[int, int, int], ...],  # channels, kernel, stride
        activation: str,
        pictures: tuple[Image, ...],
        size: int,  # numbers in one observation, unstacked
        frames: int,  # stacked observations
        padding: str,
    ) -> None:
        self._pictures, self._size, self._frames = pictures, size, frames
        self._own = [Convolutions(layers, activation, image, padding) for image in pictures]
        ends = [0, *(picture.end for picture in pictures)]
        starts = [*(picture.start for picture in pictures), size]
        self._others = [
            slice(*each) for each in zip(ends, starts, strict=True) if each[0] < each[1]
        ]
        others = sum(own.stop - own.start for own in self._others)
        self.work = sum(own.work for own in self._own)
        self.width = others * frames + sum(own.width for own in self._own)

    def layers(self, tower: str) -> tuple[str, ...]:
        named = self._named(tower)
        return tuple(layer for name, own in named for layer in own.layers(name))

    def shapes(self, tower: str) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for name, own in self._named(tower):
            found |= own.shapes(name)
        return found

    def features(self, tower: str, weights: Weights, inputs: Tensor) -> Tensor:
        policies, batch, _ = inputs.shape
        frames = inputs.reshape(policies, batch, self._frames, self._size)
        found = [frames[..., own].flatten(2) for own in self._others]
        for picture, (name, own) in zip(self._pictures, self._named(tower), strict=True):
            pixels = frames[..., picture.start : picture.end].flatten(2).contiguous()
            found.append(own.features(name, weights, pixels))
        return torch.cat(found, -1)

    def _named(self, tower: str) -> list[tuple[str, Convolutions]]:
        return [(f"{tower}_picture{i}", own) for i, own in enumerate(self._own)]


def encoder_for(spec: PolicySpec) -> Encoder | None:
    """Return a policy's encoder, if any; raise ConfigError or ContractError if it is unusable."""
    network = spec.config.network
    if network.module:
        # Return a copy, because callers may use it in different threads.
        found = copy.deepcopy(spec.module())
        if found.memory:
            _check_recurrent(spec)
            if spec.config.has_own_value and not network.value_module:
                raise ConfigError(
                    f"{spec.module_key} {network.module} has a state_size, and the value "
                    "network, which does not share it (policy.value.input), has no recurrent "
                    "state; set policy.network.value_module"
                )
        return found
    if not network.convolutions:
        return None
    size, pictures = spec.observation_size, spec.pictures
    if not pictures:
        raise ContractError(
            "network.convolutions needs images, which have two or three dimensions; the "
            f"observation has the shape {spec.observation}"
        )
    layers, activation, padding = network.convolutions, network.activation, network.padding
    if len(pictures) == 1 and pictures[0].end - pictures[0].start == size:
        return Convolutions(layers, activation, pictures[0], padding)
    return PictureEncoder(layers, activation, pictures, size, spec.config.n_frames, padding)


def critic_input(spec: PolicySpec) -> CriticInput | None:
    """Return the input of a centralised critic; None if the value network gets the observation."""
    if spec.critic is None:
        return None
    size, frames = spec.observation_size, spec.config.n_frames
    return CriticInput(size, spec.critic.size, frames, simplified(spec.critic.scale))


def value_encoder_for(spec: PolicySpec) -> Encoder | None:
    """Return the value network's own module, which gets a whole row; None if it has none."""
    network, critic = spec.config.network, critic_input(spec)
    if not network.value_module:
        return None
    shape = (spec.num_inputs if critic is None else critic.num_inputs,)
    found = copy.deepcopy(lifted(network.value_module, network.value_options, shape, VALUE_MODULE))
    if found.memory:
        raise ConfigError(
            f"{VALUE_MODULE} {network.value_module} has a state_size; a value network has no "
            "recurrent state, so use a module without one"
        )
    return found


def _check_recurrent(spec: PolicySpec) -> None:
    """Raise ConfigError if other settings do not allow a recurrent module."""
    config, network = spec.config, spec.config.network
    source = f"{spec.module_key} {network.module} has a state_size"
    if network.recurrent:
        raise ConfigError(f"{source}, and network.recurrent is {network.recurrent}; set it to 0")
    try:
        config.check_recurrent(source)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    try:
        config.check_waiting(recurrent=True)
    except ValueError as error:
        raise ConfigError(f"{source}, so that batches are whole segments, and {error}") from None
