"""A game whose world is arrays, and therefore saved and restored by copying them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from remuda.checkpoint.state import fitting
from remuda.envs.vector_env import VectorEnv
from remuda.types import Array, State


class ArrayGame(VectorEnv):
    """What games written for all copies at once have in common."""

    _options: dict[str, Any]

    @abstractmethod
    def _world(self) -> dict[str, Array]:
        """All arrays that tell how the copies stand, their random streams among them."""

    def state(self) -> State:
        """Copies of all that tells how the game stands."""
        return {name: array.copy() for name, array in self._world().items()}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned.

        Raises:
            CheckpointError: it is of a game with other options.
        """
        for name, array in self._world().items():
            array[...] = fitting(state, name, array)

    def options(self) -> dict[str, Any]:
        """The game's parameters in force, by name."""
        return dict(self._options)
