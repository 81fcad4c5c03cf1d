"""Environments in which agents take no part in some episodes, by paths that children can import."""

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete
from pettingzoo import AECEnv, ParallelEnv

from remuda.envs.vector_env import VectorEnv
from remuda.types import AgentSpec, TurnResult

TURNS = 4
"""Of each episode."""
PAY = {"host": 1, "other": 2, "guest": 5, "visitor": 5, "ghost": 0}
RETURNS = {"host": 4.0, "other": 8.0, "guest": 10.0, "ghost": None}
"""What each agent earns in every episode in which it acts; the ghost never does."""


class Guests(VectorEnv):
    """The guest joins for the last two turns of every second episode, and is paid 5 in each.

    While it is away it is paid 100 in every turn, for nothing that it did. Every third episode is
    over when it begins.
    """

    def __init__(self, num_envs=1, names=("host", "other", "guest", "ghost"), empty=3, teams=()):
        self.num_envs, self._empty = num_envs, empty
        space = Box(0, 1, (3,), np.float32)
        self.agents = tuple(
            AgentSpec(name, space, Discrete(2), teams[i] if teams else "")
            for i, name in enumerate(names)
        )
        self.turn_groups = (tuple(range(len(names))),)
        shape = (num_envs, len(names))
        self.active = np.zeros(shape, np.bool_)
        self._pay = np.array([PAY[n] for n in names])
        self._guests = np.array([name in ("guest", "visitor") for name in names])
        self._always = np.array([name in ("host", "other") for name in names])
        self._turn = np.zeros(num_envs, np.int64)
        self._episode = np.arange(num_envs) - 1

    def state(self):
        return {name: getattr(self, name).copy() for name in ("_turn", "_episode", "active")}

    def restore(self, state):
        for name, value in state.items():
            getattr(self, name)[...] = value

    def reset(self, seeds, mask):
        self._episode[mask] += 1
        self._turn[mask] = 0
        self.active[mask] = self._always
        if self._empty:
            self.active[mask & (self._episode % self._empty == self._empty - 1)] = False

    def begin_turn(self):
        self._begun = self.active.copy()

    def observe(self, agent, out):
        out[:] = np.stack([self._turn / TURNS, self._episode % 2, np.full(self.num_envs, 0.5)], 1)

    def act(self, agent, actions):
        pass

    def end_turn(self):
        self._turn += 1
        comes = self._episode % 2 == 0
        there = self._begun.any(1)
        rewards = np.where(self._begun, self._pay, 0.0)
        away = there & ~comes & (self._turn < TURNS)
        rewards += np.where(away[:, None] & self._guests, 100.0, 0.0)
        over = self._turn >= TURNS
        terminated = over[:, None] & self._begun
        self.active[...] = self._begun & ~over[:, None]
        self.active |= (there & comes & (self._turn == TURNS // 2))[:, None] & self._guests
        return TurnResult(rewards.astype(np.float32), terminated, np.zeros_like(terminated))


def two_hosts(num_envs=1):
    """Host and guest alone: half of the matches between two policies have one of them only."""
    return Guests(num_envs, ("host", "guest"), 0)


def pairs(num_envs=1):
    """Two teams, of each of which one member is a guest."""
    names = ("host", "guest", "other", "visitor")
    return Guests(num_envs, names, 0, ("red", "red", "blue", "blue"))


class Parallel(ParallelEnv):
    """Host and guest of PettingZoo, with every third episode over when it begins."""

    metadata = {"name": "guests"}  # noqa: RUF012
    possible_agents = ("host", "guest")
    resets = 0

    def observation_space(self, agent):
        return spaces.Box(0, 1, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def all(self, value):
        return dict.fromkeys(self.agents, value)

    def reset(self, seed=None, options=None):
        self.resets += 1
        self.turn = 0
        self.agents = [[], ["host"], ["host", "guest"]][self.resets % 3]
        return self.all(np.zeros(1, np.float32)), self.all({})

    def step(self, actions):
        self.turn += 1
        ends = self.turn == TURNS
        pay = {"host": 1.0, "guest": 2.5}
        found = (
            self.all(np.zeros(1, np.float32)),
            {name: pay[name] for name in self.agents},
            self.all(ends),
            self.all(False),
            self.all({}),
        )
        if ends:
            self.agents = []
        return found


class InTurn(AECEnv):
    """The same, one after another; an episode that is over has no agents, or only dead ones."""

    metadata = {"name": "guests in turn"}  # noqa: RUF012
    possible_agents = ("host", "guest")
    resets = 0

    def observation_space(self, agent):
        return spaces.Box(0, 1, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return np.zeros(1, np.float32)

    def reset(self, seed=None, options=None):
        self.resets += 1
        self.acts = 0
        self.agents = [["host", "guest"], ["host"], ["host", "guest"], []][self.resets % 4]
        dead = self.resets % 4 == 0
        for name, value in (
            ("rewards", 0.0),
            ("_cumulative_rewards", 0.0),
            ("terminations", dead),
            ("truncations", False),
        ):
            setattr(self, name, dict.fromkeys(self.agents, value))
        self.infos = {name: {} for name in self.agents}
        self.agent_selection = self.agents[0] if self.agents else "host"

    def step(self, action):
        name = self.agent_selection
        if self.terminations[name]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[name] = 0.0
        self._clear_rewards()
        self.acts += 1
        self.rewards[name] = {"host": 1.0, "guest": 2.5}[name]
        if self.acts == TURNS * len(self.agents):
            self.terminations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()
        after = (self.agents.index(name) + 1) % len(self.agents)
        self.agent_selection = self.agents[after]


class Empty(Guests):
    """Every episode is over when it begins."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs, ("host", "other"), 1)


def never_together(num_envs=1):
    """The second of two players never acts."""
    return Guests(num_envs, ("host", "ghost"), 0)
