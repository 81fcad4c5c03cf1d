"""A prey of MPE's tag that flees, by hand: what adversaries learn against in `worlds.py tag`."""

from __future__ import annotations

from typing import Any

import numpy as np

STAY, LEFT, RIGHT, DOWN, UP = range(5)
WALL = 0.9
"""Beyond it a prey of simple_tag is punished, from the middle of the world outwards."""


def flee(env: Any, agent: int, observations: np.ndarray, random: Any) -> np.ndarray:  # noqa: ARG001
    """Move away from the nearest adversary, and inwards at the border.

    Args:
        env: the game; it is not used.
        agent: the prey.
        observations: [N, 14] its velocity, its position, two landmarks and three adversaries, all
            seen from itself but the position, two numbers each.
        random: it draws nothing.

    Returns:
        [N] actions of simple_tag.
    """
    count = len(observations)
    position = observations[:, 2:4]
    others = observations[:, -6:].reshape(count, 3, 2)
    distances = np.linalg.norm(others, axis=2)
    nearest = others[np.arange(count), distances.argmin(1)]
    away = -nearest / np.maximum(distances.min(1), 1e-6)[:, None] ** 2
    away -= 40.0 * np.sign(position) * np.maximum(np.abs(position) - WALL, 0.0)
    sideways = np.abs(away[:, 0]) > np.abs(away[:, 1])
    return np.where(
        sideways,
        np.where(away[:, 0] > 0, RIGHT, LEFT),
        np.where(away[:, 1] > 0, UP, DOWN),
    ).astype(np.int64)
