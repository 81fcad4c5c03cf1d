"""Actions, rewards and ends of one agent's steps in all copies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remuda.types import AgentSpec, Array, Bools, Floats, Integers

NONE = -1  # no step in this episode yet
TERMINATED, TRUNCATED = 1, 2


class Steps(NamedTuple):
    """T steps of one agent in E trajectories, each of which ends with its last step."""

    observations: Array  # [T, *shape], as the `VectorEnv` writes them
    masks: Bools | None  # [T, mask_size]
    actions: Array  # [T, *shape]
    rewards: Floats  # [T]
    terminations: Bools  # [T]
    truncations: Bools  # [T]
    final_observations: Array  # [E, *shape]
    episodes: Integers  # [E] index of the episode of each trajectory


class StepLog:
    """The steps of one agent, in the order in which it acted.

    1. Rewards are credited to the agent's last action. Those before its first action in an episode
       are dropped.
    2. A trajectory ends where the agent's episode is terminated or truncated; an agent may have
       several trajectories in an episode.
    """

    def __init__(self, spec: AgentSpec, num_envs: int) -> None:
        self.actions: list[Array] = []
        self.rewards: Floats = np.zeros(0, np.float32)
        self.ends = np.zeros(0, np.int8)
        self.final_observations: dict[int, Array] = {}  # by step
        self._count = 0
        self._rows: Integers = np.zeros(0, np.int64)
        self._last: Integers = np.full(num_envs, NONE)  # [num_envs] each copy's newest step
        self._credited = np.zeros(num_envs, np.float32)  # [num_envs] in this turn
        space = spec.observation_space
        self._observed: Array = np.zeros((num_envs, *(space.shape or ())), space.dtype)

    def reset(self, copies: Bools) -> None:
        self._last[copies] = NONE

    def begin_turn(self) -> None:
        self._rows = np.zeros(0, np.int64)
        self._credited[:] = 0.0

    def observe(self, rows: Integers, rewards_so_far: Floats | None) -> None:
        """Begin a step in the copies `rows`; credit rewards [num_envs] to the step before."""
        if rewards_so_far is not None:
            self._credit(rewards_so_far)
        self._rows = rows
        self._last[rows] = self._count + np.arange(len(rows))
        self._count += len(rows)
        if self._count > len(self.rewards):
            more = max(self._count, 1024)
            self.rewards = np.concatenate((self.rewards, np.zeros(more, np.float32)))
            self.ends = np.concatenate((self.ends, np.zeros(more, np.int8)))

    def act(self, actions: Array) -> None:
        """Record the actions [num_envs, *shape] of the copies that have just observed."""
        if len(self._rows):
            self.actions.append(actions[self._rows].copy())

    def end_turn(self, rewards: Floats, terminated: Bools, truncated: Bools) -> Bools:
        """Record the outcome of a turn; return in which copies a trajectory ended: [num_envs]."""
        self._credit(rewards)
        for ended, kind in ((terminated, TERMINATED), (truncated, TRUNCATED)):
            self.ends[self._last[ended & (self._last != NONE)]] = kind
        over: Bools = (terminated | truncated) & (self._last != NONE)
        return over

    def close(self, over: Bools, final_observations: Array) -> None:
        """Record the final observations [num_envs, *shape] of the copies `over`."""
        for copy in np.flatnonzero(over):
            self.final_observations[int(self._last[copy])] = final_observations[copy].copy()
        self._last[over] = NONE

    def _credit(self, rewards: Floats) -> None:
        """Credit the rewards of this turn [num_envs] that are not credited yet."""
        known = self._last != NONE
        self.rewards[self._last[known]] += (rewards - self._credited)[known]
        self._credited[:] = rewards

    def room(self) -> Array:
        """Return a buffer for observations: [num_envs, *shape]."""
        return self._observed
