"""Image parts of observations: axis layout, and convolutions of images beside other numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from remuda.policies.networks.convolutions import Convolutions
from remuda.policies.networks.encoder import Encoder, Image, Weights

COLOURS = (1, 3, 4)  # channels of grey images, and of colour without and with transparency
CLEAR = 8  # least side of a colour image whose layout needs no mention
APART = 1.5  # factor by which the sides of the other layout must be more unlike


class Guess(NamedTuple):
    """A layout guessed from a shape."""

    layout: str  # `hwc` or `chw`; empty: ambiguous
    is_sure: bool  # whether no other reading makes sense


def guess_layout(shape: tuple[int, ...], is_pixels: bool) -> Guess:
    """Guess height and width of a three-axis image: the axes that are most alike."""
    first, middle, last = (max(side, 1) for side in shape)
    if is_pixels and (first in COLOURS) != (last in COLOURS):
        return Guess("hwc" if last in COLOURS else "chw", True)
    if (first == middle) != (middle == last):
        layout = "hwc" if first == middle else "chw"
    else:
        hwc, chw = (max(pair) / min(pair) for pair in ((first, middle), (middle, last)))
        if max(hwc, chw) < APART * min(hwc, chw):
            return Guess("", False)
        layout = "hwc" if hwc < chw else "chw"
    channels, side = (last, first) if layout == "hwc" else (first, last)
    return Guess(layout, channels in COLOURS and min(side, middle) >= CLEAR)


class ImagePart(NamedTuple):
    """An image among the numbers of an observation."""

    start: int  # its first number in one observation
    image: Image

    @property
    def end(self) -> int:
        """Return its end in one observation."""
        return self.start + self.image.channels * self.image.height * self.image.width


class PictureEncoder(Encoder):
    """Convolutions of each image in an observation; other numbers come first in the features."""

    def __init__(
        self,
        layers: tuple[tuple[int, int, int], ...],  # channels, kernel, stride
        activation: str,
        pictures: tuple[ImagePart, ...],
        size: int,  # numbers in one observation, unstacked
        frames: int,  # stacked observations
    ) -> None:
        self._pictures, self._size, self._frames = pictures, size, frames
        self._own = [Convolutions(layers, activation, picture.image) for picture in pictures]
        ends = [0, *(picture.end for picture in pictures)]
        starts = [*(picture.start for picture in pictures), size]
        self._others = [
            slice(*each) for each in zip(ends, starts, strict=True) if each[0] < each[1]
        ]
        others = sum(own.stop - own.start for own in self._others)
        self.work = sum(own.work for own in self._own)
        self.width = others * frames + sum(own.width for own in self._own)

    def layers(self, tower: str) -> tuple[str, ...]:
        """Return those of each image."""
        named = self._named(tower)
        return tuple(layer for name, own in named for layer in own.layers(name))

    def shapes(self, tower: str) -> dict[str, tuple[int, ...]]:
        """Return those of each image."""
        found: dict[str, tuple[int, ...]] = {}
        for name, own in self._named(tower):
            found |= own.shapes(name)
        return found

    def features(self, tower: str, weights: Weights, inputs: Tensor) -> Tensor:
        """Return features [K, B, width] of inputs [K, B, num_inputs]."""
        policies, batch, _ = inputs.shape
        frames = inputs.reshape(policies, batch, self._frames, self._size)
        found = [frames[..., own].flatten(2) for own in self._others]
        for picture, (name, own) in zip(self._pictures, self._named(tower), strict=True):
            pixels = frames[..., picture.start : picture.end].flatten(2).contiguous()
            found.append(own.features(name, weights, pixels))
        return torch.cat(found, -1)

    def _named(self, tower: str) -> list[tuple[str, Convolutions]]:
        return [(f"{tower}_picture{i}", own) for i, own in enumerate(self._own)]
