"""Corridors whose length a run may change: an episode ends at the right end."""

from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import AECEnv, ParallelEnv

from remuda.envs.vector_env import VectorEnv
from remuda.types import AgentSpec, TurnResult

SPACE = Box(-1000, 1000, (2,), np.float32)


def checked(length):
    if type(length) is not int or length < 1:
        raise ValueError(f"length is {length!r}; allowed is a whole number, at least 1")
    return length


class Growing(VectorEnv):
    """Each step right is paid; observations are [position, length of the copy's corridor]."""

    changeable_options = ("length", "pay")
    episode_metrics = ("corridor",)
    agents = (AgentSpec("agent_0", SPACE, Discrete(2)),)
    turn_groups = ((0,),)

    def __init__(self, num_envs=1, length=3, pay=1.0):
        self.num_envs, self._length, self._pay = num_envs, checked(length), pay
        self._lengths, self._places = np.full(num_envs, length), np.zeros(num_envs, np.int64)
        self._pays = np.full(num_envs, float(pay))
        self.active = np.zeros((num_envs, 1), np.bool_)
        self._rewards = np.zeros((num_envs, 1), np.float32)

    def options(self):
        return {"length": self._length, "pay": self._pay}

    def set_option(self, name, value):
        if name == "length":
            self._length = checked(value)
        else:
            self._pay = float(value)

    def reset(self, seeds, mask):
        self.active[mask] = True
        self._lengths[mask], self._pays[mask], self._places[mask] = self._length, self._pay, 0

    def begin_turn(self):
        self._rewards[:] = 0

    def observe(self, agent, out):
        out[:, 0], out[:, 1] = self._places, self._lengths

    def act(self, agent, actions):
        moves = actions * self.active[:, 0]
        self._places += np.where(self.active[:, 0], 1 + (actions == 1) * (self._lengths % 2), 0)
        self._rewards[:, 0] = moves * self._pays

    def end_turn(self):
        over = (self._places >= self._lengths)[:, None] & self.active
        self.active &= ~over
        info = {"corridor": self._lengths.astype(float)}
        return TurnResult(self._rewards, over, np.zeros_like(over), info)

    def state(self):
        names = ("_lengths", "_pays", "_places", "active")
        return {name: getattr(self, name).copy() for name in names}

    def restore(self, state):
        for name, value in state.items():
            getattr(self, name)[...] = value


class Corridor(gymnasium.Env):
    """A copy of its own; `told` are the calls of `set_option` and `reset`."""

    changeable_options = ("length",)
    observation_space, action_space = SPACE, Discrete(2)

    def __init__(self, length=3):
        self.length, self.told = checked(length), []

    def set_option(self, name, value):
        self.told.append((name, value))
        self.length = checked(value)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.told.append("reset")
        self._place = 0
        return self._seen(), {}

    def step(self, action):
        self._place += 1
        over = self._place >= self.length
        return self._seen(), float(action), over, False, {"corridor": float(self.length)}

    def _seen(self):
        return np.array([self._place, self.length], np.float32)


class Undeclared(gymnasium.Wrapper):
    """A wrapper that knows nothing of options."""


class Corridors(ParallelEnv):
    """Two agents in one corridor."""

    metadata: ClassVar = {"name": "corridors"}
    changeable_options = ("length", "note")
    possible_agents = ("a", "b")

    def __init__(self, length=3):
        self.length = checked(length)

    def observation_space(self, agent):
        return SPACE

    def action_space(self, agent):
        return Discrete(2)

    def set_option(self, name, value):
        if name == "length":
            self.length = checked(value)

    def reset(self, seed=None, options=None):
        self.agents, self._place = list(self.possible_agents), 0
        return self._all(self._seen()), self._all({})

    def step(self, actions):
        names, self._place = list(actions), self._place + 1
        over = self._place >= self.length
        if over:
            self.agents = []
        results = (self._seen(), 1.0, over, False, {})
        return tuple(dict.fromkeys(names, each) for each in results)

    def _seen(self):
        return np.array([self._place, self.length], np.float32)

    def _all(self, value):
        return dict.fromkeys(self.possible_agents, value)


class InTurn(AECEnv):
    """One agent, in the interface of several that act in turn."""

    metadata: ClassVar = {"name": "in_turn"}
    changeable_options = ("length",)

    def __init__(self, length=3):
        super().__init__()
        self.length, self.possible_agents = checked(length), ["a"]
        self.observation_spaces, self.action_spaces = {"a": SPACE}, {"a": Discrete(2)}

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def set_option(self, name, value):
        self.length = checked(value)

    def reset(self, seed=None, options=None):
        self.agents, self._place, self.agent_selection = ["a"], 0, "a"
        self.rewards, self._cumulative_rewards = {"a": 0.0}, {"a": 0.0}
        self.terminations, self.truncations, self.infos = {"a": False}, {"a": False}, {"a": {}}

    def observe(self, agent):
        return np.array([self._place, self.length], np.float32)

    def step(self, action):
        if self.terminations["a"]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards["a"] = 0.0
        self._place += 1
        self.rewards["a"] = 1.0
        self.terminations["a"] = self._place >= self.length
        self._accumulate_rewards()
