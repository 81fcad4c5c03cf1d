"""A public-goods game of three players, whose equilibria one finds by hand."""

from dataclasses import replace

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.games.array_game import TurnArrays
from remuda.types import AgentSpec, TurnResult

KEEP, GIVE = 0, 1
SHARE, PRIZE = 0.5, 9.0


def earned(gives, volunteers):
    """What each player earns, of the same shape as `gives`, whose last axis is the players.

    Giving costs 1. Each gift is worth 0.5 to every player: keeping is dominant, and all earn 0 in
    the only equilibrium. With `volunteers` one gift is enough, and worth 9 to every player. If the
    others keep with probability q, a gift gains 9 q^2 - 1, so q = 1/3 in the symmetric equilibrium.
    """
    gives = np.asarray(gives, np.float64)
    total = gives.sum(-1, keepdims=True)
    return (PRIZE * (total > 0) if volunteers else SHARE * total) - gives


def tables(volunteers=False):
    """The payoffs of each player: [3, 2, 2, 2]."""
    choices = np.stack(np.meshgrid(*[[KEEP, GIVE]] * 3, indexing="ij"), axis=-1)
    return np.moveaxis(earned(choices, volunteers), -1, 0)


class PublicGoods(TurnArrays):
    """The game in one turn; an observation is a constant."""

    def __init__(self, num_envs=1, volunteers=False):
        space = Box(0.0, 1.0, (1,), np.float32)
        self._make_arrays(num_envs, [AgentSpec(f"agent_{i}", space, Discrete(2)) for i in range(3)])
        self.turn_groups, self._volunteers = ((0, 1, 2),), volunteers
        self._gives = np.zeros((num_envs, 3), np.int64)

    def options(self):
        return {"volunteers": self._volunteers}

    def reset(self, seeds, mask):
        self.active[mask] = True

    def observe(self, agent, out):
        out[...] = 1.0

    def act(self, agent, actions):
        self._gives[:, agent] = actions

    def end_turn(self):
        on = self.active[:, 0].copy()
        self._rewards[on] = earned(self._gives[on], self._volunteers)
        self._terminated[on] = True
        self.active[on] = False
        return TurnResult(self._rewards, self._terminated, self._truncated)


def keeps(env, agent, observations, random):
    """A scripted policy that gives nothing."""
    return np.full(env.num_envs, KEEP)


class Unlike(PublicGoods):
    """The same, but that the third player has one choice more, which keeps as well."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs)
        first, second, third = self.agents
        more = AgentSpec(third.name, third.observation_space, Discrete(3))
        self.agents = first, second, more

    def options(self):
        return {}

    def act(self, agent, actions):
        super().act(agent, np.where(actions == GIVE, GIVE, KEEP))


class PartlyMasked(PublicGoods):
    """The same, but that the third player has an action mask."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs)
        *free, third = self.agents
        self.agents = *free, replace(third, masked=True)

    def options(self):
        return {}

    def mask(self, agent, out):
        out[...] = True


def gives(env, agent, observations, random):
    """A scripted policy that always gives."""
    return np.full(env.num_envs, GIVE)
