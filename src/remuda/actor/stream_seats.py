"""The base class of seats whose policies change from match to match.

A *stream* is one agent of one copy. In the arrays of agents with equal spaces (a *kind* of seat),
a stream's row is `i * num_envs + copy`, where `i` is the agent's position among these agents.
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


class _Stretch:
    """Agents of a turn group that are adjacent in the arrays of a kind."""

    def __init__(
        self,
        env: VectorEnv,
        kind: StreamArrays,
        agents: Sequence[int],
        policy_groups: Sequence[PolicyGroup],
    ) -> None:
        self.kind, self.agents = kind, columns_of(tuple(agents))
        places = slice(kind.place_of[agents[0]], kind.place_of[agents[-1]] + 1)
        self.streams = slice(places.start * env.num_envs, places.stop * env.num_envs)
        self.acted = kind.acted[places]
        self.policy_groups = [group for group in policy_groups if group.kind is kind]
        self._active = env.active.T[self.agents] if isinstance(self.agents, slice) else None

    def active(self, env: VectorEnv) -> Bools:
        return env.active.T[self.agents] if self._active is None else self._active


class StreamSeats(Seats):
    """Seats whose streams are observed by kind of seat and gathered by policy for inference."""

    def __init__(
        self,
        env: VectorEnv,
        policy_groups: Sequence[PolicyGroup],
        kinds: Iterable[StreamArrays],
        scripted: ScriptedSeats | None,  # chooses for members without a network
    ) -> None:
        self.env, self.policy_groups, self._scripted = env, policy_groups, scripted
        self._kinds = tuple(kinds)
        self._kind_of = {agent: kind for kind in self._kinds for agent in kind.agents}
        self._observations = [
            kind.observations[kind.place_of[agent]] for agent, kind in sorted(self._kind_of.items())
        ]
        self._masked = [spec.masked for spec in env.agents]
        self.acted: Bools = np.zeros((env.num_envs, env.num_agents), np.bool_)
        self._stretches: dict[int, list[_Stretch]] = {}

    def observe(self, group: int) -> None:
        env = self.env
        for agent in self.groups[group]:
            env.observe(agent, self._observations[agent])
            if self._masked[agent]:
                kind = self._kind_of[agent]
                env.mask(agent, kind.masks[kind.streams_of(agent)])
        for part in self._parts(group):
            acts, kind = part.acted, part.kind
            np.copyto(acts, part.active(env))
            self.acted.T[part.agents] = acts
            for policy_group in part.policy_groups:
                found = policy_group.push(part.streams)
                if found != NONE and self.checks is not None:
                    self._tell_of(kind, part.streams.start + found)
            if not part.policy_groups and self.checks is not None:  # no network plays them
                observations = kind.observations_flat[part.streams]
                if observations.dtype.kind == "f":
                    found = first_strange(observations, acts.reshape(-1))
                    if found != NONE:
                        self._tell_of(kind, part.streams.start + found)
        if self.checks is None:
            return
        for agent in self.groups[group]:
            if self._masked[agent]:
                kind = self._kind_of[agent]
                masks = kind.masks[kind.streams_of(agent)]
                self.checks.masked(agent, masks, kind.acted[kind.place_of[agent]])

    def _tell_of(self, kind: StreamArrays, stream: int) -> None:
        assert self.checks is not None
        place, copy = divmod(stream, self.env.num_envs)
        self.checks.observed(kind.agents[place], kind.observations[place], copy)

    def _parts(self, group: int) -> list[_Stretch]:
        found = self._stretches.get(group)
        if found is not None:
            return found
        stretches: list[tuple[StreamArrays, list[int]]] = []
        for kind in self._kinds:
            for agent in (a for a in kind.agents if a in self.groups[group]):
                last = stretches[-1] if stretches else None
                place = kind.place_of[agent]
                if last and last[0] is kind and kind.place_of[last[1][-1]] + 1 == place:
                    last[1].append(agent)
                else:
                    stretches.append((kind, [agent]))
        self._stretches[group] = [
            _Stretch(self.env, kind, agents, self.policy_groups) for kind, agents in stretches
        ]
        return self._stretches[group]

    def choose(self, group: int, rng: np.random.Generator | None = None) -> None:
        for policy_group in self.policy_groups:
            policy_group.choose(group, rng)

    def act(self, agent: int) -> None:
        """Let a scripted policy, if any, choose; apply the agent's actions to the environment."""
        kind = self._kind_of[agent]
        actions = kind.chosen(agent)
        if self._scripted is not None:
            observations = kind.observations[kind.place_of[agent]]
            actions = self._scripted.chosen(agent, observations, actions)
        self.env.act(agent, actions)

    def _forget(self, ended: Bools) -> None:
        """Reset frames and recurrent states of the streams `ended` [num_agents, num_envs]."""
        for kind in self._kinds:
            streams = kind.by_stream(ended)
            for policy_group in self.policy_groups:
                if policy_group.kind is kind:
                    policy_group.forget(streams)

    def _forget_copies(self, over: Bools) -> None:
        """Reset frames and recurrent states of all agents in the copies `over` [num_envs]."""
        self._forget(np.repeat(over[None], self.env.num_agents, 0))
