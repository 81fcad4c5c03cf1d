"""Base classes of games whose state is arrays, saved and restored by copying."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete, Space

from remuda.envs.games.options import require_whole
from remuda.envs.games.randomness import below, seed_stream
from remuda.envs.scripted import masks_of, room_for
from remuda.envs.vector_env import VectorEnv
from remuda.system.checkpoint.fitting import COUNT, Range, Table, fitting_all, require
from remuda.system.kernels import njit
from remuda.types import AgentSpec, Array, Bools, Floats, Integers, State, TurnResult

UP, DOWN, LEFT, RIGHT = range(4)
STEPS: Integers = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
"""[4, 2]: the change of row and column in each direction."""


class TurnArrays(VectorEnv):
    """The arrays of a turn, which `begin_turn` clears and `end_turn` returns."""

    def _make_arrays(self, num_envs: int, agents: Sequence[AgentSpec]) -> None:
        self.num_envs, self.agents = num_envs, tuple(agents)
        shape = (num_envs, len(self.agents))
        self.active: Bools = np.zeros(shape, np.bool_)
        self._rewards: Floats = np.zeros(shape, np.float32)
        self._terminated: Bools = np.zeros(shape, np.bool_)
        self._truncated: Bools = np.zeros(shape, np.bool_)
        self._result = TurnResult(self._rewards, self._terminated, self._truncated)

    def begin_turn(self) -> None:
        self._rewards[:] = 0.0
        self._terminated[:] = False
        self._truncated[:] = False

    def end_turn(self) -> TurnResult:
        return self._result


class BlankEnv(TurnArrays):
    """A stand-in for an environment: observations are constant, and actions have no effect."""

    def __init__(self, env: VectorEnv) -> None:
        self._make_arrays(env.num_envs, env.agents)
        self.turn_groups, self.active = env.turn_groups, env.active
        self.episode_metrics = env.episode_metrics
        if env.rewards_so_far is not None:
            self.rewards_so_far = self._rewards
        metrics = {name: np.zeros(self.num_envs) for name in self.episode_metrics}
        self._result = TurnResult(self._rewards, self._terminated, self._truncated, metrics)

    def reset(self, seeds: Integers, mask: Bools) -> None:
        """Do nothing."""

    def observe(self, agent: int, out: Array) -> None:
        """Write zeros, or the nearest values in the space."""
        space = self.agents[agent].observation_space
        out[...] = np.clip(0, getattr(space, "low", 0), getattr(space, "high", 0))

    def mask(self, agent: int, out: Bools) -> None:  # noqa: ARG002
        out[...] = True

    def act(self, agent: int, actions: Integers) -> None:
        """Do nothing."""


class ArrayGame(TurnArrays):
    """A game written for all copies at once."""

    _options: dict[str, Any]

    def _allocate(
        self,
        num_envs: int,
        options: dict[str, Any],
        space: Space[Any],
        acts: Sequence[Space[Any]],
        **spec: Any,
    ) -> None:
        """Allocate arrays; `acts` are the agents' action spaces, `spec` fields of `AgentSpec`."""
        require_whole("num_envs", num_envs, 1)
        self._options = options
        agents = [AgentSpec(f"agent_{i}", space, own, **spec) for i, own in enumerate(acts)]
        self._make_arrays(num_envs, agents)
        self._streams: Array = np.zeros(num_envs, np.uint64)
        self._metrics = np.zeros((len(self.episode_metrics), num_envs))
        metrics = dict(zip(self.episode_metrics, self._metrics, strict=True))
        self._result = TurnResult(self._rewards, self._terminated, self._truncated, metrics)

    @abstractmethod
    def _world(self) -> Table:
        """Return all arrays of the state with their ranges; generators and flags have none."""

    def _check(self, state: State) -> None:
        """Raise a CheckpointError for values that are in range but would break compiled rules."""

    def warm_up(self) -> None:
        """Compile the functions of a turn by playing one; the first reset restarts all copies."""
        copies = self.num_envs
        self.reset(np.zeros(copies, np.int64), np.ones(copies, np.bool_))
        self.begin_turn()
        for agent in (agent for group in self.turn_groups for agent in group):
            acts = self.agents[agent].action_space
            self.observe(agent, room_for(self, agent))
            masks_of(self, agent)
            self.act(agent, np.zeros((copies, *(acts.shape or ())), acts.dtype or np.int64))
        self.end_turn()

    def state(self) -> State:
        return {name: array.copy() for name, (array, _) in self._world().items()}

    def restore(self, state: State) -> None:
        world = self._world()
        arrays = fitting_all(state, world)
        self._check(state)
        for name, (array, _) in world.items():
            array[...] = arrays[name]

    def options(self) -> dict[str, Any]:
        return dict(self._options)


class TableGame(ArrayGame):
    """A game of two agents that act simultaneously; `end_turn` applies their `_chosen` actions."""

    turn_groups = ((0, 1),)

    def _allocate(self, num_envs: int, *args: Any, **spec: Any) -> None:
        super()._allocate(num_envs, *args, **spec)
        self._chosen: Integers = np.zeros(self.active.shape, np.int64)

    def act(self, agent: int, actions: Integers) -> None:
        self._chosen[:, agent] = actions


class GridGame(ArrayGame):
    """Agents act in turn on a map with a border of wall; `max_turns` truncates an episode."""

    action_names: tuple[str, ...] = ("up", "down", "left", "right")
    wall: ClassVar[int]  # the value of a wall tile in `tiles`
    tiles: Array  # [num_envs, height, width]
    positions: Integers  # [num_envs, num_agents, 2]: row and column of each agent

    def _allocate_grid(
        self, num_envs: int, options: dict[str, Any], space: Space[Any], **spec: Any
    ) -> None:
        """Allocate a grid game's arrays from the options `num_agents` and `max_turns`."""
        actions = [Discrete(len(self.action_names))] * options["num_agents"]
        self._allocate(num_envs, options, space, actions, **spec)
        self._max_turns = options["max_turns"]
        self.turn_groups = tuple((agent,) for agent in range(self.num_agents))
        self.positions = np.ones((*self.active.shape, 2), np.int64)
        self.rewards_so_far = self._rewards
        self._turns: Integers = np.zeros(num_envs, np.int64)

    def _make_map(
        self, height: int, width: int, radius: int, dtype: npt.DTypeLike, fill: int
    ) -> tuple[Array, Array]:
        """Return a framed map, and a view of it without the frame: [num_envs, height, width].

        The frame is as wide as the vision radius, so observing needs no bounds check: what an agent
        at (y, x) of the map observes starts at (y, x) of the framed map.
        """
        shape = (self.num_envs, height + 2 * radius, width + 2 * radius)
        framed: Array = np.full(shape, fill, dtype)
        return framed, framed[:, radius:-radius, radius:-radius]

    def end_turn(self) -> TurnResult:
        count_turn(self._turns, self._max_turns, self._truncated, self.active)
        return self._result

    def _agents_world(self) -> Table:
        """Return the arrays of the state that every grid game has, except its tiles."""
        return {
            "positions": (self.positions, Range(1, max(self.tiles.shape[1:]) - 2)),
            "turns": (self._turns, COUNT),
            "streams": (self._streams, None),
            "active": (self.active, None),
        }

    def _check(self, state: State) -> None:
        height, width = self.tiles.shape[1:]
        far = state["positions"].reshape(-1, 2).max(0, initial=1)
        fits = bool(far[0] <= height - 2 and far[1] <= width - 2)
        require(state, "positions", fits, "agents stand within the border of the map")
        tiles = state["tiles"]
        rim = (tiles.shape[1] - height) // 2 + 1
        frame = np.ones(tiles.shape[1:], np.bool_)
        frame[rim:-rim, rim:-rim] = False
        is_wall = bool((tiles[:, frame] == self.wall).all())
        require(state, "tiles", is_wall, "the border of the map is wall")


@njit(cache=True)
def place_agents(
    tiles: Array,
    marks: Integers,
    positions: Integers,
    turns: Integers,
    active: Bools,
    streams: Array,
    seeds: Integers,
    mask: Bools,
) -> None:
    """Seed and empty the copies in `mask`, and put each agent on a random free tile."""
    height, width = tiles.shape[1:]
    for env in range(tiles.shape[0]):
        if not mask[env]:
            continue
        seed_stream(streams, env, seeds[env])
        turns[env] = 0
        tiles[env, 1:-1, 1:-1] = 0
        for agent in range(positions.shape[1]):
            y = x = 0  # start at the corner, which is wall, so that a tile is drawn
            while tiles[env, y, x] != 0:
                y = 1 + below(streams, env, height - 2)
                x = 1 + below(streams, env, width - 2)
            tiles[env, y, x] = marks[agent]
            positions[env, agent, 0], positions[env, agent, 1] = y, x
            active[env, agent] = True


@njit(cache=True)
def count_turn(turns: Integers, max_turns: int, truncated: Bools, active: Bools) -> None:
    """Count a turn, and truncate the agents of copies that have reached `max_turns`."""
    num_envs, num_agents = active.shape
    for env in range(num_envs):
        turns[env] += active[env, 0]
        for agent in range(num_agents):
            truncated[env, agent] = active[env, agent] and turns[env] >= max_turns
            active[env, agent] = active[env, agent] and turns[env] < max_turns
