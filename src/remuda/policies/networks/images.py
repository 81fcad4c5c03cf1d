"""The layout of images in observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

COLOURS = (1, 3, 4)  # channels of grey images, and of colour without and with transparency
MIN_SIDE = 8  # minimum side of a colour image whose layout is certain
MIN_RATIO = 1.5  # minimum ratio of the two layouts' aspect ratios for a guess


@dataclass(frozen=True)
class Image:
    """The layout of an image in a flattened observation."""

    channels: int
    height: int
    width: int
    channels_last: bool = False
    frames: int = 1  # stacked observations
    start: int = 0  # index of the image's first number in one observation

    @property
    def end(self) -> int:
        return self.start + self.channels * self.height * self.width


class Guess(NamedTuple):
    """A layout guessed from a shape."""

    layout: str  # `hwc` or `chw`; empty: ambiguous
    is_sure: bool  # whether no other layout is plausible


def guess_layout(shape: tuple[int, ...], is_pixels: bool) -> Guess:
    """Guess an image's layout by equal sides, then its colours, then its two most similar axes."""
    first, middle, last = (max(side, 1) for side in shape)
    if (first == middle) != (middle == last):
        layout = "hwc" if first == middle else "chw"
    elif is_pixels and (first in COLOURS) != (last in COLOURS):
        layout = "hwc" if last in COLOURS else "chw"
    else:
        hwc, chw = (max(pair) / min(pair) for pair in ((first, middle), (middle, last)))
        if max(hwc, chw) < MIN_RATIO * min(hwc, chw):
            return Guess("", False)
        layout = "hwc" if hwc < chw else "chw"
    channels, side = (last, first) if layout == "hwc" else (first, last)
    return Guess(layout, channels in COLOURS and (is_pixels or min(side, middle) >= MIN_SIDE))
