"""Games of one agent whose best return is 1."""

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.vector_env import VectorEnv
from remuda.types import AgentSpec, TurnResult


class Bandit(VectorEnv):
    """Three arms, of which one pays, told by what is seen; an episode is one pull."""

    length = 1

    def __init__(self, num_envs=1):
        self.num_envs = num_envs
        self.agents = (AgentSpec("agent_0", Box(0.0, 1.0, (self.width,), np.float32), self.moves),)
        self.turn_groups = ((0,),)
        self.active = np.zeros((num_envs, 1), np.bool_)
        self._at = np.zeros(num_envs, np.int64)
        self._turn = np.zeros(num_envs, np.int64)
        self._rewards = np.zeros((num_envs, 1), np.float32)
        self._random = [np.random.default_rng(0) for _ in range(num_envs)]

    width, moves = 3, Discrete(3)

    def reset(self, seeds, mask):
        for env in np.flatnonzero(mask):
            self._random[env] = np.random.default_rng(int(seeds[env]))
            self._at[env] = self.start(self._random[env])
        self._turn[mask] = 0
        self.active[mask] = True

    def start(self, random):
        return random.integers(3)

    def begin_turn(self):
        self._rewards[:] = 0.0

    def observe(self, agent, out):
        out[:] = np.eye(self.width, dtype=np.float32)[self._at]

    def act(self, agent, actions):
        self._rewards[:, 0] = (actions == self._at) & self.active[:, 0]

    def over(self):
        return np.ones(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)

    def end_turn(self):
        self._turn += 1
        terminated, truncated = (part & self.active[:, 0] for part in self.over())
        self.active[terminated | truncated] = False
        return TurnResult(self._rewards, terminated[:, None], truncated[:, None], {})


class Corridor(Bandit):
    """Five places in a row; one begins at the first, and is paid 1 for reaching the last."""

    width, moves = 5, Discrete(2)

    def start(self, random):
        return 0

    def act(self, agent, actions):
        moved = np.clip(self._at + np.where(actions == 1, 1, -1), 0, self.width - 1)
        self._at = np.where(self.active[:, 0], moved, self._at)
        self._rewards[:, 0] = (self._at == self.width - 1) & self.active[:, 0]

    def over(self):
        there = self._at == self.width - 1
        return there, ~there & (self._turn >= 20)
