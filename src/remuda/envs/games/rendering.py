"""Images of games: small sprites from `data/sprites.json`, laid out in a grid or pasted.

A sprite is a background colour and the shapes that are painted over it, first to last. Shapes are
functions of the position in a tile, x to the right and y down, both in -1..1. Their edges are
antialiased: each pixel averages many points.
"""

import colorsys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from remuda.envs.games import data
from remuda.types import Array, Bools

TILE = 16  # pixels along the side of a tile
FINE = 8  # points along one side of a pixel

Colour = tuple[int, int, int]
Shape = Callable[[Array, Array], Bools]

FLOOR: Colour = (26, 27, 38)
FLOOR_EDGE: Colour = (32, 34, 48)
_AGENTS: tuple[Colour, ...] = (
    *((247, 118, 142), (122, 162, 247), (255, 199, 95)),
    *((187, 154, 247), (255, 150, 92), (80, 210, 190)),
)
TEXT_SIZE = (480, 320)  # pixels, the same for all text, so that images can be frames of a GIF
TEXT_INK = (205, 214, 244)
LARGEST, SMALLEST, MARGIN = 28, 7, 12  # font sizes, and the margin, in pixels


def agent_colour(agent: int) -> Colour:
    """Return an agent's colour: hand-picked for the first agents, then a new hue for each."""
    if agent < len(_AGENTS):
        return _AGENTS[agent]
    red, green, blue = colorsys.hsv_to_rgb(agent * 0.618034 % 1.0, 0.5, 0.95)
    return round(red * 255), round(green * 255), round(blue * 255)


def disc(x0: float, y0: float, radius: float) -> Shape:
    """Return a filled circle."""
    return lambda x, y: (x - x0) ** 2 + (y - y0) ** 2 <= radius**2


def block(x0: float, y0: float, half: float, corner: float) -> Shape:
    """Return a square of half-width `half` with rounded corners."""
    straight = half - corner
    return lambda x, y: (
        np.hypot(np.maximum(np.abs(x - x0) - straight, 0), np.maximum(np.abs(y - y0) - straight, 0))
        <= corner
    )


def polygon(*points: tuple[float, float]) -> Shape:
    """Return a convex polygon; its corners run clockwise."""

    def inside(x: Array, y: Array) -> Bools:
        within = np.ones_like(x, np.bool_)
        for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
            within &= (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) >= 0
        return within

    return inside


SHAPES: dict[str, Callable[..., Shape]] = {"disc": disc, "block": block, "polygon": polygon}


def sprite(*layers: tuple[Colour, Shape], ground: Colour = FLOOR) -> Array:
    """Paint shapes over the background, first to last: [TILE, TILE, 3] uint8."""
    axis = (np.arange(TILE * FINE) + 0.5) / (TILE * FINE) * 2 - 1
    x, y = np.meshgrid(axis, axis)
    picture: Array = np.full((TILE, TILE, 3), ground, np.float64)
    for colour, shape in layers:
        covered = shape(x, y).reshape(TILE, FINE, TILE, FINE).mean((1, 3))[..., None]
        picture += covered * (np.array(colour) - picture)
    return picture.round().astype(np.uint8)


def sprites(*names: str, agents: Sequence[Colour] = ()) -> Array:
    """Paint the named sprites, then agents on floor tiles: [count, TILE, TILE, 3] uint8."""
    found, painted = data.load("sprites"), []
    for name in names:
        ground, *layers = found[name]
        shapes = ((colour, SHAPES[kind](*where)) for colour, kind, *where in layers)
        painted.append(sprite(*shapes, ground=ground))
    return np.stack([*painted, *(agent_sprite(colour) for colour in agents)], dtype=np.uint8)


def agent_sprite(colour: Colour, ground: Colour | None = None) -> Array:
    """Draw a round agent with two eyes, on floor or on the background `ground`."""
    white, black = (255, 255, 255), (26, 27, 38)
    return sprite(
        (FLOOR if ground is None else ground, block(0, 0, 0.94, 0.1)),
        (colour, block(0, 0, 0.8, 0.5)),
        (white, disc(-0.34, -0.16, 0.24)),
        (white, disc(0.34, -0.16, 0.24)),
        (black, disc(-0.28, -0.12, 0.12)),
        (black, disc(0.40, -0.12, 0.12)),
        ground=FLOOR_EDGE if ground is None else ground,
    )


def paste(canvas: Array, picture: Array, x: float, y: float) -> None:
    """Put an image on a canvas, centred at x and y in shares of the canvas's width and height."""
    height, width = picture.shape[:2]
    top = round(y * canvas.shape[0] - height / 2)
    left = round(x * canvas.shape[1] - width / 2)
    canvas[top : top + height, left : left + width] = picture


def draw_grid(cells: Array, sprites: Array) -> Array:
    """Draw `cells` [h, w] by `sprites` [kinds, TILE, TILE, 3] uint8: [h * TILE, w * TILE, 3]."""
    height, width = cells.shape
    return sprites[cells].swapaxes(1, 2).reshape(height * TILE, width * TILE, 3)


def picture_of_text(text: str) -> Array:
    """Draw text in a monospaced font, as large as fits: [320, 480, 3] uint8."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"
    image = Image.new("RGB", TEXT_SIZE, FLOOR)
    draw = ImageDraw.Draw(image)
    width, height = TEXT_SIZE
    for size in range(LARGEST, SMALLEST - 1, -1):
        font = ImageFont.truetype(str(file), size)
        left, top, right, bottom = draw.multiline_textbbox((0, 0), text, font=font)
        if right - left <= width - 2 * MARGIN and bottom - top <= height - 2 * MARGIN:
            break
    at = max((width - right - left) / 2, MARGIN), max((height - bottom - top) / 2, MARGIN)
    draw.multiline_text(at, text, font=font, fill=TEXT_INK)
    return np.asarray(image).copy()
