"""A game in Python that takes about a millisecond of a processor for each turn of a copy."""

from __future__ import annotations

import time

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.vector_env import VectorEnv
from remuda.types import AgentSpec, Array, Bools, Integers, TurnResult

COST = 1e-3
"""Seconds of processor time that a turn of a copy takes: other processes cannot make it cheaper."""
LENGTH = 10
"""Turns of an episode."""


class SlowGame(VectorEnv):
    """Two agents are shown a number each, and earn it by choosing its sign."""

    def __init__(self, num_envs: int = 1, cost: float = COST) -> None:
        self.num_envs, self._cost = num_envs, cost
        space = Box(-1.0, 1.0, (4,), np.float32)
        self.agents = tuple(AgentSpec(f"agent_{i}", space, Discrete(2)) for i in range(2))
        self.turn_groups = ((0, 1),)
        self._random = np.random.default_rng(0)
        self._seen = np.zeros((2, num_envs, 4), np.float32)
        self._turn = np.zeros(num_envs, np.int64)
        self._rewards = np.zeros((num_envs, 2), np.float32)
        self.active = np.zeros((num_envs, 2), np.bool_)

    def reset(self, seeds: Integers, mask: Bools) -> None:
        self._random = np.random.default_rng(int(seeds[0]))
        self._turn[mask], self.active[mask] = 0, True

    def begin_turn(self) -> None:
        self._seen[...] = self._random.uniform(-1.0, 1.0, self._seen.shape)

    def observe(self, agent: int, out: Array) -> None:
        out[...] = self._seen[agent]

    def act(self, agent: int, actions: Array) -> None:
        self._rewards[:, agent] = self._seen[agent, :, 0] * (2.0 * actions - 1.0)

    def end_turn(self) -> TurnResult:
        end = time.thread_time() + self.num_envs * self._cost
        while time.thread_time() < end:
            pass
        self._turn += 1
        over = np.repeat(self._turn >= LENGTH, 2).reshape(-1, 2)
        self.active &= ~over
        return TurnResult(self._rewards, over, np.zeros_like(over))
