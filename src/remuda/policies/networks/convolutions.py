"""An encoder of convolutions."""

from __future__ import annotations

from torch import Tensor

from remuda.errors import ContractError
from remuda.policies.networks.convolution import as_groups, by_torch, convolve
from remuda.policies.networks.encoder import Encoder, Image, Weights
from remuda.policies.networks.products import suits


class Convolutions(Encoder):
    """Convolutions with activations; the K policies are groups of one convolution."""

    def __init__(
        self, layers: tuple[tuple[int, int, int], ...], activation: str, image: Image
    ) -> None:
        """Compute shapes of layers (channels, kernel, stride); raise ContractError if too small."""
        self._layers, self._activation, self._image = layers, activation, image
        self._parameters: list[tuple[int, ...]] = []
        self.work = 0
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
        """Return one name for each convolution."""
        return tuple(f"{tower}_conv{i}" for i in range(len(self._layers)))

    def shapes(self, tower: str) -> dict[str, tuple[int, ...]]:
        """Return weights [channels, input channels, kernel, kernel] and biases [1, channels]."""
        found: dict[str, tuple[int, ...]] = {}
        for layer, shape in zip(self.layers(tower), self._parameters, strict=True):
            found |= {f"{layer}.weight": shape, f"{layer}.bias": (1, shape[0])}
        return found

    def features(self, tower: str, weights: Weights, inputs: Tensor) -> Tensor:
        """Return features [K, B, width] of inputs [K, B, num_inputs]."""
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
