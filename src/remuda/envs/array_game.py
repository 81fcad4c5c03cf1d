"""Games whose world is arrays, which are saved and restored by copying them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from remuda.checkpoint.fitting import Range, Table, fitting_all, require
from remuda.envs.scripted import possibilities, room_for
from remuda.envs.vector_env import VectorEnv
from remuda.types import AgentSpec, Array, Bools, Floats, Integers, State, TurnResult


class ArrayGame(VectorEnv):
    """A game written for all copies at once."""

    _options: dict[str, Any]

    def _allocate(
        self, num_envs: int, agents: tuple[AgentSpec, ...], options: dict[str, Any]
    ) -> None:
        """Set what every game has; `_result` shows the arrays of a turn."""
        self.num_envs, self.agents, self._options = num_envs, agents, options
        shape = (num_envs, len(agents))
        self.active: Bools = np.zeros(shape, np.bool_)
        self._streams: Array = np.zeros(num_envs, np.uint64)
        self._rewards: Floats = np.zeros(shape, np.float32)
        self._terminated: Bools = np.zeros(shape, np.bool_)
        self._truncated: Bools = np.zeros(shape, np.bool_)
        self._metrics = np.zeros((len(self.episode_metrics), num_envs))
        metrics = dict(zip(self.episode_metrics, self._metrics, strict=True))
        self._result = TurnResult(self._rewards, self._terminated, self._truncated, metrics)

    @abstractmethod
    def _world(self) -> Table:
        """Return all arrays of the state, each with the range of its numbers.

        The random generators are among them; their numbers and flags have no range.
        """

    def _check(self, state: State) -> None:
        """Raise a CheckpointError for numbers in range that would lead compiled rules astray."""

    def warm_up(self) -> None:
        """Compile the functions of a turn by playing one; the first reset restarts all copies."""
        copies = self.num_envs
        self.reset(np.zeros(copies, np.int64), np.ones(copies, np.bool_))
        self.begin_turn()
        for agent in (agent for group in self.turn_groups for agent in group):
            spec = self.agents[agent]
            acts = spec.action_space
            self.observe(agent, room_for(self, agent))
            if spec.masked:
                self.mask(agent, np.zeros((copies, possibilities(spec)), np.bool_))
            self.act(agent, np.zeros((copies, *(acts.shape or ())), acts.dtype or np.int64))
        self.end_turn()

    def state(self) -> State:
        return {name: array.copy() for name, (array, _) in self._world().items()}

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""
        world = self._world()
        found = fitting_all(state, world)
        self._check(state)
        for name, (array, _) in world.items():
            array[...] = found[name]

    def options(self) -> dict[str, Any]:
        return dict(self._options)


class GridGame(ArrayGame):
    """A game whose agents act one after another on a map with a border of wall."""

    wall: ClassVar[int]
    """The number of a tile of wall."""
    tiles: Array
    """[num_envs, height, width]."""
    positions: Integers
    """[num_envs, num_agents, 2]: row and column of each agent."""

    def _make_map(
        self, height: int, width: int, radius: int, dtype: npt.DTypeLike, fill: int
    ) -> tuple[Array, Array]:
        """Return a map of all copies in a frame, and its inside, [num_envs, height, width].

        The frame is as wide as an agent sees, so that a view needs no bounds: the view of an agent
        at (y, x) of the map begins at (y, x) of the framed map.
        """
        shape = (self.num_envs, height + 2 * radius, width + 2 * radius)
        framed: Array = np.full(shape, fill, dtype)
        return framed, framed[:, radius:-radius, radius:-radius]

    def _place_agents(self) -> None:
        self.turn_groups = tuple((agent,) for agent in range(self.num_agents))
        self.positions = np.ones((*self.active.shape, 2), np.int64)
        self.rewards_so_far = self._rewards

    def _position_range(self) -> Range:
        return Range(1, max(self.tiles.shape[1:]) - 2)

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
