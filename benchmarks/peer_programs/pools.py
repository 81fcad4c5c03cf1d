"""Observations and rewards of benchmark games, drawn beforehand: they cost next to nothing to play.

Remuda and its peers are given the same: rows of observations in turn, rewards, and ends. Made of
NumPy and Gymnasium alone, so that a peer's environment needs nothing of Remuda's.
"""

from __future__ import annotations

import math

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

KEPT = 16
"""Turns that are drawn; they come again and again."""
LENGTH = 64
"""Turns of an episode; copies begin at different ones."""
CHOICES = 16
"""The number of choices that may be masked."""


def seen_of(name: str) -> Box:
    """Return the named space of observations."""
    return {
        "flat": Box(0.0, 1.0, (125,), np.float32),
        "grid": Box(0, 255, (5, 11, 11), np.uint8),
        "screen": Box(0, 255, (4, 84, 84), np.uint8),
    }[name]


def done_of(name: str) -> Space:
    """Return the named space of actions."""
    return {
        "discrete": Discrete(4),
        "masked": Discrete(CHOICES),
        "several": MultiDiscrete([3, 3, 4]),
        "continuous": Box(-1.0, 1.0, (4,), np.float32),
    }[name]


class Pool:
    """So many rows, each a copy of a game that one agent plays."""

    def __init__(self, seen: str, rows: int, copies: int, seed: int = 0) -> None:
        """Draw it.

        Args:
            seen: which observations.
            rows: how many are shown at a time.
            copies: whose episodes begin at different turns; rows are these, agent by agent.
            seed: of what is drawn.
        """
        random, space = np.random.default_rng(seed), seen_of(seen)
        shape = (KEPT, rows, *space.shape)
        if space.dtype == np.uint8:
            drawn = random.bytes(math.prod(shape))
            self.seen = np.frombuffer(drawn, np.uint8).reshape(shape).copy()
        else:
            self.seen = random.random(shape, np.float32)
        self.rewards = random.standard_normal((KEPT, rows), np.float32)
        self.allowed = random.random((KEPT, rows, CHOICES)) < 0.5
        self.allowed[..., 0] = True
        self._first = np.tile(np.arange(copies) % LENGTH, rows // copies)
        self.turn = 0

    def observe(self) -> np.ndarray:
        """[rows, *shape]: what is seen in this turn; it must not be written to."""
        return self.seen[self.turn % KEPT]

    def masks(self) -> np.ndarray:
        """[rows, CHOICES] bool: what is allowed in this turn."""
        return self.allowed[self.turn % KEPT]

    def step(self) -> tuple[np.ndarray, np.ndarray]:
        """Go to the next turn; returns rewards [rows] and whose episodes ended [rows]."""
        rewards = self.rewards[self.turn % KEPT]
        self.turn += 1
        return rewards, (self.turn + self._first) % LENGTH == 0
