"""Cleanup: agents must clean the river or no apple grows, and cleaning pays nothing.

- The world is 21 x 31 tiles with a border of wall. Rows 1 to 6 are river, and so are columns 10 and
  11 down to row 12; rows 14 to 19 are orchard; the rest is sand. The agents start on different
  tiles of sand. At the start the river is clean, and `start_apples` (20) are on random tiles of the
  orchard. An episode is truncated after `max_turns` (100); it never terminates.
- In a turn, first each clean tile of the river is polluted with `pollution_probability` (0.009).
  Then an apple grows on each orchard tile without one, with probability `growth_probability`
  (0.002) x max(0, 1 - share / `barren_share`), where share is the polluted share of the river and
  `barren_share` is 0.5. Then the agents act, one after another.
- An agent moves up, down, left or right, or it cleans or zaps with a beam. A move turns the agent
  that way even if a wall or an agent blocks it. A beam has three lanes: the three tiles ahead of
  the agent, and on each side the tile next to the agent and the two ahead of that tile. A wall
  ends a lane. Cleaning cleans the polluted water that the beam covers.
- An agent that steps on an apple eats it and gets 1; an agent that a zap hits gets -1; all other
  rewards are 0.
- An agent observes the tiles around it up to `vision_radius` (5) away, each as one of wall, river,
  pollution, orchard, apple, agent, clean beam, zap beam, sand. An agent hides the beam over it, and
  a beam hides the ground. Each agent observes a beam once, in its next observation. Tiles beyond
  the map are wall. The agent also observes the direction it faces, its row and its column. The
  observation is [1095] float32: the tiles and the direction are one-hot, and the row and the
  column, which come last, are scaled to 0..1.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from gymnasium.spaces import Box

from remuda.envs.games.array_game import DOWN, LEFT, RIGHT, STEPS, UP, GridGame
from remuda.envs.games.options import numbers, whole_numbers
from remuda.envs.games.randomness import below, log_miss, misses, seed_stream
from remuda.envs.games.rendering import agent_colour, draw_grid, sprites
from remuda.envs.vector_env import VectorEnv
from remuda.system.checkpoint.fitting import COUNT, FINITE_64, MOST, Range, Table
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers, TurnResult

HEIGHT, WIDTH = 21, 31
WALL, RIVER, POLLUTION, ORCHARD, APPLE, AGENT, CLEAN_BEAM, ZAP_BEAM, SAND = range(9)
"""Kinds of tiles, in the order of the channels."""
KINDS = 9
CLEAN, ZAP = 4, 5
"""The actions after the four moves; the moves UP to RIGHT are also the directions to face."""
BEAM_LENGTH = 3
LONG_AGO = -(2**62)
SHIFT = 50
"""Turns for which an agent that plays `taking_turns` cleans or harvests."""

POLLUTED, CLEANED, EATEN, EQUAL = range(4)
EPISODE_METRICS = ("polluted_share", "cleaning_actions", "apples_eaten", "equality")
"""The mean polluted share of the river, how often agents cleaned, how many apples were eaten, and
1 - Gini of the returns (those below 0 count as 0), after Perolat et al. 2017."""


class Cleanup(GridGame):
    """Copies of Cleanup; see the rules at the top of this module."""

    episode_metrics = EPISODE_METRICS
    wall = WALL
    action_names = ("up", "down", "left", "right", "clean", "zap")

    def __init__(
        self,
        num_envs: int = 1,
        *,
        num_agents: int = 10,
        max_turns: int = 100,
        pollution_probability: float = 0.009,
        growth_probability: float = 0.002,
        barren_share: float = 0.5,
        start_apples: int = 20,
        vision_radius: int = 5,
    ) -> None:
        terrain = _terrain()
        self._river, self._orchard = np.argwhere(terrain == RIVER), np.argwhere(terrain == ORCHARD)
        self._sand = np.argwhere(terrain == SAND)
        options = {
            **whole_numbers(num_agents=(num_agents, 1, len(self._sand)), max_turns=(max_turns, 1)),
            **numbers(
                pollution_probability=(pollution_probability, 0.0, 1.0),
                growth_probability=(growth_probability, 0.0, 1.0),
                barren_share=(barren_share, 1e-6),
            ),
            **whole_numbers(start_apples=(start_apples, 0, len(self._orchard))),
            **whole_numbers(vision_radius=(vision_radius, 1)),
        }
        self._start_apples, self._terrain = start_apples, terrain
        self._log_clean = log_miss(pollution_probability)
        self._growth, self._barren = growth_probability, barren_share
        self._radius = vision_radius
        size = (2 * vision_radius + 1) ** 2 * KINDS + len(STEPS) + 2
        self._allocate_grid(num_envs, options, Box(0.0, 1.0, (size,), np.float32))
        self._make_maps()
        self._clock: Integers = np.zeros(num_envs, np.int64)  # actions so far, over all episodes
        self.facing: Integers = np.zeros(self.active.shape, np.int64)
        """[num_envs, num_agents]: UP to RIGHT."""
        self.polluted: Integers = np.zeros(num_envs, np.int64)
        """[num_envs]: polluted tiles of the river."""
        self._sums = np.zeros((num_envs, len(EPISODE_METRICS)), np.float64)
        self._returns = np.zeros(self.active.shape, np.float64)

    def _make_maps(self) -> None:
        size = HEIGHT, WIDTH, self._radius
        self._framed, self.tiles = self._make_map(*size, np.int8, WALL)
        """[num_envs, 21, 31] int8: the ground, WALL to APPLE or SAND."""
        self._framed_agents, self.standing = self._make_map(*size, np.int16, 0)
        """[num_envs, 21, 31] int16: 1 + the agent on a tile, or 0."""
        self._framed_beams, self.beams = self._make_map(*size, np.int8, 0)
        """[num_envs, 21, 31] int8: the last beam on a tile."""
        self._framed_fired, self.fired = self._make_map(*size, np.int64, LONG_AGO)
        """[num_envs, 21, 31]: the time of that beam, on the copy's clock."""

    def reset(self, seeds: Integers, mask: Bools) -> None:
        self.tiles[mask], self.standing[mask], self.fired[mask] = self._terrain, 0, LONG_AGO
        self.polluted[mask], self._turns[mask] = 0, 0
        self._sums[mask], self._returns[mask], self.active[mask] = 0.0, 0.0, True
        agents = self.standing, self.positions, self.facing
        ground = self._sand, self._orchard, self._start_apples
        _place(self.tiles, *agents, *ground, self._streams, seeds, mask)

    @property
    def turns(self) -> Integers:
        """[num_envs]: turns since the episode began."""
        return self._turns

    def begin_turn(self) -> None:
        self._rewards[:] = 0.0
        ground = self.tiles, self.polluted, self._river, self._orchard
        rates = self._log_clean, self._growth, self._barren
        _grow(*ground, self.active, self._streams, *rates)

    def observe(self, agent: int, out: Array) -> None:
        """Write the observation: by default [num_envs, 1095] float32."""
        maps = self._framed, self._framed_agents, self._framed_beams, self._framed_fired
        agents = self._clock, self.positions, self.facing
        _observe(*maps, *agents, agent, 2 * self._radius + 1, out)

    def act(self, agent: int, actions: Integers) -> None:
        maps = self.tiles, self.standing, self.beams, self.fired
        agents = self._clock, self.positions, self.facing, self.polluted
        sums = self.active, self._sums, self._rewards
        _act(*maps, *agents, *sums, agent, actions)

    def end_turn(self) -> TurnResult:
        counts = self._turns, self._max_turns, self.polluted, len(self._river)
        sums = self._rewards, self._returns, self._sums, self._metrics
        _end_turn(*counts, *sums, self._truncated, self.active)
        return self._result

    def _world(self) -> Table:
        kinds = Range(WALL, SAND)
        return {
            **self._agents_world(),
            "tiles": (self._framed, kinds),
            "standing": (self._framed_agents, Range(0, self.num_agents)),
            "beams": (self._framed_beams, kinds),
            "fired": (self._framed_fired, Range(LONG_AGO, MOST)),
            "clock": (self._clock, COUNT),
            "facing": (self.facing, Range(UP, RIGHT)),
            "polluted": (self.polluted, Range(0, len(self._river))),
            "sums": (self._sums, COUNT),
            "returns": (self._returns, FINITE_64),
        }

    def render(self, env: int = 0) -> Array:
        """Draw one copy, with the beams of the last turn: [336, 496, 3] uint8."""
        cells = self.tiles[env].astype(np.int64)
        fresh = self._clock[env] - self.fired[env] <= self.num_agents
        cells[fresh] = self.beams[env][fresh]
        for agent, (y, x) in enumerate(self.positions[env]):
            cells[y, x] = KINDS + agent
        return draw_grid(cells, self._sprites)

    @cached_property
    def _sprites(self) -> Array:
        ground = "wall", "river", "pollution", "orchard", "apple", "floor"
        agents = [agent_colour(agent) for agent in range(self.num_agents)]
        return sprites(*ground, "clean_beam", "zap_beam", "sand", agents=agents)


def _terrain() -> Array:
    """Return the map without agents and apples: [21, 31] int8."""
    terrain: Array = np.full((HEIGHT, WIDTH), SAND, np.int8)
    terrain[1:7], terrain[7:13, 10:12], terrain[14:20] = RIVER, RIVER, ORCHARD
    terrain[[0, -1]] = terrain[:, [0, -1]] = WALL
    return terrain


# The rules. Everything below runs compiled, over all copies.


@njit(cache=True)
def _place(
    tiles: Array,
    standing: Array,
    positions: Integers,
    facing: Integers,
    sand: Integers,
    orchard: Integers,
    start_apples: int,
    streams: Array,
    seeds: Integers,
    mask: Bools,
) -> None:
    for env in range(tiles.shape[0]):
        if not mask[env]:
            continue
        seed_stream(streams, env, seeds[env])
        for agent in range(positions.shape[1]):
            y, x = sand[below(streams, env, len(sand))]
            while standing[env, y, x]:
                y, x = sand[below(streams, env, len(sand))]
            standing[env, y, x] = agent + 1
            positions[env, agent, 0], positions[env, agent, 1] = y, x
            facing[env, agent] = below(streams, env, 4)
        apples = 0
        while apples < start_apples:
            y, x = orchard[below(streams, env, len(orchard))]
            apples += tiles[env, y, x] == ORCHARD
            tiles[env, y, x] = APPLE


@njit(cache=True)
def _grow(
    tiles: Array,
    polluted: Integers,
    river: Integers,
    orchard: Integers,
    active: Bools,
    streams: Array,
    log_clean: float,
    growth_probability: float,
    barren_share: float,
) -> None:
    for env in range(tiles.shape[0]):
        if not active[env, 0]:
            continue
        # Skipping a geometric number of tiles has the same distribution as a draw for every tile.
        hit = misses(streams, env, log_clean)
        while hit < len(river):
            y, x = river[int(hit)]
            polluted[env] += tiles[env, y, x] == RIVER
            tiles[env, y, x] = POLLUTION
            hit += 1.0 + misses(streams, env, log_clean)
        share = polluted[env] / len(river)
        growth = growth_probability * max(0.0, 1.0 - share / barren_share)
        log_bare = math.log1p(-growth) if growth < 1.0 else -math.inf
        hit = misses(streams, env, log_bare)
        while hit < len(orchard):
            y, x = orchard[int(hit)]
            tiles[env, y, x] = APPLE
            hit += 1.0 + misses(streams, env, log_bare)


@njit(cache=True)
def _observe(
    tiles: Array,
    standing: Array,
    beams: Array,
    fired: Integers,
    clock: Integers,
    positions: Integers,
    facing: Integers,
    agent: int,
    view: int,
    out: Array,
) -> None:
    num_agents = positions.shape[1]
    size = view * view * KINDS
    for env in range(out.shape[0]):
        row = out[env]
        row[:] = 0.0
        top, left = positions[env, agent]
        at = 0
        for y in range(top, top + view):
            for x in range(left, left + view):
                kind = tiles[env, y, x]
                if clock[env] - fired[env, y, x] <= num_agents:
                    kind = beams[env, y, x]
                if standing[env, y, x]:
                    kind = AGENT
                row[at + kind] = 1.0
                at += KINDS
        row[size + facing[env, agent]] = 1.0
        row[size + 4] = top / (HEIGHT - 1)
        row[size + 5] = left / (WIDTH - 1)


@njit(cache=True)
def _act(
    tiles: Array,
    standing: Array,
    beams: Array,
    fired: Integers,
    clock: Integers,
    positions: Integers,
    facing: Integers,
    polluted: Integers,
    active: Bools,
    sums: Array,
    rewards: Floats,
    agent: int,
    actions: Integers,
) -> None:
    for env in range(tiles.shape[0]):
        if not active[env, agent]:
            continue
        y, x = positions[env, agent]
        action = actions[env]
        if action < CLEAN:
            facing[env, agent] = action
            to_y, to_x = y + STEPS[action, 0], x + STEPS[action, 1]
            if tiles[env, to_y, to_x] != WALL and not standing[env, to_y, to_x]:
                standing[env, y, x] = 0
                standing[env, to_y, to_x] = agent + 1
                positions[env, agent, 0], positions[env, agent, 1] = to_y, to_x
                if tiles[env, to_y, to_x] == APPLE:
                    tiles[env, to_y, to_x] = ORCHARD
                    sums[env, EATEN] += 1.0
                    rewards[env, agent] += 1.0
        else:
            sums[env, CLEANED] += action == CLEAN
            ahead_y, ahead_x = STEPS[facing[env, agent]]
            for side in range(-1, 2):  # lanes: to one side, ahead, to the other side
                first = 1 if side == 0 else 0
                for distance in range(first, first + BEAM_LENGTH):
                    beam_y = y + distance * ahead_y + side * ahead_x
                    beam_x = x + distance * ahead_x + side * ahead_y
                    if tiles[env, beam_y, beam_x] == WALL:
                        break
                    beams[env, beam_y, beam_x] = CLEAN_BEAM if action == CLEAN else ZAP_BEAM
                    fired[env, beam_y, beam_x] = clock[env]
                    if action == ZAP:
                        if standing[env, beam_y, beam_x]:
                            rewards[env, standing[env, beam_y, beam_x] - 1] -= 1.0
                    elif tiles[env, beam_y, beam_x] == POLLUTION:
                        tiles[env, beam_y, beam_x] = RIVER
                        polluted[env] -= 1
        clock[env] += 1


@njit(cache=True)
def _end_turn(
    turns: Integers,
    max_turns: int,
    polluted: Integers,
    river: int,
    rewards: Floats,
    returns: Array,
    sums: Array,
    metrics: Array,
    truncated: Bools,
    active: Bools,
) -> None:
    num_envs, num_agents = active.shape
    for env in range(num_envs):
        truncated[env] = False
        if not active[env, 0]:
            continue
        turns[env] += 1
        sums[env, POLLUTED] += polluted[env] / river
        for agent in range(num_agents):
            returns[env, agent] += rewards[env, agent]
        if turns[env] >= max_turns:
            truncated[env], active[env] = True, False
            metrics[POLLUTED, env] = sums[env, POLLUTED] / turns[env]
            metrics[CLEANED, env], metrics[EATEN, env] = sums[env, CLEANED], sums[env, EATEN]
            metrics[EQUAL, env] = _equality(returns[env])


@njit(cache=True)
def _equality(returns: Array) -> float:
    """Return 1 - Gini coefficient, or 1 if no return is above 0; returns below 0 count as 0.

    G = sum of |x_i - x_j| over all pairs (i, j) / (2 n sum of x): Perolat et al. 2017, "A multi-
    agent reinforcement learning model of common-pool resource appropriation".
    """
    differences = total = 0.0
    for first in returns:
        total += max(first, 0.0)
        for second in returns:
            differences += abs(max(first, 0.0) - max(second, 0.0))
    return 1.0 - differences / (2.0 * returns.size * total) if total > 0.0 else 1.0


def harvesters(
    env: VectorEnv, agent: int, observations: Array, rng: np.random.Generator
) -> Integers:
    """A reference policy: go to the nearest apple on the map, and never clean."""
    assert isinstance(env, Cleanup)
    actions = rng.integers(0, 4, len(observations))
    for copy in range(len(observations)):
        at = env.positions[copy, agent]
        actions[copy] = _towards(at, np.argwhere(env.tiles[copy] == APPLE), actions[copy])
    return actions


def cleaners(env: VectorEnv, agent: int, observations: Array, rng: np.random.Generator) -> Integers:
    """A reference policy: clean polluted water within reach, else go to the nearest."""
    assert isinstance(env, Cleanup)
    actions = rng.integers(0, 4, len(observations))
    for copy in range(len(observations)):
        at = env.positions[copy, agent]
        dirty = np.argwhere(env.tiles[copy] == POLLUTION)
        forward = STEPS[env.facing[copy, agent]]
        ahead, aside = np.stack([forward, forward[::-1]]) @ (dirty - at).T
        lane = (aside == 0) & (ahead >= 1) & (ahead <= BEAM_LENGTH)
        lanes = lane | ((np.abs(aside) == 1) & (ahead >= 0) & (ahead < BEAM_LENGTH))
        actions[copy] = CLEAN if lanes.any() else _towards(at, dirty, actions[copy])
    return actions


def division_of_labour(
    env: VectorEnv, agent: int, observations: Array, rng: np.random.Generator
) -> Integers:
    """A reference policy: three of ten agents keep the river clean, the others harvest."""
    policy = cleaners if agent % 10 < 3 else harvesters
    return policy(env, agent, observations, rng)


def taking_turns(
    env: VectorEnv, agent: int, observations: Array, rng: np.random.Generator
) -> Integers:
    """A reference policy: half of the agents clean for 50 turns while the others harvest.

    Then they change places: agents with even numbers clean first.
    """
    assert isinstance(env, Cleanup)
    played = env, agent, observations, rng
    cleans = (env.turns // SHIFT + agent) % 2 == 0
    return np.where(cleans, cleaners(*played), harvesters(*played))


def _towards(at: Integers, targets: Integers, otherwise: int) -> int:
    """Return a step towards the nearest target, along the axis with the larger distance."""
    if not len(targets):
        return otherwise
    way = targets[np.abs(targets - at).sum(1).argmin()] - at
    if abs(way[0]) >= abs(way[1]):
        return UP if way[0] < 0 else DOWN
    return LEFT if way[1] < 0 else RIGHT
