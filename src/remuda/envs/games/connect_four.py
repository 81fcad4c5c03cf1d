"""Connect four: two agents drop discs into an upright grid, and four in a line win.

- The grid is `height` x `width` (6 x 7). In each turn agent 0 drops a disc, then agent 1. A disc
  falls to the lowest free row of its column; a full column may not be chosen.
- The first agent with `connect` (4) of its discs in a row, a column or a diagonal wins: it gets 1,
  the other -1, and the game ends at once. If the grid is full, the game is a draw.
- An agent observes its own discs and the other's: [2, height, width] uint8, the top row first.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.games.array_game import ArrayGame
from remuda.envs.games.options import whole_numbers
from remuda.envs.games.rendering import draw_grid, sprites
from remuda.envs.vector_env import VectorEnv
from remuda.system.checkpoint.fitting import Range, Table, require
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers, State

EMPTY, DISC = 0, 1  # a cell is empty, or DISC + the number of the agent whose disc it holds


class ConnectFour(ArrayGame):
    """Copies of connect four; see the rules at the top of this module."""

    turn_groups = ((0,), (1,))
    can_observe_together = False

    def __init__(
        self, num_envs: int = 1, *, height: int = 6, width: int = 7, connect: int = 4
    ) -> None:
        options = whole_numbers(height=(height, 2), width=(width, 2))
        options |= whole_numbers(connect=(connect, 2, max(height, width)))
        self._connect = connect
        space = Box(0, 1, (2, height, width), np.uint8)
        self._allocate(num_envs, options, space, [Discrete(width)] * 2, masked=True, layout="chw")
        self.rewards_so_far = self._rewards
        self.cells: Array = np.zeros((num_envs, height, width), np.int8)
        """[num_envs, height, width] int8: EMPTY, or DISC + an agent; the top row first."""
        self.heights: Integers = np.zeros((num_envs, width), np.int64)
        """[num_envs, width]: the number of discs in each column."""

    def reset(self, seeds: Integers, mask: Bools) -> None:  # noqa: ARG002
        self.cells[mask], self.heights[mask], self.active[mask] = EMPTY, 0, True

    def observe(self, agent: int, out: Array) -> None:
        """Write the observation: [num_envs, 2, height, width] uint8."""
        _observe(self.cells, agent, out)

    def mask(self, agent: int, out: Bools) -> None:
        """Allow the columns that are not full, or all columns after the game has ended."""
        np.less(self.heights, self.cells.shape[1], out=out)
        out |= ~self.active[:, agent, None]

    def act(self, agent: int, actions: Integers) -> None:
        board = self.cells, self.heights, self.active, self._rewards, self._terminated
        _drop(*board, self._connect, agent, actions)

    def _world(self) -> Table:
        return {
            "cells": (self.cells, Range(0, DISC + 1)),
            "heights": (self.heights, Range(0, self.cells.shape[1])),
            "active": (self.active, None),
        }

    def _check(self, state: State) -> None:
        full = state["heights"].min(1) == self.cells.shape[1]
        fits = not (state["active"].any(1) & full).any()
        require(state, "heights", fits, "in an unfinished game a column has room")

    def render(self, env: int = 0) -> Array:
        """Draw one game: [height * 16, width * 16, 3] uint8."""
        return draw_grid(self.cells[env], self._sprites)

    @cached_property
    def _sprites(self) -> Array:
        return sprites("free_cell", "red_disc", "yellow_disc")


# The rules. Everything below runs compiled, over all copies.


@njit(cache=True)
def _observe(cells: Array, agent: int, out: Array) -> None:
    own, other = DISC + agent, DISC + 1 - agent
    for env in range(cells.shape[0]):
        for y in range(cells.shape[1]):
            for x in range(cells.shape[2]):
                out[env, 0, y, x] = cells[env, y, x] == own
                out[env, 1, y, x] = cells[env, y, x] == other


@njit(cache=True)
def _longest(grid: Array, y: int, x: int, disc: int) -> int:
    """Return the length of the longest line through (y, x), if that cell were `disc`."""
    height, width = grid.shape
    longest = 0
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        length = 1
        for way in (-1, 1):
            to_y, to_x = y + way * down, x + way * right
            while 0 <= to_y < height and 0 <= to_x < width and grid[to_y, to_x] == disc:
                length += 1
                to_y, to_x = to_y + way * down, to_x + way * right
        longest = max(longest, length)
    return longest


@njit(cache=True)
def _drop(
    cells: Array,
    heights: Integers,
    active: Bools,
    rewards: Floats,
    terminated: Bools,
    connect: int,
    agent: int,
    actions: Integers,
) -> None:
    height, width = cells.shape[1:]
    for env in range(cells.shape[0]):
        if not active[env, agent]:
            continue
        x = actions[env]
        while heights[env, x] == height:  # a full column was chosen: use the next free column
            x = (x + 1) % width
        y = height - 1 - heights[env, x]
        cells[env, y, x] = DISC + agent
        heights[env, x] += 1
        won = _longest(cells[env], y, x, DISC + agent) >= connect
        if won:
            rewards[env, agent], rewards[env, 1 - agent] = 1.0, -1.0
        if won or heights[env].min() == height:
            active[env], terminated[env] = False, True


@njit(cache=True)
def _appeal(cells: Array, heights: Integers, agent: int, connect: int, out: Floats) -> None:
    """Rate each column: 4 wins, 2 blocks the other's win, up to 0.5 by closeness to the middle."""
    height, width = cells.shape[1:]
    for env in range(cells.shape[0]):
        for x in range(width):
            y = height - 1 - heights[env, x]
            if y < 0:
                out[env, x] = -8.0
            elif _longest(cells[env], y, x, DISC + agent) >= connect:
                out[env, x] = 4.0
            elif _longest(cells[env], y, x, DISC + 1 - agent) >= connect:
                out[env, x] = 2.0
            else:
                out[env, x] = 0.5 - abs(x - (width - 1) / 2) / width


def tactician(
    env: VectorEnv,
    agent: int,
    observations: Array,  # noqa: ARG001
    rng: np.random.Generator,
) -> Integers:
    """A reference policy: win if possible, else block the other's line, else prefer the middle.

    It looks one disc ahead, and draws among columns with similar ratings.
    """
    assert isinstance(env, ConnectFour)
    appeal: Floats = np.zeros(env.heights.shape, np.float32)
    _appeal(env.cells, env.heights, agent, env._connect, appeal)
    actions: Integers = (appeal + rng.random(appeal.shape)).argmax(1)
    return actions
