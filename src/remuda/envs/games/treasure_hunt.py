"""Treasure Hunt: agents compete for gems and food on a grid, and avoid bones.

- The world is `height` x `width` tiles (21 x 21); its border is wall, its interior starts empty.
  Agents start on distinct random interior tiles. An episode is truncated after `max_turns` (100);
  it never terminates.
- At the start of a turn, each empty interior tile becomes a gem, a bone or food, equally likely,
  with probability `spawn_probability` (0.005). Then the agents act, one after another.
- An agent moves up, down, left or right, and gets the value of the tile there as its reward:

      wall              -1   it stays in place
      another agent      0   it stays in place
      gem +10, food +5, bone -10   it moves there, and the item is removed
      empty              0   it moves there

- An agent observes the tiles around it up to `vision_radius` (2) away, each as one of wall, gem,
  bone, food, agent, or nothing: [5, 5, 5] uint8, channels first. Tiles beyond the map are wall.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from gymnasium.spaces import Box

from remuda.envs.games.array_game import DOWN, LEFT, RIGHT, STEPS, UP, GridGame, place_agents
from remuda.envs.games.options import numbers, whole_numbers
from remuda.envs.games.randomness import below, log_miss, misses
from remuda.envs.games.rendering import agent_colour, draw_grid, sprites
from remuda.envs.vector_env import VectorEnv
from remuda.system.checkpoint.fitting import Range, Table
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers

# Kinds of tiles. An observation has one channel for each but EMPTY, in this order.
EMPTY, WALL, GEM, BONE, FOOD, AGENT = range(6)
NUM_CHANNELS = 5


class TreasureHunt(GridGame):
    """Copies of Treasure Hunt; see the rules at the top of this module."""

    wall = WALL

    def __init__(
        self,
        num_envs: int = 1,
        *,
        height: int = 21,
        width: int = 21,
        num_agents: int = 2,
        max_turns: int = 100,
        spawn_probability: float = 0.005,
        gem: float = 10.0,
        food: float = 5.0,
        bone: float = -10.0,
        wall: float = -1.0,
        vision_radius: int = 2,
    ) -> None:
        options = {
            **whole_numbers(height=(height, 3), width=(width, 3)),
            **whole_numbers(num_agents=(num_agents, 1, (height - 2) * (width - 2))),
            **whole_numbers(max_turns=(max_turns, 1), vision_radius=(vision_radius, 1)),
            **numbers(spawn_probability=(spawn_probability, 0.0, 1.0)),
            **numbers(gem=(gem,), food=(food,), bone=(bone,), wall=(wall,)),
        }
        view = 2 * vision_radius + 1
        space = Box(0, 1, (NUM_CHANNELS, view, view), np.uint8)
        self._allocate_grid(num_envs, options, space, layout="chw")
        self._log_miss = log_miss(spawn_probability)
        self._values: Floats = np.zeros(6, np.float32)
        self._values[[WALL, GEM, BONE, FOOD]] = wall, gem, bone, food
        self._framed, self.tiles = self._make_map(height, width, vision_radius, np.int8, WALL)
        self._marks: Integers = np.full(num_agents, AGENT)

    def reset(self, seeds: Integers, mask: Bools) -> None:
        agents = self._marks, self.positions, self._turns, self.active
        place_agents(self.tiles, *agents, self._streams, seeds, mask)

    def begin_turn(self) -> None:
        _begin_turn(self.tiles, self.active, self._rewards, self._streams, self._log_miss)

    def observe(self, agent: int, out: Array) -> None:
        """Write the observation: [num_envs, 5, view, view] uint8."""
        _observe(self._framed, self.positions, agent, out)

    def act(self, agent: int, actions: Integers) -> None:
        _act(self.tiles, self.positions, self.active, self._rewards, self._values, agent, actions)

    def _world(self) -> Table:
        return {**self._agents_world(), "tiles": (self._framed, Range(EMPTY, AGENT))}

    def render(self, env: int = 0) -> Array:
        """Draw one copy: [height * 16, width * 16, 3] uint8."""
        cells = self.tiles[env].astype(np.int64)
        for agent, (y, x) in enumerate(self.positions[env]):
            cells[y, x] = AGENT + agent
        return draw_grid(cells, self._sprites)

    @cached_property
    def _sprites(self) -> Array:
        agents = [agent_colour(agent) for agent in range(self.num_agents)]
        return sprites("floor", "wall", "gem", "bone", "food", agents=agents)


# The rules. Everything below runs compiled, over all copies.


@njit(cache=True)
def _begin_turn(
    tiles: Array, active: Bools, rewards: Floats, streams: Array, log_miss: float
) -> None:
    inner_width = tiles.shape[2] - 2
    interior = (tiles.shape[1] - 2) * inner_width
    for env in range(tiles.shape[0]):
        rewards[env] = 0.0
        if not active[env].any():
            continue
        # Skipping a geometric number of tiles has the same distribution as a draw for every tile,
        # and needs two or three draws instead of hundreds.
        hit = misses(streams, env, log_miss)
        while hit < interior:
            y = 1 + int(hit) // inner_width
            x = 1 + int(hit) % inner_width
            if tiles[env, y, x] == EMPTY:
                tiles[env, y, x] = GEM + below(streams, env, 3)  # GEM, BONE or FOOD
            hit += 1.0 + misses(streams, env, log_miss)


@njit(cache=True)
def _observe(framed: Array, positions: Integers, agent: int, out: Array) -> None:
    for env in range(out.shape[0]):
        top, left = positions[env, agent]
        for y in range(out.shape[2]):
            for x in range(out.shape[3]):
                tile = framed[env, top + y, left + x]
                for channel in range(NUM_CHANNELS):
                    out[env, channel, y, x] = tile == channel + 1


@njit(cache=True)
def _act(
    tiles: Array,
    positions: Integers,
    active: Bools,
    rewards: Floats,
    values: Floats,
    agent: int,
    actions: Integers,
) -> None:
    for env in range(tiles.shape[0]):
        if not active[env, agent]:
            continue
        y, x = positions[env, agent]
        to_y, to_x = y, x
        if actions[env] == UP:
            to_y -= 1
        elif actions[env] == DOWN:
            to_y += 1
        elif actions[env] == LEFT:
            to_x -= 1
        elif actions[env] == RIGHT:
            to_x += 1
        target = tiles[env, to_y, to_x]
        rewards[env, agent] += values[target]
        if target not in (WALL, AGENT):
            tiles[env, y, x] = EMPTY
            tiles[env, to_y, to_x] = AGENT
            positions[env, agent, 0], positions[env, agent, 1] = to_y, to_x


def greedy_walker(
    env: VectorEnv,  # noqa: ARG001
    agent: int,  # noqa: ARG001
    observations: Array,
    rng: np.random.Generator,
) -> Integers:
    """A reference policy: walk to the best item in view, or at random.

    The target is the gem or food with the best value per distance, the first in row order among
    equals. It draws among the moves that bring it nearer, and does not step onto a bone.
    """
    view = observations.shape[-1]
    centre = view // 2
    rows, columns = np.indices((view, view)) - centre
    distance = np.maximum(np.abs(rows) + np.abs(columns), 1)
    value = (10.0 * observations[:, GEM - 1] + 5.0 * observations[:, FOOD - 1]) / distance
    target = value.reshape(len(value), -1).argmax(1)
    to_row, to_column = rows.flat[target], columns.flat[target]
    nearer = np.stack([to_row < 0, to_row > 0, to_column < 0, to_column > 0], axis=1)
    bones = observations[:, BONE - 1, centre + STEPS[:, 0], centre + STEPS[:, 1]] == 1
    in_view = value.any((1, 2))[:, None]
    appeal = rng.random((len(value), 4)) + in_view * (1.0 * nearer - 9.0 * bones)
    actions: Integers = appeal.argmax(1)
    return actions
