"""Policies that are written by hand, by names that the children of a run can import."""

from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.scripted import masks_of
from remuda.population.matchmaking.matchmaker import Matchmaker
from remuda.types import AgentSpec
from support import Tape


def three(env, agent, observations, random):
    """The best that there is on a tape: each is given its action."""
    return np.full(len(observations), 3)


def nothing(env, agent, observations, random):
    return np.zeros(len(observations), np.int64)


class Two:
    """Made with nothing, and its object is called."""

    def __call__(self, env, agent, observations, random):
        return np.full(len(observations), 2)


class Demanding(Two):
    def __init__(self, strength):
        self.strength = strength


NOT_A_POLICY = 3


def none_there_is(env, agent, observations, random):
    """Chooses what is no action."""
    return np.full(env.num_envs, 10**6)


def not_a_number(env, agent, observations, random):
    """Chooses nothing that could be looked up."""
    return np.full(env.num_envs, np.nan)


def too_few(env, agent, observations, random):
    return np.zeros(1, np.int64)


def fails(env, agent, observations, random):
    raise RuntimeError("no idea what to do")


def last_allowed(env, agent, observations, random):
    masks = masks_of(env, agent)
    return masks.shape[1] - 1 - masks[:, ::-1].argmax(1)


class Witness:
    """Notes whom it was asked for, what it saw and how many had acted; plays 1."""

    calls: ClassVar[list] = []

    def __call__(self, env, agent, observations, random):
        Witness.calls.append((agent, observations.copy(), env.acts))
        return np.ones(len(observations), np.int64)


class Unlike(Tape):
    """Two agents of a tape, of whom the second sees less and has other actions."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs)
        first, second = self.agents
        own = AgentSpec(second.name, Box(-1000, 1000, (3,), np.float32), Discrete(6))
        self.agents = (first, own)

    def observe(self, agent, out):
        whole = np.zeros((self.num_envs, 5), np.float32)
        super().observe(agent, whole)
        out[...] = whole[:, : out.shape[1]]


class Chased(Tape):
    """Four agents of a tape that act together, of whom the second sees and does other things."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs, 4, together=True)
        agents = list(self.agents)
        agents[1] = AgentSpec("prey", Box(-1000, 1000, (3,), np.float32), Discrete(6))
        self.agents = tuple(agents)

    def observe(self, agent, out):
        whole = np.zeros((self.num_envs, 5), np.float32)
        super().observe(agent, whole)
        out[...] = whole[:, : out.shape[1]]


class Broken(Chased):
    """Shows the prey, whom no policy plays, what is no number."""

    def observe(self, agent, out):
        super().observe(agent, out)
        if agent == 1:
            out[self.num_envs - 1, 0] = np.nan


def five(env, agent, observations, random):
    """What the prey alone can do; it looks at what it sees."""
    assert observations.shape == (env.num_envs, 3)
    return np.full(len(observations), 5)


class Counting(Matchmaker):
    """Notes how many matches it knows of."""

    known: ClassVar[set] = set()

    def seat(self, population, ledger, random):
        Counting.known.add(population.matches)
        return (population.learning[0].ref,) * self.num_seats


class Cards(gymnasium.Env):
    """One of three cards is shown, and its number is the right action."""

    observation_space = Box(0.0, 1.0, (3,), np.float32)
    action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.card = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.card], {}

    def step(self, action):
        return np.eye(3, dtype=np.float32)[0], float(action == self.card), True, False, {}


def by_card(env, agent, observations, random):
    cards = {(1.0, 0.0, 0.0): 0, (0.0, 1.0, 0.0): 1, (0.0, 0.0, 1.0): 2}
    return np.array([cards[tuple(each)] for each in observations.tolist()])
