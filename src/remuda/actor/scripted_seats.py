"""Scripted policies on an actor's seats, from `env.scripted` or dealt from the population."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from remuda.envs.observation_rows import as_made
from remuda.envs.registry import RANDOM, Game
from remuda.envs.scripted import ScriptedPolicy
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError
from remuda.population.members.table_parts import Slots
from remuda.system.checkpoint.state import restore_rng, rng_state
from remuda.system.rng import make_rng
from remuda.types import Array, Bools, Integers, State


@dataclass(frozen=True)
class ScriptedMember:
    """A scripted policy that may sit on some seats of some copies."""

    title: str  # for messages
    plays: Mapping[int, tuple[ScriptedPolicy, np.random.Generator]]  # by agent
    slot: int | None = None  # in the population; None if `env.scripted` assigns its agents

    @property
    def rng(self) -> np.random.Generator:
        """The random generator that its seats share in a run."""
        return next(iter(self.plays.values()))[1]


class ScriptedSeats:
    """Seats of scripted policies, whose actions replace those of the networks.

    1. A policy is called for an agent only if it plays that agent in some copy. Its actions are
       used only in those copies.
    2. A policy is called right before its action takes effect, so it may read what earlier agents
       changed.
    3. Each member of a population has a separate random generator, so its draws depend only on its
       seats. All policies of `env.scripted` share one generator.
    """

    def __init__(self, env: VectorEnv, members: Sequence[ScriptedMember]) -> None:
        self._env, self._members = as_made(env), members
        # by agent, the policies that play it, each with a mask of the copies that they play
        self._seated: list[list[tuple[ScriptedMember, Bools]]] = []
        self.reserved = {agent for each in members if each.slot is None for agent in each.plays}
        self._bounds = [bounds_of(spec.action_space) for spec in env.agents]
        self.deal(np.full((env.num_envs, env.num_agents), -1))

    def deal(self, seated: Integers) -> None:
        """Find each member's seats; `seated` [num_envs, num_agents] contains population slots."""
        self._seated = [[] for _ in self._env.agents]
        for member in self._members:
            if member.slot is None:
                for agent in member.plays:
                    self._seated[agent].append((member, np.ones(len(seated), np.bool_)))
                continue
            dealt: Bools = seated == member.slot
            for agent in np.flatnonzero(dealt.any(0)).tolist():
                self._seated[agent].append((member, dealt[:, agent]))

    def chosen(self, agent: int, observations: Array, actions: Array) -> Array:
        """Return `actions` with scripted policies' choices; raise ConfigError for invalid ones."""
        if not self._seated[agent]:
            return actions
        actions = actions.copy()
        for member, copies in self._seated[agent]:
            policy, rng = member.plays[agent]
            chosen = np.asarray(policy(self._env, agent, observations, rng))
            acts: Bools = copies & self._env.active[:, agent]
            self._check(member.title, agent, chosen, actions.shape, acts)
            actions[acts] = chosen[acts]
        return actions

    def state(self) -> State:
        return {member.title: rng_state(member.rng) for member in self._members}

    def restore(self, state: State) -> None:
        for member in self._members:
            restore_rng(member.rng, state[member.title])

    def _check(
        self, title: str, agent: int, chosen: Array, shape: tuple[int, ...], acts: Bools
    ) -> None:
        """Raise a ConfigError for invalid actions, which compiled environments do not check."""
        spec, (low, ends) = self._env.agents[agent], self._bounds[agent]
        if chosen.shape != shape or chosen.dtype.kind not in "biuf":
            raise ConfigError(
                f"{title} returns {chosen.dtype} {chosen.shape} for {spec.name}; it must return "
                f"an action for each copy, {shape}"
            )
        valid = (chosen[acts] >= low) & (chosen[acts] < ends)
        if not valid.all():
            raise ConfigError(
                f"{title} chooses {chosen[acts][~valid].ravel()[0]} for {spec.name}, whose "
                f"actions are {spec.action_space}; it must return one of these for each copy"
            )


def bounds_of(space: Space[object]) -> tuple[Array, Array]:
    """Return the lower and exclusive upper bounds of a space's actions: [*action_shape] each."""
    if isinstance(space, Discrete):
        return np.array(space.start), np.array(space.start + space.n)
    if isinstance(space, MultiDiscrete):
        return space.start, space.start + space.nvec
    assert isinstance(space, Box), f"{space} has no bounds"
    return np.full(space.shape, -np.inf), np.full(space.shape, np.inf)


def reserved_members(
    game: Game, env: VectorEnv, scripted: Mapping[str, str], rng: np.random.Generator
) -> list[ScriptedMember]:
    """Return the policies of `env.scripted`, which always play their agents."""
    names, found = [spec.name for spec in env.agents], []
    for agent, policy_name in scripted.items():
        if agent not in names:
            raise ConfigError(
                f"{game.name} has no agent {agent!r} to be scripted; it has {', '.join(names)}"
            )
        plays = {names.index(agent): (game.policy(policy_name), rng)}
        found.append(ScriptedMember(f"env.scripted.{agent}", plays))
    return found


def dealt_members(
    policies: Mapping[str, ScriptedPolicy],
    slots: Slots,
    num_agents: int,
    seed: int,
    purpose: Sequence[str],
) -> list[ScriptedMember]:
    """Return members of a population that may play any agent.

    `seed`, `purpose`: name their random generators.
    """
    found = []
    for name, policy in policies.items():
        plays = dict.fromkeys(range(num_agents), (policy, make_rng(seed, *purpose, name)))
        found.append(ScriptedMember(f"population.scripted.{name}", plays, slots.of(name)))
    return found


def load_scripted(
    game: Game, scripted: Mapping[str, str], workers: int = 1
) -> dict[str, ScriptedPolicy]:
    """Return each scripted member's policy; raise ConfigError for unknown or unusable ones."""
    found: dict[str, ScriptedPolicy] = {}
    for name, policy_name in scripted.items():
        key = f"population.scripted.{name}"
        if workers > 1 and policy_name != RANDOM and policy_name in game.scripted:
            raise ConfigError(
                f"{key}: {policy_name} reads the environment, whose copies are in other processes "
                f"with env.workers {workers}; set env.workers 1"
            )
        try:
            found[name] = game.policy(policy_name)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
    return found
