"""Agents that see and do the same kind of things, and the arrays of their streams."""

from __future__ import annotations

import math

import numpy as np

from remuda.envs.vector_env import VectorEnv
from remuda.kernels import njit
from remuda.policies.actions import Actions
from remuda.types import Array, Bools, Floats, Integers


class Kind:
    """Agents of equal spaces, so that the same policies may play them, and their streams."""

    def __init__(
        self, env: VectorEnv, agents: tuple[int, ...], actions: Actions, masked: bool
    ) -> None:
        """Make room for their streams.

        Args:
            env: the copies of the game.
            agents: those of this kind.
            actions: of the policies that may play them.
            masked: whether the game tells what they may do.
        """
        self.agents, self.num_envs = agents, env.num_envs
        first, num_streams = env.agents[agents[0]], len(agents) * env.num_envs
        sees, at = first.observation_space, (len(agents), env.num_envs)
        size = math.prod(sees.shape)  # type: ignore[arg-type]
        self.observations: Array = np.zeros((*at, *sees.shape), sees.dtype)  # type: ignore[misc]
        self.final_observations = self.observations.copy()
        self.observations_flat = self.observations.reshape(num_streams, size)
        self.final_observations_flat = self.final_observations.reshape(num_streams, size)
        self.acted: Bools = np.zeros(at, np.bool_)
        self.rewards_before: Floats = np.zeros(at, np.float32)
        """What each was given in this turn before it observed; zeros if the game says nothing."""
        self.rewards_before_flat = self.rewards_before.reshape(num_streams)
        self.rewards: Floats = np.zeros(num_streams, np.float32)
        """What each stream was given in the turn..."""
        self.terminated: Bools = np.zeros(num_streams, np.bool_)
        """...and whether its episode ended there..."""
        self.truncated: Bools = self.terminated.copy()
        """...or was cut off."""
        self._agents: Integers = np.array(agents, np.int64)
        nothing = np.zeros((env.num_envs, len(env.agents)), np.bool_)
        self.take_result(nothing.astype(np.float32), nothing, nothing)  # so that it is compiled
        self.actions: Array = np.zeros((num_streams, actions.size), actions.dtype)
        self.log_probs: Floats = np.zeros(num_streams, np.float32)
        mask_size = actions.mask_size if masked else 0
        self.masks: Bools = np.ones((num_streams, mask_size), np.bool_)
        self.final_masks = self.masks.copy()
        """What is allowed where an episode was cut off."""
        self._action_shape = (env.num_envs, *(first.action_space.shape or ()))
        self._actions = actions
        self._columns = columns_of(agents)
        self.place_of = {agent: place for place, agent in enumerate(agents)}
        """By agent, its place among those of this kind."""
        self._as_they_stand: dict[int, Array] = {}
        """By agent, its actions in `actions`, if the environment takes them as they are."""
        for agent in agents:
            found = self.chosen(agent)
            if np.shares_memory(found, self.actions):
                self._as_they_stand[agent] = found

    def streams_of(self, agent: int) -> slice:
        """The streams of one agent."""
        begin = self.place_of[agent] * self.num_envs
        return slice(begin, begin + self.num_envs)

    def chosen(self, agent: int) -> Array:
        """What an agent does, as the environment takes it."""
        found = self._as_they_stand.get(agent)
        if found is not None:
            return found
        actions = self._actions.within_bounds(self.actions[self.streams_of(agent)])
        return actions.reshape(self._action_shape)

    def take_result(self, rewards: Floats, terminated: Bools, truncated: Bools) -> None:
        """Take what came of a turn, [num_envs, num_agents] each, by stream."""
        turn = (rewards, terminated, truncated)
        _take_result(*turn, self._agents, self.rewards, self.terminated, self.truncated)

    def by_stream(self, array: Array) -> Array:
        """An array [num_agents, num_envs] of a turn as [num_streams]."""
        flat: Array = array[self._columns].reshape(-1)
        return flat


def columns_of(agents: tuple[int, ...]) -> slice | Integers:
    """Agents as an index that copies nothing, if they are neighbours."""
    if agents == tuple(range(agents[0], agents[0] + len(agents))):
        return slice(agents[0], agents[0] + len(agents))
    return np.array(agents)


@njit(cache=True)
def _take_result(
    rewards: Floats,
    terminated: Bools,
    truncated: Bools,
    agents: Integers,
    to_rewards: Floats,
    to_terminated: Bools,
    to_truncated: Bools,
) -> None:
    """See `Kind.take_result`."""
    num_envs = rewards.shape[0]
    for i in range(agents.size):
        for env in range(num_envs):
            stream, agent = i * num_envs + env, agents[i]
            to_rewards[stream] = rewards[env, agent]
            to_terminated[stream] = terminated[env, agent]
            to_truncated[stream] = truncated[env, agent]
