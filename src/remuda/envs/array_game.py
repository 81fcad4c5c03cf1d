"""A game whose world is arrays, and therefore saved and restored by copying them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from remuda.checkpoint.fitting import Range, Table, fitting_all, require
from remuda.envs.scripted import possibilities
from remuda.envs.vector_env import VectorEnv
from remuda.types import State


class ArrayGame(VectorEnv):
    """What games written for all copies at once have in common."""

    _options: dict[str, Any]

    @abstractmethod
    def _world(self) -> Table:
        """All arrays that tell how the copies stand, with the range of each one's numbers.

        The random streams are among them; their numbers and flags have no range.
        """

    def _check(self, state: State) -> None:
        """Raise CheckpointError where numbers are in their ranges and yet no game comes to them.

        Only for what the rules, which run compiled, would go astray by.
        """

    def warm_up(self) -> None:
        """Compile what a turn takes, by playing one; the first reset restarts all copies."""
        copies = self.num_envs
        self.reset(np.zeros(copies, np.int64), np.ones(copies, np.bool_))
        self.begin_turn()
        for agent in (agent for group in self.turn_groups for agent in group):
            spec = self.agents[agent]
            sees, acts = spec.observation_space, spec.action_space
            self.observe(agent, np.zeros((copies, *(sees.shape or ())), sees.dtype))
            if spec.masked:
                self.mask(agent, np.zeros((copies, possibilities(spec)), np.bool_))
            self.act(agent, np.zeros((copies, *(acts.shape or ())), acts.dtype or np.int64))
        self.end_turn()

    def state(self) -> State:
        """Copies of all that tells how the game stands."""
        return {name: array.copy() for name, (array, _) in self._world().items()}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned.

        Raises:
            CheckpointError: it is of a game with other options, or none of its rules.
        """
        world = self._world()
        found = fitting_all(state, world)
        self._check(state)
        for name, (array, _) in world.items():
            array[...] = found[name]

    def options(self) -> dict[str, Any]:
        """The game's parameters in force, by name."""
        return dict(self._options)


def inner(height: int, width: int) -> Range:
    """The rows and columns that are not in the border of a map."""
    return Range(1, max(height, width) - 2)


def require_on_map(state: State, height: int, width: int) -> None:
    """Raise CheckpointError unless all `positions` are within the border of a map."""
    far = state["positions"].reshape(-1, 2).max(0, initial=1)
    fits = bool(far[0] <= height - 2 and far[1] <= width - 2)
    require(state, "positions", fits, "agents stand within the border of the map")


def require_frame(state: State, radius: int, wall: int) -> None:
    """Raise CheckpointError unless all around `tiles` is wall: a border, and so many more."""
    frame = np.ones(state["tiles"].shape[1:], np.bool_)
    frame[radius + 1 : -radius - 1, radius + 1 : -radius - 1] = False
    fits = bool((state["tiles"][:, frame] == wall).all())
    require(state, "tiles", fits, "the border of the map is wall")
