"""Games of which one knows what comes of them, and policies that do one thing."""

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.envs.vector_env import VectorEnv
from remuda.evaluation.tournaments.entrants import Player
from remuda.policies.spec import first_weights
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import Snapshot
from remuda.system.rng import torch_rng
from remuda.types import AgentSpec, TurnResult


class Pull(VectorEnv):
    """Two teams of two: each agent is given what its team's choices are more than the other's."""

    SIDES = ("red", "red", "blue", "blue")

    def __init__(self, num_envs=1):
        self.num_envs = num_envs
        space = Box(0, 1, (1,), np.float32)
        self.agents = tuple(
            AgentSpec(f"agent_{i}", space, Discrete(2), team=side)
            for i, side in enumerate(self.SIDES)
        )
        self.turn_groups = (tuple(range(len(self.SIDES))),)
        shape = (num_envs, len(self.SIDES))
        self._chosen = np.zeros(shape, np.float32)
        self._rewards = np.zeros(shape, np.float32)
        self._terminated = np.zeros(shape, np.bool_)
        self.active = np.zeros(shape, np.bool_)
        self._turn = np.zeros(num_envs, np.int64)
        self._length = np.ones(num_envs, np.int64)

    def reset(self, seeds, mask):
        self.active[mask], self._turn[mask] = True, 0

    def begin_turn(self):
        self._rewards[:], self._terminated[:] = 0, False

    def observe(self, agent, out):
        out[:] = 0

    def act(self, agent, actions):
        self._chosen[:, agent] = actions

    def end_turn(self):
        self._turn += 1
        over = self._turn >= self._length
        more = self._chosen[:, :2].sum(1) - self._chosen[:, 2:].sum(1)
        self._rewards[over] = (more[:, None] * [1, 1, -1, -1])[over]
        self._terminated[over] = True
        self.active[over] = False
        return TurnResult(self._rewards, self._terminated, np.zeros_like(self._terminated))


class LongLoses(Pull):
    """Half of the matches, drawn by the seed, are 40 times as long; these agent 0 loses."""

    SIDES = ("", "", "", "")

    def reset(self, seeds, mask):
        super().reset(seeds, mask)
        self._length[mask] = np.where(seeds[mask] % 2, 40, 1)

    def end_turn(self):
        result = super().end_turn()
        over = self._terminated[:, 0]
        self._rewards[over] = np.where(self._length[over] > 1, -1, 1)[:, None]
        return result


class FirstSeat(Pull):
    """Five seats of one turn, of which only the first earns anything: its action."""

    SIDES = ("",) * 5

    def end_turn(self):
        self._rewards[:, 0] = self._chosen[:, 0]
        self._terminated[:], self.active[:] = True, False
        return TurnResult(self._rewards, self._terminated, np.zeros_like(self._terminated))


class Absent(FirstSeat):
    """Agent 3 takes part in a quarter of the matches, drawn by the seed."""

    OF = 4

    def reset(self, seeds, mask):
        super().reset(seeds, mask)
        self.active[mask, 3] = seeds[mask] % self.OF == self.OF - 1


class NeverWhole(Absent):
    """Agent 3 never takes part."""

    OF = 1 << 62


class Fails(Pull):
    """Fails in its first turn."""

    def end_turn(self):
        raise ValueError("as it does")


def always(action, game, agent=0, version=1, **policy):
    """A policy that knows one action: all weights 0 but for the bias of its logit."""
    spec, env_agent = _spec(game, agent, **policy)
    parts = {name: np.zeros(shape, np.float32) for name, shape in spec.network().shapes.items()}
    parts["policy.bias"][0, action] = 30.0
    weights = np.concatenate([part.ravel() for part in parts.values()])
    return Player(spec, Snapshot(weights, version, 0, 0.0), env_agent)


def untrained(game, number, agent=0, **policy):
    """A policy with weights that were drawn."""
    spec, env_agent = _spec(game, agent, **policy)
    weights = first_weights(spec, torch_rng(number, "weights"))
    return Player(spec, Snapshot(3.0 * weights, number, 0, 0.0), env_agent)


def _spec(game, agent, algorithm="ppo", network=None, **policy):
    settings = {"algorithm": algorithm, "network": network or {"hidden": [8]}, **policy}
    config = load_config({"game": game, "policy": settings})
    agents = make_env(game, 1).agents
    return policy_specs(config, agents)[agent], agents[agent]
