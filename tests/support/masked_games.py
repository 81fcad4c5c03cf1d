"""Games that tell what is allowed, and refuse whatever is not."""

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from remuda.envs.vector_env import VectorEnv
from remuda.types import AgentSpec, TurnResult
from support import Tape


def allowed_by(seen, sizes):
    """What is allowed to those who see this, by what a tape shows: [N, mask_size] bool.

    Args:
        seen: [N, 5] the newest observation of each.
        sizes: possibilities of each choice.
    """
    copy, agent, episode, turn, _ = np.asarray(seen).astype(int).T
    start = (copy + 2 * episode + turn + agent)[:, None]
    return np.concatenate([(start + np.arange(size)) % 3 != 0 for size in sizes], axis=1)


def combinations(masks, sizes):
    """Which combinations of choices are allowed, the last of which changes fastest: [N, A]."""
    found, begin = np.ones((len(masks), 1), bool), 0
    for size in sizes:
        part = masks[:, None, begin : begin + size]
        found = (found[:, :, None] & part).reshape(len(masks), -1)
        begin += size
    return found


class Doors(Tape):
    """A tape where one or two of three possibilities in a row are open.

    Copies of an even number allow nothing once an episode is over; the others go on as before.
    """

    def __init__(self, num_envs=1, choices=(4,), **options):
        super().__init__(num_envs, **options)
        self.choices = tuple(choices)
        space = Discrete(choices[0]) if len(choices) == 1 else MultiDiscrete(choices)
        self.agents = tuple(
            AgentSpec(agent.name, agent.observation_space, space, masked=True)
            for agent in self.agents
        )

    def mask(self, agent, out):
        seen = np.zeros((self.num_envs, 5))
        self.observe(agent, seen)
        out[...] = allowed_by(seen, self.choices)
        over = self._turn >= self._lengths
        out[over & (np.arange(self.num_envs) % 2 == 0)] = False

    def act(self, agent, actions):
        seen = np.zeros((self.num_envs, 5))
        self.observe(agent, seen)
        masks, begin = allowed_by(seen, self.choices), 0
        chosen = actions.reshape(self.num_envs, -1)
        for i, size in enumerate(self.choices):
            open_to = masks[np.arange(self.num_envs), begin + chosen[:, i]]
            if not open_to[self.active[:, agent]].all():
                raise AssertionError(f"agent {agent} goes through a closed door")
            begin += size
        super().act(agent, chosen.sum(1))


class Corridor(VectorEnv):
    """One agent walks to the right end of five places, which is worth 1; each step costs 0.1.

    Nobody goes left of the first place: there that is not allowed. After twelve turns it is cut.
    """

    turn_groups = ((0,),)

    def __init__(self, num_envs=1):
        self.num_envs = num_envs
        space = Box(0, 1, (5,), np.float32)
        self.agents = (AgentSpec("agent_0", space, Discrete(2), masked=True),)
        self._place = np.zeros(num_envs, np.int64)
        self._turn = np.zeros(num_envs, np.int64)
        self._rewards = np.zeros((num_envs, 1), np.float32)
        self.active = np.zeros((num_envs, 1), np.bool_)

    def reset(self, seeds, mask):
        self._place[mask] = self._turn[mask] = 0
        self.active[mask] = True

    def begin_turn(self):
        self._rewards[:] = 0

    def observe(self, agent, out):
        out[:] = 0
        out[np.arange(self.num_envs), self._place] = 1

    def mask(self, agent, out):
        out[:, 0] = self._place > 0
        out[:, 1] = True

    def act(self, agent, actions):
        assert (actions[(self._place == 0) & self.active[:, 0]] == 1).all()
        self._place += np.where(self.active[:, 0], 2 * actions - 1, 0)

    def end_turn(self):
        self._turn += 1
        there = self._place == 4
        self._rewards[:, 0] = np.where(self.active[:, 0], there - 0.1, 0)
        over = self.active[:, 0] & (there | (self._turn >= 12))
        self.active[over] = False
        return TurnResult(self._rewards, (over & there)[:, None], (over & ~there)[:, None])

    def state(self):
        names = ("_place", "_turn", "active")
        return {name: getattr(self, name).copy() for name in names}

    def restore(self, state):
        for name, value in state.items():
            getattr(self, name)[...] = value
