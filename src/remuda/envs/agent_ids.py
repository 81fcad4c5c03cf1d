"""Agent ids: a one-hot number of the agent behind each observation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.spaces import observation_converter
from remuda.envs.observation_parts import IdBox
from remuda.envs.plain_spaces import ordinary
from remuda.envs.recorded import Wrapped
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError, ContractError
from remuda.types import AgentSpec, Array


class AgentIds(Wrapped):
    """An environment whose observations end with the one-hot number of the agent.

    1. An agent's own observation comes first, flattened and unchanged.
    2. The id has one entry for each agent of the environment; the agent's entry is 1.
    """

    def __init__(self, game: VectorEnv) -> None:
        super().__init__(game)
        if len(game.agents) < 2:
            raise ConfigError(
                "env.agent_id distinguishes agents, but the environment has one agent; leave it "
                "false"
            )
        self.agents = tuple(_with_id(agent, len(game.agents)) for agent in game.agents)
        self._own: list[Array] = [
            np.zeros((self.num_envs, *(space.shape or ())), space.dtype)
            for space in (agent.observation_space for agent in game.agents)
        ]

    def observe(self, agent: int, out: Array) -> None:
        own = self._own[agent]
        self.game.observe(agent, own)
        size = out.shape[1] - len(self.agents)
        out[:, :size] = own.reshape(len(own), -1)
        out[:, size:] = 0
        out[:, size + agent] = 1


def _with_id(agent: AgentSpec, count: int) -> AgentSpec:
    own = agent.observation_space
    if not isinstance(own, spaces.Box):
        raise ContractError(f"{agent.name} observes {own}; env.agent_id needs a Box")
    space = IdBox(cast(spaces.Box, ordinary(own)), count)
    declared = agent.env_observation_space
    shown: Any = own if declared is None else observation_converter(declared).unmasked
    if isinstance(shown, spaces.Box) and len(shown.shape) == 1:
        return replace(agent, observation_space=space, env_observation_space=None)
    ids = spaces.Box(0, 1, (count,), space.dtype)
    return replace(agent, observation_space=space, env_observation_space=spaces.Tuple((shown, ids)))
