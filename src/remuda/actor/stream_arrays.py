"""Arrays of observations, actions and results by stream (one agent of one environment copy)."""

from __future__ import annotations

import math

import numpy as np

from remuda.envs.observation_rows import ObservationRow
from remuda.envs.vector_env import VectorEnv
from remuda.experience.ring_block import Choices, TurnOutcomes
from remuda.policies.actions import Actions
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers


class StreamArrays:
    """Arrays of the streams of agents with equal spaces, which the same policies may play."""

    def __init__(
        self, env: VectorEnv, agents: tuple[int, ...], actions: Actions, masked: bool
    ) -> None:
        self.agents, self.num_envs = agents, env.num_envs
        first, num_streams = env.agents[agents[0]], len(agents) * env.num_envs
        space, at = first.observation_space, (len(agents), env.num_envs)
        self.row = ObservationRow(space)  # type: ignore[arg-type]
        size = math.prod(space.shape)  # type: ignore[arg-type]
        self.observations: Array = np.zeros((*at, *space.shape), space.dtype)  # type: ignore[misc]
        self.final_observations = self.observations.copy()
        self.observations_flat = self.observations.reshape(num_streams, size)
        self.final_observations_flat = self.final_observations.reshape(num_streams, size)
        self.acted: Bools = np.zeros(at, np.bool_)
        # rewards of this turn before the observation; zeros if the environment reports none
        self.rewards_before: Floats = np.zeros(at, np.float32)
        self.rewards_before_flat = self.rewards_before.reshape(num_streams)
        self.rewards: Floats = np.zeros(num_streams, np.float32)  # of the turn
        # whether the stream's episode terminated
        self.terminated: Bools = np.zeros(num_streams, np.bool_)
        self.truncated: Bools = self.terminated.copy()  # whether the episode was truncated
        self._agents: Integers = np.array(agents, np.int64)
        nothing = np.zeros((env.num_envs, len(env.agents)), np.bool_)
        self.take_result(nothing.astype(np.float32), nothing, nothing)  # compiles `_take_result`
        self.actions: Array = np.zeros((num_streams, actions.size), actions.dtype)
        self.log_probs: Floats = np.zeros(num_streams, np.float32)
        mask_size = actions.mask_size if masked else 0
        self.masks: Bools = np.ones((num_streams, mask_size), np.bool_)
        self.final_masks = self.masks.copy()  # allowed actions at truncated episodes' ends
        self._action_shape = (env.num_envs, *(first.action_space.shape or ()))
        self._actions = actions
        self._columns = columns_of(agents)
        # by agent, its position among these agents
        self.position_of = {agent: position for position, agent in enumerate(agents)}
        # by agent, its view of `actions`, if these are passed to the environment unchanged
        self._action_views: dict[int, Array] = {}
        for agent in agents:
            chosen = self.chosen(agent)
            if np.shares_memory(chosen, self.actions):
                self._action_views[agent] = chosen

    def own_observations(self, agent: int) -> Array:
        """Return an agent's observations as the environment wrote them: [num_envs, *shape]."""
        return self.row.observations(self.observations[self.position_of[agent]])

    def streams_of(self, agent: int) -> slice:
        begin = self.position_of[agent] * self.num_envs
        return slice(begin, begin + self.num_envs)

    def chosen(self, agent: int) -> Array:
        view = self._action_views.get(agent)
        if view is not None:
            return view
        actions = self._actions.within_bounds(self.actions[self.streams_of(agent)])
        return actions.reshape(self._action_shape)

    def take_result(self, rewards: Floats, terminated: Bools, truncated: Bools) -> None:
        """Copy the results of a turn, [num_envs, num_agents] each, to streams."""
        turn = (rewards, terminated, truncated)
        _take_result(*turn, self._agents, self.rewards, self.terminated, self.truncated)

    def choices(self, recurrent_states: Floats, versions: Integers) -> Choices:
        """Return the arrays of decisions, with these recurrent states and weight versions."""
        return Choices(
            self.acted.reshape(-1),
            self.observations_flat,
            self.actions,
            self.log_probs,
            self.masks,
            recurrent_states,
            versions,
            self.rewards_before_flat,
        )

    @property
    def results(self) -> TurnOutcomes:
        return TurnOutcomes(
            self.acted.reshape(-1),
            self.rewards,
            self.terminated,
            self.truncated,
            self.final_observations_flat,
            self.final_masks,
        )

    def by_stream(self, array: Array) -> Array:
        """Return these agents' rows of [num_agents, num_envs], flattened to [num_streams]."""
        flat: Array = array[self._columns].reshape(-1)
        return flat


def columns_of(agents: tuple[int, ...]) -> slice | Integers:
    """Return agents as a slice if they are consecutive, else as an index array."""
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
    num_envs = rewards.shape[0]
    for i in range(agents.size):
        for env in range(num_envs):
            stream, agent = i * num_envs + env, agents[i]
            to_rewards[stream] = rewards[env, agent]
            to_terminated[stream] = terminated[env, agent]
            to_truncated[stream] = truncated[env, agent]
