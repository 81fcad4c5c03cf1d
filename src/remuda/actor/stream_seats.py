"""The base class of seats whose policies change from match to match.

A *stream* is one agent of one copy. In `StreamArrays`, which hold agents with equal spaces, a
stream's row is `i * num_envs + copy`, where `i` is the agent's position among these agents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from remuda.actor.policy_group import PolicyGroup
from remuda.actor.scripted_seats import ScriptedSeats
from remuda.actor.seats import Seats
from remuda.actor.stream_arrays import StreamArrays, columns_of
from remuda.envs.checks import NONE, first_strange
from remuda.envs.vector_env import VectorEnv
from remuda.types import Bools


class _AdjacentAgents:
    """Agents of a turn group that are adjacent in `StreamArrays`."""

    def __init__(
        self,
        env: VectorEnv,
        arrays: StreamArrays,
        agents: Sequence[int],
        policy_groups: Sequence[PolicyGroup],
    ) -> None:
        self.arrays, self.agents = arrays, columns_of(tuple(agents))
        positions = slice(arrays.position_of[agents[0]], arrays.position_of[agents[-1]] + 1)
        self.streams = slice(positions.start * env.num_envs, positions.stop * env.num_envs)
        self.acted = arrays.acted[positions]
        self.policy_groups = [group for group in policy_groups if group.arrays is arrays]
        self._active = env.active.T[self.agents] if isinstance(self.agents, slice) else None

    def active(self, env: VectorEnv) -> Bools:
        return env.active.T[self.agents] if self._active is None else self._active


class StreamSeats(Seats):
    """Seats whose streams are gathered by policy before each forward pass."""

    def __init__(
        self,
        env: VectorEnv,
        policy_groups: Sequence[PolicyGroup],
        all_arrays: Iterable[StreamArrays],
        scripted: ScriptedSeats | None,  # chooses for members without a network
    ) -> None:
        self.env, self.policy_groups, self._scripted = env, policy_groups, scripted
        self._all_arrays = tuple(all_arrays)
        self._arrays_of = {agent: arrays for arrays in self._all_arrays for agent in arrays.agents}
        self._observations = [
            arrays.observations[arrays.position_of[agent]]
            for agent, arrays in sorted(self._arrays_of.items())
        ]
        self._masked = [spec.masked for spec in env.agents]
        self.acted: Bools = np.zeros((env.num_envs, env.num_agents), np.bool_)
        self._adjacent: dict[int, list[_AdjacentAgents]] = {}

    def observe(self, group: int) -> None:
        env = self.env
        for agent in self.groups[group]:
            env.observe(agent, self._observations[agent])
            if self._masked[agent]:
                arrays = self._arrays_of[agent]
                env.mask(agent, arrays.masks[arrays.streams_of(agent)])
        for part in self._parts(group):
            acts, arrays = part.acted, part.arrays
            np.copyto(acts, part.active(env))
            self.acted.T[part.agents] = acts
            for policy_group in part.policy_groups:
                found = policy_group.push(part.streams)
                if found != NONE and self.checks is not None:
                    self._check_observation(arrays, part.streams.start + found)
            if not part.policy_groups and self.checks is not None:  # no network plays them
                rows = arrays.observations_flat[part.streams]
                observations = arrays.row.numbers(rows, arrays.row.own_size)
                if observations.dtype.kind == "f":
                    found = first_strange(observations, acts.reshape(-1))
                    if found != NONE:
                        self._check_observation(arrays, part.streams.start + found)
        if self.checks is None:
            return
        for agent in self.groups[group]:
            if self._masked[agent]:
                arrays = self._arrays_of[agent]
                masks = arrays.masks[arrays.streams_of(agent)]
                self.checks.masked(agent, masks, arrays.acted[arrays.position_of[agent]])

    def _check_observation(self, arrays: StreamArrays, stream: int) -> None:
        assert self.checks is not None
        position, copy = divmod(stream, self.env.num_envs)
        rows = arrays.row.numbers(arrays.observations[position], arrays.row.own_size)
        self.checks.observed(arrays.agents[position], rows, copy)

    def _parts(self, group: int) -> list[_AdjacentAgents]:
        found = self._adjacent.get(group)
        if found is not None:
            return found
        adjacent: list[tuple[StreamArrays, list[int]]] = []
        for arrays in self._all_arrays:
            for agent in (a for a in arrays.agents if a in self.groups[group]):
                last = adjacent[-1] if adjacent else None
                position = arrays.position_of[agent]
                if last and last[0] is arrays and arrays.position_of[last[1][-1]] + 1 == position:
                    last[1].append(agent)
                else:
                    adjacent.append((arrays, [agent]))
        self._adjacent[group] = [
            _AdjacentAgents(self.env, arrays, agents, self.policy_groups)
            for arrays, agents in adjacent
        ]
        return self._adjacent[group]

    def choose(self, group: int, rng: np.random.Generator | None = None) -> None:
        for policy_group in self.policy_groups:
            policy_group.choose(group, rng)

    def act(self, agent: int) -> None:
        arrays = self._arrays_of[agent]
        actions = arrays.chosen(agent)
        if self._scripted is not None:
            observations = arrays.own_observations(agent)
            actions = self._scripted.chosen(agent, observations, actions)
        self.env.act(agent, actions)

    def _forget(self, ended: Bools) -> None:
        """Reset frames and recurrent states of the streams `ended` [num_agents, num_envs]."""
        for arrays in self._all_arrays:
            streams = arrays.by_stream(ended)
            for policy_group in self.policy_groups:
                if policy_group.arrays is arrays:
                    policy_group.forget(streams)

    def _forget_copies(self, over: Bools) -> None:
        """Reset frames and recurrent states of all agents in the copies `over` [num_envs]."""
        self._forget(np.repeat(over[None], self.env.num_agents, 0))
