"""Environments of other libraries that tell numbers in `info`, and wrappers of them."""

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

SEES = spaces.Box(-1.0, 1.0, (2,), np.float32)
LENGTH = 3


class Telling(gymnasium.Env):
    """Tells its turn, and at the end how it went."""

    observation_space, action_space = SEES, spaces.Discrete(2)

    def __init__(self, says=None, every=0):
        self.says, self.every, self.episodes = says, every, 0

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        self.episodes += 1
        return np.zeros(2, np.float32), {"turn": 100.0}

    def step(self, action):
        self.turn += 1
        over = self.turn == LENGTH
        info = {"turn": self.turn, "deep": {"turn": np.float32(self.turn)}}
        if over:
            info["is_success"] = np.bool_(True)
            if self.every and self.episodes % self.every == 0:
                info["rare"] = 7.0
        if self.says is not None:
            info["says"] = self.says
        return np.full(2, 0.5, np.float32), 1.0, over, False, info


class Unlike(gymnasium.Env):
    """Episodes of unlike lengths, each of which tells how long it has been."""

    observation_space, action_space = SEES, spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.turn = int(self.np_random.integers(2, 30)), 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.turn += 1
        return np.zeros(2, np.float32), 1.0, self.turn == self.left, False, {"length": self.turn}


class Pair(ParallelEnv):
    """Two agents at once, of which each tells its own number, and only the second its share."""

    metadata = {"name": "pair", "render_modes": []}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def observation_space(self, agent):
        return SEES

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.turn = list(self.possible_agents), 0
        return {name: np.zeros(2, np.float32) for name in self.agents}, {"a": {}, "b": {}}

    def step(self, actions):
        self.turn += 1
        over = self.turn == LENGTH
        infos = {"a": {"speed": self.turn}, "b": {"speed": 10 * self.turn, "share": self.turn}}
        given = dict.fromkeys(actions, 1.0), dict.fromkeys(actions, over)
        seen = {name: np.zeros(2, np.float32) for name in actions}
        cut = dict.fromkeys(actions, False)
        if over:
            self.agents = []
        return seen, *given, cut, infos


class Early(Pair):
    """The first agent is done after its first step."""

    metadata = {"name": "early", "render_modes": []}  # noqa: RUF012

    def step(self, actions):
        first = "a" in actions and self.turn == 0
        seen, given, ended, cut, infos = super().step(dict(actions))
        if first:
            self.agents, ended["a"] = ["b"], True
        if not self.agents:
            infos["b"]["late"] = 8.0
        return seen, given, ended, cut, {name: infos[name] for name in actions}


class Named(Telling):
    """With options that have the names of settings."""

    def __init__(self, wrappers=0, episode_metrics=0):
        super().__init__()
        self.wrappers, self.episode_metrics = wrappers, episode_metrics


class Tuples(gymnasium.Env):
    """Two agents that hand over tuples, and tell numbers of both and of each."""

    n_agents = 2
    observation_space = spaces.Tuple([SEES, SEES])
    action_space = spaces.Tuple([spaces.Discrete(2)] * 2)

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return (np.zeros(2, np.float32),) * 2, {}

    def step(self, actions):
        self.turn += 1
        own = (self.turn, 2 * self.turn)
        deep = {"score": self.turn, "own": own}
        info = {"score": self.turn, "own": list(own), "deep": deep, "none": np.array(3.0)}
        seen = (np.zeros(2, np.float32),) * 2
        return seen, [1.0, 1.0], self.turn == LENGTH, False, info


class Turns(AECEnv):
    """Two agents in turn; each is told of its own step before it acts again, or at the end."""

    metadata = {"name": "turns", "render_modes": []}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.possible_agents = ["a", "b"]
        self.render_mode = None

    def observation_space(self, agent):
        return SEES

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return np.zeros(2, np.float32)

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(self.possible_agents), 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {name: {"acts": 100} for name in self.agents}
        self.agent_selection = "a"

    def step(self, action):
        name = self.agent_selection
        if self.terminations[name]:
            self._was_dead_step(None)
            return
        self.steps += 1
        self.infos[name] = {"acts": self.steps}
        self.agent_selection = "b" if name == "a" else "a"
        if self.steps == 2 * LENGTH:
            self.terminations = dict.fromkeys(self.agents, True)


class Louder(gymnasium.ObservationWrapper):
    """Sees so many times as much."""

    def __init__(self, env, times=2.0):
        super().__init__(env)
        self.times = times
        self.observation_space = spaces.Box(-9.0, 9.0, (2,), np.float32)

    def observation(self, observation):
        return (observation * self.times).astype(np.float32)


class Faulty(gymnasium.Wrapper):
    """Cannot be made."""

    def __init__(self, env):
        raise RuntimeError("not today")


def refused(env):
    """A wrapper that does not like what it is given."""
    raise ValueError("it is too round")


def other_kind(env):
    """No wrapper: it makes a copy of another kind."""
    return Pair()
