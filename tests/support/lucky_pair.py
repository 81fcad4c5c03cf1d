"""A game of two steps in which only a joint view tells skill from luck."""

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.games.array_game import TurnArrays
from remuda.types import AgentSpec, TurnResult

STEPS = 2


class LuckyPair(TurnArrays):
    """Two agents observe a private sign each; both are rewarded if each plays its own sign.

    The signs are those of the episode. In both steps the agents also get `luck` times the product
    of the signs. Its mean is 0, whatever an agent observes, so a critic of one observation takes it
    for noise. A critic of both observations predicts it.
    """

    episode_metrics = ("matches",)

    def __init__(self, num_envs=1, luck=30.0, has_state=False):
        space = Box(-1.0, 1.0, (2,), np.float32)
        state = Box(-1.0, 1.0, (3,), np.float32) if has_state else None
        self._make_arrays(
            num_envs,
            [AgentSpec(f"agent_{i}", space, Discrete(2), state_space=state) for i in (0, 1)],
        )
        self.turn_groups, self._luck = ((0, 1),), luck
        self._signs = np.ones((num_envs, 2), np.float32)
        self._step = np.zeros(num_envs, np.int64)
        self._matches = np.zeros(num_envs)
        self._right = np.zeros((num_envs, 2), np.bool_)
        self._seeds = np.zeros(num_envs, np.uint64)
        self._result = TurnResult(
            self._rewards, self._terminated, self._truncated, {"matches": self._matches}
        )

    def _draw(self, mask):
        """Draw two signs from the seed (the finaliser of splitmix64)."""
        for agent in (0, 1):
            x = self._seeds * np.uint64(4) + np.uint64(agent)
            x = (x + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            bits = (x >> np.uint64(40)) & np.uint64(1)
            self._signs[mask, agent] = np.where(bits == 1, 1.0, -1.0)[mask]

    def reset(self, seeds, mask):
        self._seeds[mask] = seeds[mask].astype(np.uint64)
        self._step[mask] = self._matches[mask] = 0
        self.active[mask] = True
        self._draw(mask)

    def state(self):
        names = ("_signs", "_step", "_matches", "_seeds", "active")
        return {name: getattr(self, name).copy() for name in names}

    def restore(self, state):
        for name, array in state.items():
            getattr(self, name)[...] = array

    def observe(self, agent, out):
        out[:, 0], out[:, 1] = self._signs[:, agent], self._step

    def observe_state(self, agent, out):
        out[:, :2], out[:, 2] = self._signs, self._step

    def act(self, agent, actions):
        self._right[:, agent] = (actions == 1) == (self._signs[:, agent] > 0)

    def end_turn(self):
        playing = self.active.any(1)
        both = self._right.all(1)
        self._matches += both & playing
        reward = self._luck * self._signs.prod(1) + both
        self._rewards[:] = np.where(playing, reward, 0.0)[:, None]
        self._step += playing
        over = playing & (self._step == STEPS)
        self._terminated[:] = over[:, None]
        self.active[over] = False
        return self._result
