"""A game of one turn whose luck all players share: a gamble earns 0.5 on average, else 0."""

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.games.array_game import TurnArrays
from remuda.types import AgentSpec, TurnResult

MEAN = 0.5


class Luck(TurnArrays):
    """Action 1 earns 0.5 plus the match's luck, which is 1 or -1; action 0 earns nothing."""

    def __init__(self, num_envs=1, players=3):
        space = Box(0.0, 1.0, (1,), np.float32)
        specs = [AgentSpec(f"agent_{i}", space, Discrete(2)) for i in range(players)]
        self._make_arrays(num_envs, specs)
        self.turn_groups, self._players = (tuple(range(players)),), players
        self._actions = np.zeros((num_envs, players), np.int64)
        self._luck = np.zeros(num_envs)

    def options(self):
        return {"players": self._players}

    def reset(self, seeds, mask):
        for copy in np.flatnonzero(mask):
            self._luck[copy] = np.random.default_rng(int(seeds[copy])).choice([-1.0, 1.0])
        self.active[mask] = True

    def observe(self, agent, out):
        out[...] = 1.0

    def act(self, agent, actions):
        self._actions[:, agent] = actions

    def end_turn(self):
        on = self.active[:, 0].copy()
        self._rewards[on] = self._actions[on] * (self._luck[on, None] + MEAN)
        self._terminated[on] = True
        self.active[on] = False
        return TurnResult(self._rewards, self._terminated, self._truncated)


def safe(env, agent, observations, random):
    return np.zeros(env.num_envs, np.int64)


def gamble(env, agent, observations, random):
    return np.ones(env.num_envs, np.int64)
