"""Treasure Hunt: agents compete for gems and food on a grid, and step round bones.

- The world is `height` x `width` tiles (21 x 21); its border is wall, its interior starts empty.
  Agents start on distinct random interior tiles. An episode is truncated after `max_turns` (100);
  it never terminates.
- In a turn, first every empty interior tile turns with `spawn_probability` (0.005) into a gem, a
  bone or food, each equally likely. Then the agents act, one after another.
- An agent moves up, down, left or right, and gets the value of that tile:

      wall              -1   it stays in place
      another agent      0   it stays in place
      gem +10, food +5, bone -10   it moves there, and the thing is gone
      empty              0   it moves there

- An agent sees the tiles around it up to `vision_radius` (2) away, each as one of wall, gem, bone,
  food, agent, or nothing: [5, 5, 5] uint8, channels first. Beyond the map everything is wall.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.checkpoint.fitting import COUNT, Range, Table
from remuda.envs.array_game import GridGame
from remuda.envs.options import require_number, require_whole
from remuda.envs.randomness import below, misses, seed_stream
from remuda.envs.rendering import (
    agent_colour,
    agent_sprite,
    block,
    disc,
    draw_grid,
    floor_sprite,
    polygon,
    sprite,
    wall_sprite,
)
from remuda.envs.vector_env import VectorEnv
from remuda.kernels import njit
from remuda.types import AgentSpec, Array, Bools, Floats, Integers, TurnResult

# Kinds of tiles. An observation has one channel for each but EMPTY, in this order.
EMPTY, WALL, GEM, BONE, FOOD, AGENT = range(6)
NUM_CHANNELS = 5
UP, DOWN, LEFT, RIGHT = range(4)


class TreasureHunt(GridGame):
    """Copies of Treasure Hunt; see the rules at the top of this module."""

    action_names = ("up", "down", "left", "right")
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
        require_whole("num_envs", num_envs, 1)
        require_whole("height", height, 3)
        require_whole("width", width, 3)
        require_whole("num_agents", num_agents, 1, (height - 2) * (width - 2))
        require_whole("max_turns", max_turns, 1)
        require_whole("vision_radius", vision_radius, 1)
        require_number("spawn_probability", spawn_probability, 0.0, 1.0)
        values = {"gem": gem, "food": food, "bone": bone, "wall": wall}
        for name, value in values.items():
            require_number(name, value)

        options = {
            "height": height,
            "width": width,
            "num_agents": num_agents,
            "max_turns": max_turns,
            "spawn_probability": spawn_probability,
            **values,
            "vision_radius": vision_radius,
        }
        view = 2 * vision_radius + 1
        space = Box(0, 1, (NUM_CHANNELS, view, view), np.uint8)
        agents = tuple(
            AgentSpec(f"agent_{i}", space, Discrete(4), layout="chw") for i in range(num_agents)
        )
        self._allocate(num_envs, agents, options)
        self._place_agents()
        self._max_turns = max_turns
        self._log_miss = math.log1p(-spawn_probability) if spawn_probability < 1 else -math.inf
        self._values: Floats = np.zeros(6, np.float32)
        self._values[[WALL, GEM, BONE, FOOD]] = wall, gem, bone, food
        self._framed, self.tiles = self._make_map(height, width, vision_radius, np.int8, WALL)
        self._turns: Integers = np.zeros(num_envs, np.int64)

    def reset(self, seeds: Integers, mask: Bools) -> None:
        _reset(self.tiles, self.positions, self._turns, self.active, self._streams, seeds, mask)

    def begin_turn(self) -> None:
        """Let gems, bones and food appear."""
        _begin_turn(self.tiles, self.active, self._rewards, self._streams, self._log_miss)

    def observe(self, agent: int, out: Array) -> None:
        """Write the observation: [num_envs, 5, view, view] uint8."""
        _observe(self._framed, self.positions, agent, out)

    def act(self, agent: int, actions: Integers) -> None:
        _act(self.tiles, self.positions, self.active, self._rewards, self._values, agent, actions)

    def end_turn(self) -> TurnResult:
        _end_turn(self._turns, self._max_turns, self._truncated, self.active)
        return self._result

    def _world(self) -> Table:
        return {
            "tiles": (self._framed, Range(EMPTY, AGENT)),
            "positions": (self.positions, self._position_range()),
            "turns": (self._turns, COUNT),
            "streams": (self._streams, None),
            "active": (self.active, None),
        }

    def render(self, env: int = 0) -> Array:
        """Draw one copy: [height * 16, width * 16, 3] uint8."""
        cells = self.tiles[env].astype(np.int64)
        for agent, (y, x) in enumerate(self.positions[env]):
            cells[y, x] = AGENT + agent
        return draw_grid(cells, self._sprites)

    @cached_property
    def _sprites(self) -> Array:
        agents = [agent_sprite(agent_colour(agent)) for agent in range(self.num_agents)]
        return np.stack(
            [floor_sprite(), wall_sprite(), _gem(), _bone(), _food(), *agents], dtype=np.uint8
        )


# The rules. Everything below runs compiled, over all copies.


@njit(cache=True)
def _reset(
    tiles: Array,
    positions: Integers,
    turns: Integers,
    active: Bools,
    streams: Array,
    seeds: Integers,
    mask: Bools,
) -> None:
    height, width = tiles.shape[1:]
    for env in range(tiles.shape[0]):
        if not mask[env]:
            continue
        seed_stream(streams, env, seeds[env])
        turns[env] = 0
        tiles[env, 1:-1, 1:-1] = EMPTY
        for agent in range(positions.shape[1]):
            y = x = 0  # the corner: wall, so a free tile is drawn at least once
            while tiles[env, y, x] != EMPTY:
                y = 1 + below(streams, env, height - 2)
                x = 1 + below(streams, env, width - 2)
            tiles[env, y, x] = AGENT
            positions[env, agent] = y, x
            active[env, agent] = True


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
        # A draw for every tile has the same law as geometric gaps between the tiles that are hit;
        # the gaps need two or three draws where the tiles need hundreds.
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
            positions[env, agent] = to_y, to_x


@njit(cache=True)
def _end_turn(turns: Integers, max_turns: int, truncated: Bools, active: Bools) -> None:
    num_envs, num_agents = active.shape
    for env in range(num_envs):
        turns[env] += 1
        for agent in range(num_agents):
            truncated[env, agent] = active[env, agent] and turns[env] >= max_turns
            active[env, agent] = active[env, agent] and turns[env] < max_turns


def greedy_walker(
    env: VectorEnv,  # noqa: ARG001
    agent: int,  # noqa: ARG001
    observations: Array,
    rng: np.random.Generator,
) -> Integers:
    """A reference policy: walk to the best thing in view, or at random.

    It steps towards the gem or food of the best value per distance, the first in row order among
    equals, by either of the moves that bring it nearer, and never onto a bone on the way.
    """
    view = observations.shape[-1]
    centre = view // 2
    rows, columns = np.indices((view, view)) - centre
    distance = np.maximum(np.abs(rows) + np.abs(columns), 1)
    worth = (10.0 * observations[:, GEM - 1] + 5.0 * observations[:, FOOD - 1]) / distance
    target = worth.reshape(len(worth), -1).argmax(1)
    to_row, to_column = rows.flat[target], columns.flat[target]
    nearer = np.stack([to_row < 0, to_row > 0, to_column < 0, to_column > 0], axis=1)
    steps = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])  # UP, DOWN, LEFT, RIGHT
    bones = observations[:, BONE - 1, centre + steps[:, 0], centre + steps[:, 1]] == 1
    in_view = worth.any((1, 2))[:, None]
    appeal = rng.random((len(worth), 4)) + in_view * (1.0 * nearer - 9.0 * bones)
    actions: Integers = appeal.argmax(1)
    return actions


def _gem() -> Array:
    left, right, top, bottom = (-0.72, -0.2), (0.72, -0.2), -0.62, (0.0, 0.74)
    crown = polygon((-0.4, top), (0.4, top), right, left)
    pavilion = polygon(left, right, bottom)
    shade = polygon((0.25, -0.2), right, bottom)
    glint = polygon((-0.4, top), (-0.05, top), (-0.25, -0.2), left)
    return sprite(
        ((26, 27, 38), block(0, 0, 0.94, 0.1)),
        ((125, 226, 255), crown),
        ((60, 180, 235), pavilion),
        ((38, 130, 200), shade),
        ((225, 250, 255), glint),
        ground=(32, 34, 48),
    )


def _bone() -> Array:
    ivory = (226, 218, 200)
    shaft = polygon((-0.52, 0.3), (0.3, -0.52), (0.52, -0.3), (-0.3, 0.52))
    return sprite(
        ((26, 27, 38), block(0, 0, 0.94, 0.1)),
        (ivory, shaft),
        (ivory, disc(-0.58, 0.3, 0.22)),
        (ivory, disc(-0.3, 0.58, 0.22)),
        (ivory, disc(0.3, -0.58, 0.22)),
        (ivory, disc(0.58, -0.3, 0.22)),
        ground=(32, 34, 48),
    )


def _food() -> Array:
    green, light, leaf = (126, 196, 82), (190, 235, 150), (70, 140, 80)
    return sprite(
        ((26, 27, 38), block(0, 0, 0.94, 0.1)),
        (leaf, polygon((0.0, -0.45), (0.12, -0.82), (0.5, -0.8), (0.38, -0.5))),
        (green, disc(-0.2, 0.14, 0.48)),
        (green, disc(0.2, 0.14, 0.48)),
        (light, disc(-0.3, -0.04, 0.15)),
        ground=(32, 34, 48),
    )
