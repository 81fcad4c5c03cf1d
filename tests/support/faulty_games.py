"""Games of several libraries that break their contract, each in one way."""

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from remuda.actor.actor import Actor
from remuda.actor.fixed_seats import FixedSeats
from remuda.actor.make_seats import make_seats
from remuda.config import load_config
from remuda.envs.adapters.aec import AECCopies
from remuda.envs.adapters.gymnasium import GymnasiumEnv
from remuda.envs.adapters.parallel import ParallelCopies
from remuda.population.specs import policy_specs
from remuda.system.rng import make_rng
from remuda.system.scoreboard import Scoreboard

LAST = 6
"""The turn in which episodes end; the fault comes in the turn before the last but one."""
FAULTY = 4
SEES = spaces.Box(-np.inf, np.inf, (5,), np.float32)
MISSING = object()
"""Stands for a value that the game leaves out."""

VALUES = {
    "short observation": (
        "observation",
        np.ones(1, np.float32),
        r"has the shape \(1,\), not \(5,\)",
    ),
    "no observation": ("observation", None, "the observation is missing"),
    "observation of text": ("observation", "abcde", "the observation is 'abcde', not numbers"),
    "observation that is not a number": (
        "observation",
        np.array([0, 0, np.nan, 0, 0], np.float32),
        r"the observation holds nan \(number 2 of 5\)",
    ),
    "infinite observation": (
        "observation",
        np.array([0, 0, 0, 0, -np.inf], np.float32),
        r"the observation holds -inf \(number 4 of 5\)",
    ),
    "observation beyond its dtype": (
        "observation",
        np.array([1e300, 0, 0, 0, 0]),
        r"the observation holds inf \(number 0 of 5\)",
    ),
    "no reward": ("reward", None, "the reward is None, not a number"),
    "reward of a vector": (
        "reward",
        np.ones(2),
        r"the reward is array\(\[1., 1.\]\), not a number",
    ),
    "reward that is not a number": ("reward", np.nan, "the reward is nan, which is not finite"),
    "infinite reward": ("reward", float("inf"), "the reward is inf, which is not finite"),
    "no end": ("terminated", None, "`terminated` is None, not true or false"),
}


def given(fault, what, turn, good):
    kind, value, _ = VALUES[fault]
    return value if kind == what and turn == FAULTY else good


class Alone(gymnasium.Env):
    observation_space, action_space = SEES, spaces.Discrete(2)

    def __init__(self, fault):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return np.zeros(5, np.float32), {}

    def step(self, action):
        self.turn += 1
        seen = given(self.fault, "observation", self.turn, np.full(5, self.turn, np.float32))
        reward = given(self.fault, "reward", self.turn, 1.0)
        return (
            seen,
            reward,
            given(self.fault, "terminated", self.turn, self.turn == LAST),
            False,
            {},
        )


class AtOnce(ParallelEnv):
    """The fault is bob's."""

    metadata = {"name": "at_once"}  # noqa: RUF012
    possible_agents = ("ann", "bob")

    def __init__(self, fault, leaves_out=False):
        self.fault, self.leaves_out = fault, leaves_out

    def observation_space(self, agent):
        return SEES

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.turn = list(self.possible_agents), 0
        return {name: np.zeros(5, np.float32) for name in self.agents}, {}

    def step(self, actions):
        self.turn += 1
        told = {
            "observation": np.full(5, self.turn, np.float32),
            "reward": 1.0,
            "terminated": self.turn == LAST,
        }
        found = []
        for what, good in told.items():
            values = {"ann": good, "bob": given(self.fault, what, self.turn, good)}
            if self.leaves_out and values["bob"] is None:
                del values["bob"]
            found.append(values)
        self.agents = [] if self.turn == LAST else self.agents
        seen, rewards, ends = found
        return seen, rewards, ends, dict.fromkeys(actions, False), {n: {} for n in actions}


class InTurn(AECEnv):
    """The fault is bob's."""

    metadata = {"name": "in_turn"}  # noqa: RUF012
    possible_agents = ("ann", "bob")

    def __init__(self, fault):
        self.fault = fault

    observation_space = AtOnce.observation_space
    action_space = AtOnce.action_space

    def reset(self, seed=None, options=None):
        self.agents, self.turn = list(self.possible_agents), 1
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {name: {} for name in self.agents}
        self.agent_selection = "ann"

    def observe(self, agent):
        good = np.full(5, self.turn, np.float32)
        return given(self.fault, "observation", self.turn, good) if agent == "bob" else good

    def step(self, action):
        name = self.agent_selection
        if self.terminations[name]:
            return self._was_dead_step(action)
        if name == "bob":
            self.rewards = {"ann": 1.0, "bob": given(self.fault, "reward", self.turn, 1.0)}
            if self.turn == LAST:
                self.terminations = dict.fromkeys(self.agents, True)
            self.turn += 1
        else:
            self.rewards = {"ann": 0.0, "bob": 0.0}
        self.agent_selection = "ann" if name == "bob" else "bob"
        return None


def actor_of(env, check=True, **policy):
    policy = {"algorithm": "ppo", "network": {"hidden": (4,)}} | policy
    specs = policy_specs(load_config({"policy": policy}), env.agents)
    board = Scoreboard(tuple(spec.name for spec in specs))
    seats = make_seats(env, specs, board, seed=0, purpose="actor")
    env.check = check
    return Actor(env, FixedSeats(env, seats), board.play(), make_rng(0, "env"), check=check)


def play(actor, turns=3 * LAST):
    for _ in range(turns):
        actor.turn()


def second(make, fault):
    """Two copies, of which the second is faulty."""
    made = []

    def each():
        made.append(make(fault if made else "nothing"))
        return made[-1]

    return each


VALUES["nothing"] = ("", None, "")
FAULTS = [fault for fault in VALUES if fault != "nothing"]
GAMES = {
    "gymnasium": (GymnasiumEnv, Alone, "agent_0"),
    "parallel": (ParallelCopies, AtOnce, "bob"),
    "aec": (AECCopies, InTurn, "bob"),
}
