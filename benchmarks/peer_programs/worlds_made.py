"""Other people's worlds for peers: named environments whose agents act at once, unchanged."""

import os
import warnings
from importlib import import_module

import gymnasium

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("PYGLET_HEADLESS", "1")


class Alone:
    """An environment of Gymnasium for one agent, or for several that hand over tuples."""

    def __init__(self, module, name, options):
        if module:
            import_module(module)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.env = gymnasium.make(name, disable_env_checker=True, **options)
        sees, does = self.env.observation_space, self.env.action_space
        self.several = isinstance(sees, gymnasium.spaces.Tuple)
        spaces = list(zip(sees, does, strict=True)) if self.several else [(sees, does)]
        self.possible_agents = [f"agent_{i}" for i in range(len(spaces))]
        self.spaces = dict(zip(self.possible_agents, spaces, strict=True))
        self.agents = []

    def observation_space(self, agent):
        return self.spaces[agent][0]

    def action_space(self, agent):
        return self.spaces[agent][1]

    def _by_agent(self, values):
        return dict(zip(self.possible_agents, values if self.several else [values], strict=True))

    def reset(self, seed=None):
        seen, _ = self.env.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return self._by_agent(seen), {}

    def step(self, actions):
        chosen = tuple(actions[name] for name in self.possible_agents)
        seen, rewards, ended, cut, _ = self.env.step(chosen if self.several else chosen[0])
        if ended or cut:
            self.agents = []
        flags = [dict.fromkeys(self.possible_agents, bool(flag)) for flag in (ended, cut)]
        return self._by_agent(seen), self._by_agent(rewards), *flags, {}


def make(game, options):
    """An environment by Remuda's name for it."""
    library, _, name = game.partition(":")
    if library == "pettingzoo":
        module = import_module(name if "." in name else f"pettingzoo.{name.replace('/', '.')}")
        return module.parallel_env(**options)
    if library == "lbf":
        return Alone("lbforaging", name, options)
    if library == "rware":
        return Alone("rware", name, options)
    return Alone("", name, options)
