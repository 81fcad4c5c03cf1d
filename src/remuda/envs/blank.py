"""A stand-in for an environment, in which nothing happens."""

from __future__ import annotations

import numpy as np

from remuda.envs.vector_env import VectorEnv
from remuda.types import Array, Bools, Integers, TurnResult


class BlankEnv(VectorEnv):
    """Copies with the agents of an environment, and the same observation in every turn."""

    def __init__(self, env: VectorEnv) -> None:
        self.num_envs, self.agents, self.turn_groups = env.num_envs, env.agents, env.turn_groups
        self.episode_metrics = env.episode_metrics
        self.active = env.active
        shape = (self.num_envs, self.num_agents)
        if env.rewards_so_far is not None:
            self.rewards_so_far = np.zeros(shape, np.float32)
        self._result = TurnResult(
            np.zeros(shape, np.float32),
            np.zeros(shape, np.bool_),
            np.zeros(shape, np.bool_),
            {name: np.zeros(self.num_envs) for name in self.episode_metrics},
        )

    def reset(self, seeds: Integers, mask: Bools) -> None:
        """Do nothing."""

    def begin_turn(self) -> None:
        """Do nothing."""

    def observe(self, agent: int, out: Array) -> None:
        """Write zeros, or the nearest values in the space."""
        space = self.agents[agent].observation_space
        out[...] = np.clip(0, getattr(space, "low", 0), getattr(space, "high", 0))

    def mask(self, agent: int, out: Bools) -> None:  # noqa: ARG002
        out[...] = True

    def act(self, agent: int, actions: Integers) -> None:
        """Do nothing."""

    def end_turn(self) -> TurnResult:
        return self._result
