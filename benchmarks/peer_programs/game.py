"""The game that every peer is given: Treasure Hunt 21 x 21, eight agents, in compiled loops.

Peers get it as cheap as it can be: all agents act at once and the copies are stepped together, so
that what is measured is their training and not a slow game.
"""

from __future__ import annotations

import numpy as np

from remuda.envs.games.treasure_hunt import TreasureHunt

AGENTS = 8
COPIES = 64
SIZE = 125
ACTIONS = 4


class Game:
    """`COPIES` copies with `AGENTS` agents each, as rows of flat float observations."""

    def __init__(self, copies: int = COPIES) -> None:
        self.env = TreasureHunt(num_envs=copies, num_agents=AGENTS)
        self.copies = copies
        self.rows = copies * AGENTS
        self.observations = np.zeros((AGENTS, copies, SIZE), np.float32)
        self._seen = np.zeros((copies, 5, 5, 5), np.uint8)
        self._random = np.random.default_rng(0)

    def reset(self) -> np.ndarray:
        """Restart; returns observations [AGENTS, copies, SIZE]."""
        self._restart(np.ones(self.copies, np.bool_))
        self.env.begin_turn()
        return self._observe()

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Actions [AGENTS, copies] to observations, rewards and ends [AGENTS, copies]."""
        for agent in range(AGENTS):
            self.env.act(agent, actions[agent])
        result = self.env.end_turn()
        rewards, ends = result.rewards.T.copy(), result.truncated.T.copy()
        if ends.any():
            self._restart(ends[0])
        self.env.begin_turn()
        return self._observe(), rewards, ends

    def _restart(self, mask: np.ndarray) -> None:
        self.env.reset(self._random.integers(0, 2**63 - 1, self.copies), mask)

    def _observe(self) -> np.ndarray:
        for agent in range(AGENTS):
            self.env.observe(agent, self._seen)
            self.observations[agent] = self._seen.reshape(self.copies, SIZE)
        return self.observations
