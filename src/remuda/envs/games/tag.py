"""Tag: one agent is "it" and chases the others; the agent it reaches becomes "it".

- The world is `height` x `width` tiles (11 x 11) with a border of wall. Five agents start on
  distinct random tiles, and one of them, drawn at random, is "it". An episode is truncated after
  `max_turns` (20); it never terminates.
- The agents act one after another. An agent moves up, down, left or right, unless a wall or an
  agent is in its way. After "it" has moved, or tried to, an agent on one of the four adjacent tiles
  becomes "it": the first of those above, below, left and right. If that agent has not moved yet in
  this turn, it can tag back.
- An agent that is not "it" after its own move gets `reward` (10), and "it" gets nothing.
- An agent observes the tiles around it up to `vision_radius` (4) away, itself in the middle, each
  as one of wall, agent, the agent that is "it", or nothing; tiles beyond the map are wall. The
  agent also observes whether it is "it": [244] uint8, channel by channel, that flag last.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from gymnasium.spaces import Box

from remuda.envs.games.array_game import STEPS, GridGame, place_agents
from remuda.envs.games.options import numbers, whole_numbers
from remuda.envs.games.randomness import below
from remuda.envs.games.rendering import agent_colour, agent_sprite, draw_grid, sprites
from remuda.envs.vector_env import VectorEnv
from remuda.system.checkpoint.fitting import COUNT, Range, Table
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers

EMPTY, WALL, AGENT = 0, -1, 1  # a tile is empty, wall, or AGENT + the number of the agent on it
CHANNELS = 3  # wall, agent, the agent that is "it"


class Tag(GridGame):
    """Copies of Tag; see the rules at the top of this module."""

    episode_metrics = ("tags",)
    wall = WALL

    def __init__(
        self,
        num_envs: int = 1,
        *,
        height: int = 11,
        width: int = 11,
        num_agents: int = 5,
        max_turns: int = 20,
        reward: float = 10.0,
        vision_radius: int = 4,
    ) -> None:
        options = {
            **whole_numbers(height=(height, 3), width=(width, 3)),
            **whole_numbers(num_agents=(num_agents, 2, (height - 2) * (width - 2))),
            **whole_numbers(max_turns=(max_turns, 1), vision_radius=(vision_radius, 1)),
            **numbers(reward=(reward,)),
        }
        self._reward, self._view = reward, 2 * vision_radius + 1
        space = Box(0, 1, (CHANNELS * self._view**2 + 1,), np.uint8)
        self._allocate_grid(num_envs, options, space)
        self._framed, self.tiles = self._make_map(height, width, vision_radius, np.int16, WALL)
        self._marks: Integers = AGENT + np.arange(num_agents)
        self.it: Integers = np.zeros(num_envs, np.int64)  # [num_envs]: which agent is "it"

    def reset(self, seeds: Integers, mask: Bools) -> None:
        agents = self._marks, self.positions, self._turns, self.active
        place_agents(self.tiles, *agents, self._streams, seeds, mask)
        _draw_it(self.it, self.num_agents, self._metrics[0], self._streams, mask)

    def observe(self, agent: int, out: Array) -> None:
        """Write the observation: by default [num_envs, 244] uint8."""
        _observe(self._framed, self.positions, self.it, agent, self._view, out)

    def act(self, agent: int, actions: Integers) -> None:
        arrays = self.tiles, self.positions, self.it, self.active, self._rewards
        _act(*arrays, self._reward, self._metrics[0], agent, actions)

    def _world(self) -> Table:
        return {
            **self._agents_world(),
            "tiles": (self._framed, Range(WALL, AGENT + self.num_agents - 1)),
            "it": (self.it, Range(0, self.num_agents - 1)),
            "tags": (self._metrics, COUNT),
        }

    def render(self, env: int = 0) -> Array:
        """Draw one copy; "it" is red: [height * 16, width * 16, 3] uint8."""
        cells = self.tiles[env] + 1
        y, x = self.positions[env, self.it[env]]
        cells[y, x] = -1  # the last of the sprites
        return draw_grid(cells, self._sprites)

    @cached_property
    def _sprites(self) -> Array:
        agents = [agent_colour(1 + agent) for agent in range(self.num_agents)]
        chaser = agent_sprite((235, 60, 60), ground=(92, 34, 44))
        return np.concatenate([sprites("wall", "floor", agents=agents), chaser[None]])


# The rules. Everything below runs compiled, over all copies.


@njit(cache=True)
def _draw_it(it: Integers, num_agents: int, tags: Array, streams: Array, mask: Bools) -> None:
    for env in range(mask.size):
        if mask[env]:
            it[env], tags[env] = below(streams, env, num_agents), 0.0


@njit(cache=True)
def _observe(
    framed: Array, positions: Integers, it: Integers, agent: int, view: int, out: Array
) -> None:
    area = view * view
    for env in range(out.shape[0]):
        row = out[env]
        top, left = positions[env, agent]
        chaser = AGENT + it[env]
        at = 0
        for y in range(top, top + view):
            for x in range(left, left + view):
                tile = framed[env, y, x]
                row[at] = tile == WALL
                row[at + area] = tile >= AGENT and tile != chaser
                row[at + 2 * area] = tile == chaser
                at += 1
        row[CHANNELS * area] = it[env] == agent


@njit(cache=True)
def _act(
    tiles: Array,
    positions: Integers,
    it: Integers,
    active: Bools,
    rewards: Floats,
    reward: float,
    tags: Array,
    agent: int,
    actions: Integers,
) -> None:
    for env in range(tiles.shape[0]):
        if not active[env, agent]:
            continue
        y, x = positions[env, agent]
        to_y, to_x = y + STEPS[actions[env], 0], x + STEPS[actions[env], 1]
        if tiles[env, to_y, to_x] == EMPTY:
            tiles[env, y, x], tiles[env, to_y, to_x] = EMPTY, AGENT + agent
            positions[env, agent, 0], positions[env, agent, 1] = to_y, to_x
            y, x = to_y, to_x
        if it[env] == agent:
            for way in range(4):
                adjacent = tiles[env, y + STEPS[way, 0], x + STEPS[way, 1]]
                if adjacent >= AGENT:
                    it[env] = adjacent - AGENT
                    tags[env] += 1.0
                    break
        if it[env] != agent:
            rewards[env, agent] += reward


def chase_and_flee(
    env: VectorEnv,
    agent: int,  # noqa: ARG001
    observations: Array,
    rng: np.random.Generator,
) -> Integers:
    """A reference policy: "it" runs to the nearest agent, others flee from "it" if it is in view.

    Distances are counted in steps; ties are broken at random.
    """
    assert isinstance(env, Tag)
    view = env._view
    tiles = observations[:, :-1].reshape(-1, CHANNELS, view, view)
    rows, columns = np.indices((view, view)) - view // 2
    after = [np.abs(rows - y) + np.abs(columns - x) for y, x in STEPS]  # [4][view, view]
    distance = np.stack(after)[None]
    far = 4 * view
    chases = observations[:, -1] == 1
    mark = np.where(chases[:, None, None], tiles[:, 1], tiles[:, 2])
    nearest = np.where(mark[:, None] == 1, distance, far).min((2, 3))  # [N, 4]
    middle = view // 2 + STEPS
    blocked = tiles[:, :2, middle[:, 0], middle[:, 1]].max(1)
    in_view = mark.max((1, 2))[:, None]
    appeal = np.where(chases[:, None], -nearest, nearest) * in_view - far * blocked
    actions: Integers = (appeal + rng.random(appeal.shape)).argmax(1)
    return actions
