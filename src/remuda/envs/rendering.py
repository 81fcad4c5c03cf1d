"""Pictures of grid worlds: one small sprite for each kind of tile, laid out like the grid.

Shapes are functions of the position in a tile, x to the right and y down, both in -1..1. They are
painted with soft edges: each pixel averages many points.
"""

import colorsys
from collections.abc import Callable

import numpy as np

from remuda.types import Array, Bools

TILE = 16
"""The side of a tile in pixels."""
_FINE = 8  # points looked at along one side of a pixel

Colour = tuple[int, int, int]
Shape = Callable[[Array, Array], Bools]

FLOOR: Colour = (26, 27, 38)
FLOOR_EDGE: Colour = (32, 34, 48)
WALL: Colour = (65, 72, 104)
WALL_EDGE: Colour = (48, 53, 79)
_AGENTS: tuple[Colour, ...] = (
    (247, 118, 142),
    (122, 162, 247),
    (255, 199, 95),
    (187, 154, 247),
    (255, 150, 92),
    (80, 210, 190),
)


def agent_colour(agent: int) -> Colour:
    """Return an agent's colour: hand-picked at first, then new hues."""
    if agent < len(_AGENTS):
        return _AGENTS[agent]
    red, green, blue = colorsys.hsv_to_rgb(agent * 0.618034 % 1.0, 0.5, 0.95)
    return round(red * 255), round(green * 255), round(blue * 255)


def disc(x0: float, y0: float, radius: float) -> Shape:
    """A filled circle."""
    return lambda x, y: (x - x0) ** 2 + (y - y0) ** 2 <= radius**2


def block(x0: float, y0: float, half: float, corner: float) -> Shape:
    """A square of half-width `half` with rounded corners."""
    straight = half - corner
    return lambda x, y: (
        np.hypot(np.maximum(np.abs(x - x0) - straight, 0), np.maximum(np.abs(y - y0) - straight, 0))
        <= corner
    )


def polygon(*points: tuple[float, float]) -> Shape:
    """A convex polygon; its corners run clockwise."""

    def inside(x: Array, y: Array) -> Bools:
        within = np.ones_like(x, np.bool_)
        for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
            within &= (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) >= 0
        return within

    return inside


def sprite(*layers: tuple[Colour, Shape], ground: Colour = FLOOR) -> Array:
    """Paint shapes over the ground, first to last: [TILE, TILE, 3] uint8."""
    axis = (np.arange(TILE * _FINE) + 0.5) / (TILE * _FINE) * 2 - 1
    x, y = np.meshgrid(axis, axis)
    picture: Array = np.full((TILE, TILE, 3), ground, np.float64)
    for colour, shape in layers:
        covered = shape(x, y).reshape(TILE, _FINE, TILE, _FINE).mean((1, 3))[..., None]
        picture += covered * (np.array(colour) - picture)
    return picture.round().astype(np.uint8)


def floor_sprite() -> Array:
    """Draw bare floor, with a faint joint between tiles."""
    return sprite((FLOOR, block(0, 0, 0.94, 0.1)), ground=FLOOR_EDGE)


def wall_sprite() -> Array:
    """Draw a brick of the wall."""
    return sprite((WALL, block(0, 0, 0.9, 0.25)), ground=WALL_EDGE)


def agent_sprite(colour: Colour, ground: Colour | None = None) -> Array:
    """Draw a round agent with two eyes, on floor or on this ground."""
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
    """Put a picture on a canvas, its centre at x and y, both in 0..1 of the canvas."""
    height, width = picture.shape[:2]
    top = round(y * canvas.shape[0] - height / 2)
    left = round(x * canvas.shape[1] - width / 2)
    canvas[top : top + height, left : left + width] = picture


def draw_grid(cells: Array, sprites: Array) -> Array:
    """Lay out sprites like a grid: [height * TILE, width * TILE, 3] uint8.

    Args:
        cells: [height, width], the number of each cell's sprite.
        sprites: [kinds, TILE, TILE, 3] uint8.
    """
    height, width = cells.shape
    return sprites[cells].swapaxes(1, 2).reshape(height * TILE, width * TILE, 3)
