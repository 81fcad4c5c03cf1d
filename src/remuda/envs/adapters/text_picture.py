"""Draw text as a picture, for environments that are written and not drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from remuda.envs.rendering import FLOOR
from remuda.types import Array

SIZE = (480, 320)
"""Width and height in pixels, the same for all text, so that pictures make a film."""
INK = (205, 214, 244)
LARGEST, SMALLEST, MARGIN = 28, 7, 12
"""Sizes of letters, and the margin, in pixels."""


def picture_of_text(text: str) -> Array:
    """Return text in letters of one width, as large as fits: [320, 480, 3] uint8."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"
    image = Image.new("RGB", SIZE, FLOOR)
    draw = ImageDraw.Draw(image)
    for size in range(LARGEST, SMALLEST - 1, -1):
        font = ImageFont.truetype(str(file), size)
        left, top, right, bottom = draw.multiline_textbbox((0, 0), text, font=font)
        if right - left <= SIZE[0] - 2 * MARGIN and bottom - top <= SIZE[1] - 2 * MARGIN:
            break
    at = max((SIZE[0] - right - left) / 2, MARGIN), max((SIZE[1] - bottom - top) / 2, MARGIN)
    draw.multiline_text(at, text, font=font, fill=INK)
    return np.asarray(image).copy()
