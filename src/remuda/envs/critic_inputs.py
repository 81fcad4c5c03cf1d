"""Inputs of centralised critics, stored behind each agent's own observation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from remuda.envs.observation_parts import Part, PartsBox, parts_of, size_of
from remuda.envs.recorded import Wrapped
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ContractError
from remuda.system.checkpoint.fitting import branch, fitting
from remuda.types import AgentSpec, Array, Bools, Integers, State, TurnResult

JOINT, STATE = "joint", "state"


class CriticBox(PartsBox):
    """A flat `Box`: an agent's own observation, then the inputs of its critic."""

    def __init__(self, own: spaces.Box, critic: CriticParts) -> None:
        kind, parts = critic.dtype, list(parts_of(own))
        for part in critic.parts:
            parts.append(part._replace(start=parts[-1].start + parts[-1].size))
        limits = (-np.inf, np.inf) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)
        low, high = (np.full(size_of(own) + critic.size, limit, kind) for limit in limits)
        super().__init__(low, high, tuple(parts))
        self.own = own


def team_of(agents: Sequence[AgentSpec], agent: int) -> list[int]:
    """Return the other agents of a joint observation, in order.

    They are the agent's team; an agent without a team has all agents beside it. Agents that observe
    the same space come together, those like `agent` first, so that agents that share a policy have
    critics with equal inputs. Each kind begins with the first agent after `agent`.
    """
    around = [*range(agent + 1, len(agents)), *range(agent)]
    team = agents[agent].team
    others = [other for other in around if not team or agents[other].team == team]
    kinds = [agents[agent].observation_space]
    for spec in agents:
        if spec.observation_space not in kinds:
            kinds.append(spec.observation_space)
    return sorted(others, key=lambda other: kinds.index(agents[other].observation_space))


class CriticParts(NamedTuple):
    """The inputs of a critic beyond its agent's observation."""

    parts: tuple[Part, ...]
    dtype: np.dtype[Any]  # of a row with both

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


def critic_parts(agents: Sequence[AgentSpec], agent: int, kind: str) -> CriticParts:
    """Return what a critic gets beyond its agent's observation; `kind` is `joint` or `state`.

    Each agent of a joint observation adds a flag: it is active.
    """
    added = [agents[agent].state_space]
    if kind != STATE:
        added = [agents[other].observation_space for other in team_of(agents, agent)]
    parts: list[Part] = []
    for space in added:
        if space is not None:
            parts += (part._replace(name="") for part in parts_of(space))
        if kind != STATE:
            parts.append(Part("", 0, (1,), is_pixels=False, are_bytes=True))
    kept = [agents[agent].observation_space, *(space for space in added if space is not None)]
    dtype = np.result_type(*(space.dtype for space in kept))
    return CriticParts(tuple(parts), np.dtype(np.uint8) if dtype.kind == "b" else dtype)


class CriticInputs(Wrapped):
    """An environment whose observations end with the inputs of centralised critics.

    1. An agent's own observation comes first, so a policy acts on the first columns alone.
    2. `joint` adds the newest observations of the other agents of its team: those of this turn, or
       of their last turn if they observe later. Behind each is 1 if the agent is active. If it is
       not, both are 0. At the end of a truncated episode, agents count as active.
    3. `state` adds what `VectorEnv.observe_state` writes.
    """

    def __init__(self, game: VectorEnv, kind: str) -> None:
        super().__init__(game)
        self._kind, inner = kind, game.agents
        self._spaces = [agent.observation_space for agent in inner]
        self._sizes = [size_of(space) for space in self._spaces]
        self.agents = tuple(
            replace(spec, observation_space=CriticBox(space, critic_parts(inner, agent, kind)))  # type: ignore[arg-type]
            for agent, (spec, space) in enumerate(zip(inner, self._spaces, strict=True))
        )
        at = self.num_envs
        self._newest: list[Array] = [np.zeros((at, *s.shape), s.dtype) for s in self._spaces]  # type: ignore[misc]
        # whether each agent was active when it observed
        self._flags: Bools = np.zeros((len(inner), at), np.bool_)
        self._cut: Bools = np.zeros((at, len(inner)), np.bool_)  # truncated in this turn
        self._states = [agent.state_space for agent in inner]
        self._state: list[Array] = [
            np.zeros((at, *space.shape), space.dtype) if space is not None else np.zeros((at, 0))  # type: ignore[misc]
            for space in self._states
        ]
        self._team = [team_of(inner, agent) for agent in range(len(inner))]
        self._fresh: set[int] = set()  # agents whose observations are up to date
        # [num_envs] between turns: copies where an episode ended or began; None: during a turn
        self._kept: Bools | None = np.ones(at, np.bool_)
        self._room, self._room_flags = [a.copy() for a in self._newest], self._flags.copy()

    def reset(self, seeds: Integers, mask: Bools) -> None:
        self._fresh.clear()
        for newest in self._newest:
            newest[mask] = 0
        self._flags[:, mask] = self._cut[mask] = False
        self.game.reset(seeds, mask)

    def begin_turn(self) -> None:
        self._fresh.clear()
        self._cut[:], self._kept = False, None
        self.game.begin_turn()

    def act(self, agent: int, actions: Array) -> None:
        self._fresh.clear()
        self.game.act(agent, actions)

    def end_turn(self) -> TurnResult:
        self._fresh.clear()
        result = self.game.end_turn()
        self._cut[:] = result.truncated
        self._kept = np.asarray((result.terminated | result.truncated).any(1))
        return result

    def observe(self, agent: int, out: Array) -> None:
        size = self._sizes[agent]
        if self._kind == STATE:
            newest, state = self._newest[agent], self._state[agent]
            self.game.observe(agent, newest)
            if self._states[agent] is not None:
                self.game.observe_state(agent, state)
                self._check(agent, state)
            out[:, :size] = newest.reshape(len(newest), -1)
            out[:, size:] = state.reshape(len(state), -1)
            return
        if agent not in self._fresh:
            self._observe_together(agent)
        seen, flags = self._newest, self._flags
        if self._kept is not None:
            seen, flags = self._room, self._room_flags
        out[:, :size] = seen[agent].reshape(self.num_envs, -1)
        for other in self._team[agent]:
            end = size + self._sizes[other]
            out[:, size : end + 1] = 0
            there = flags[other]
            out[there, size:end] = seen[other].reshape(self.num_envs, -1)[there]
            out[there, end] = 1
            size = end + 1

    def state(self) -> State:
        """Return the game's state, and the observations that agents of other groups still see."""
        newest = {str(agent): newest.copy() for agent, newest in enumerate(self._newest)}
        return {"game": self.game.state(), "newest": newest, "flags": self._flags.copy()}

    def restore(self, state: State) -> None:
        newest = branch(state, "newest")
        for agent, array in enumerate(self._newest):
            array[...] = fitting(newest, str(agent), array)
        self._flags[...] = fitting(state, "flags", self._flags)
        self._fresh.clear()
        self.game.restore(branch(state, "game"))

    def _observe_together(self, agent: int) -> None:
        """Read the observations of all agents of this agent's group.

        Between turns, read those of all agents, but keep them only where an episode ended: what
        other copies show later must not depend on it.
        """
        if self._kept is None:
            for other in next(group for group in self.game.turn_groups if agent in group):
                self.game.observe(other, self._newest[other])
                self._flags[other] = self.active[:, other]
                self._fresh.add(other)
            return
        for other in range(self.num_agents):
            self.game.observe(other, self._room[other])
            self._room_flags[other] = self.active[:, other] | self._cut[:, other]
            self._newest[other][self._kept] = self._room[other][self._kept]
            self._flags[other, self._kept] = self._room_flags[other, self._kept]
            self._fresh.add(other)

    def _check(self, agent: int, state: Array) -> None:
        if not self.game.check or state.dtype.kind != "f":
            return
        with np.errstate(over="ignore"):
            finite = np.isfinite(state.reshape(len(state), -1).astype(np.float32)).all(1)
        if not finite.all():
            raise ContractError(
                f"the game breaks its contract: the state of {self.agents[agent].name} in copy "
                f"{self.first_copy + int(finite.argmin())} contains a number that is not finite as "
                "float32, which its critic would learn from; mend the state of the environment"
            )
