"""Recordings: frames of play as a small GIF."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from remuda.coordinator.run_directory import write_file
from remuda.types import Array

COLOURS = 255
"""In the palette that all frames share. The 256th means `as in the frame before`."""

SAMPLES = 16
"""Frames that the palette is made from."""


def write_gif(frames: Sequence[Array], path: Path, frames_per_second: int = 8) -> None:
    """Write frames as a GIF that plays for ever; the file is whole, or it is not there.

    All frames share one palette, and of each frame only what changed is stored. Equal frames in a
    row become one that is shown for longer.

    Args:
        frames: each [height, width, 3] uint8, all of one size; at least one.
        path: the file; an older one is replaced.
        frames_per_second: at most 50; GIFs count in hundredths, and players slow down below two.

    Raises:
        ValueError: no frames, or not of this kind.
        RunDirectoryError: the disk is full or not writable; an older file stays as it was.
    """
    _check(frames)
    palette = _palette(frames)
    images = [
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    ]
    data = io.BytesIO()
    images[0].save(
        data,
        "GIF",
        save_all=True,
        append_images=images[1:],
        duration=max(round(100 / frames_per_second), 2) * 10,
        loop=0,
        disposal=1,
        optimize=True,
    )
    write_file(path, data.getvalue())


def _check(frames: Sequence[Array]) -> None:
    if not frames:
        raise ValueError("there are no frames to write")
    for frame in frames:
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            raise ValueError(
                f"frames must be [height, width, 3] uint8; one is {frame.shape} {frame.dtype}"
            )
        if frame.shape != frames[0].shape:
            raise ValueError(f"frames differ in size: {frames[0].shape} and {frame.shape}")


def _palette(frames: Sequence[Array]) -> Image.Image:
    """The colours that fit frames from the whole of the recording best."""
    chosen = np.unique(np.linspace(0, len(frames) - 1, SAMPLES).astype(int))
    found = [Image.fromarray(frames[i]).getcolors(COLOURS) for i in chosen]
    colours = {colour for one in found for _, colour in one or ()}
    if None not in found and len(colours) <= COLOURS:
        pixels = np.array(
            [sorted(colours)], np.uint8
        )  # few and flat, as games are drawn: keep them
    else:
        pixels = np.concatenate([frames[i].reshape(-1, 3) for i in chosen])[None]
    return Image.fromarray(pixels).quantize(COLOURS, Image.Quantize.MEDIANCUT)
