"""A game that costs next to nothing, of any kind of observation and action: for `paths.py`."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
from torch import nn

from remuda.envs.vector_env import VectorEnv
from remuda.system.kernels import njit
from remuda.types import AgentSpec, Array, Bools, Floats, Integers, TurnResult

sys.path.append(str(Path(__file__).parent / "peer_programs"))
from pools import KEPT, LENGTH, Pool, done_of, seen_of


class PathGame(VectorEnv):
    """Agents that act at once, each in a separate game; what they do changes nothing."""

    def __init__(
        self, num_envs: int = 1, num_agents: int = 1, seen: str = "flat", does: str = "discrete"
    ) -> None:
        """Draw what they will see.

        Args:
            num_envs: copies.
            num_agents: in each.
            seen: which observations: flat, grid or screen.
            does: which actions: discrete, masked, several or continuous.
        """
        self.num_envs = num_envs
        self.agents = tuple(
            AgentSpec(f"agent_{i}", seen_of(seen), done_of(does), masked=does == "masked")
            for i in range(num_agents)
        )
        self.turn_groups = (tuple(range(num_agents)),)
        pool = Pool(seen, KEPT, 1)
        self._drawn = {
            what: drawn.reshape(KEPT * KEPT, *drawn.shape[2:])
            for what, drawn in (
                ("seen", pool.seen),
                ("allowed", pool.allowed),
                ("rewards", pool.rewards),
            )
        }
        self._seeds = np.zeros(num_envs, np.int64)
        self._turns = np.zeros(num_envs, np.int64)
        self._seen = self._drawn["seen"]
        self._at: Integers = np.zeros(num_envs, np.int64)
        """For each copy, the index of its observation."""
        self._rewards: Floats = np.zeros((num_envs, num_agents), np.float32)
        self._over: Bools = np.zeros((num_envs, num_agents), np.bool_)
        self._never: Bools = np.zeros((num_envs, num_agents), np.bool_)
        self.active = np.zeros((num_envs, num_agents), np.bool_)

    def reset(self, seeds: Integers, mask: Bools) -> None:
        """Begin an episode, which is LENGTH turns long on average."""
        self._seeds[mask], self._turns[mask] = seeds[mask], 0
        self.active[mask] = True
        self._at = (self._seeds + self._turns) % (KEPT * KEPT)

    def begin_turn(self) -> None:
        """Nothing moves."""

    def observe(self, agent: int, out: Array) -> None:  # noqa: ARG002
        """Show what was drawn."""
        self._seen.take(self._at, 0, out, "clip")

    def mask(self, agent: int, out: Bools) -> None:  # noqa: ARG002
        """Allow what was drawn."""
        out[...] = self._drawn["allowed"][self._at]

    def act(self, agent: int, actions: Integers) -> None:
        """Nothing comes of it."""

    def end_turn(self) -> TurnResult:
        """Give what was drawn."""
        _end_turn(
            self._drawn["rewards"],
            self._seeds,
            self._turns,
            self._at,
            self.active,
            self._rewards,
            self._over,
        )
        return TurnResult(self._rewards, self._over, self._never)


@njit(cache=True)
def _end_turn(
    drawn: Floats,
    seeds: Integers,
    turns: Integers,
    at: Integers,
    active: Bools,
    rewards: Floats,
    over: Bools,
) -> None:
    for copy in range(seeds.size):
        turns[copy] += 1
        ends = turns[copy] >= LENGTH // 2 + seeds[copy] % (LENGTH + 1)
        for agent in range(active.shape[1]):
            rewards[copy, agent] = drawn[at[copy]] if active[copy, agent] else 0.0
            over[copy, agent] = ends and active[copy, agent]
            active[copy, agent] &= not ends
        at[copy] = (seeds[copy] + turns[copy]) % (KEPT * KEPT)


def features(shape: tuple[int, ...]) -> nn.Module:
    """Two layers as a user writes them down."""
    layers = nn.Flatten(), nn.Linear(math.prod(shape), 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()
    return nn.Sequential(*layers)
