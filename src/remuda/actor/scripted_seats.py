"""Scripted members of a population, on the seats that they are dealt."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from remuda.checkpoint.state import restore_rng, rng_state
from remuda.envs.registry import RANDOM, Game
from remuda.envs.scripted import ScriptedPolicy
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError
from remuda.population.table import Table
from remuda.rng import make_rng
from remuda.types import Array, Bools, Integers, State


class ScriptedSeats:
    """Chooses for scripted members, beside the networks that choose for all others.

    1. A policy is called for an agent in a turn only if it sits there in some copy, and its choices
       count in these copies alone.
    2. It is called when its action takes effect, so it may look at what agents before it did, as
       the policies of `env.scripted` do.
    3. Each has its own random generator: its draws depend on its own seats only.
    """

    def __init__(
        self,
        env: VectorEnv,
        table: Table,
        policies: Mapping[str, ScriptedPolicy],
        *,
        seed: int,
        purpose: str,
    ) -> None:
        """Start without seats; `policies` are by scripted member, and `purpose` names rngs."""
        self._env, self._policies = env, dict(policies)
        self._place_of = {name: table.places.of(name) for name in self._policies}
        self._rng = {name: make_rng(seed, purpose, "scripted", name) for name in self._policies}
        # by agent, the members that play it, and in which copies
        self._seated: list[list[tuple[str, Bools]]] = [[] for _ in env.agents]
        self._bounds = [bounds_of(spec.action_space) for spec in env.agents]

    def deal(self, seated: Integers) -> None:
        """Find the members on the newly dealt seats [num_envs, num_agents]."""
        self._seated = [[] for _ in self._seated]
        for name, place in self._place_of.items():
            theirs: Bools = seated == place
            for agent in np.flatnonzero(theirs.any(0)).tolist():
                self._seated[agent].append((name, theirs[:, agent]))

    def chosen(self, agent: int, observations: Array, actions: Array) -> Array:
        """Return an agent's actions; raise ConfigError where a policy returns invalid ones."""
        if not self._seated[agent]:
            return actions
        actions = actions.copy()
        for name, copies in self._seated[agent]:
            chosen = self._ask(name, agent, observations, actions.shape, self._rng[name])
            acts: Bools = copies & self._env.active[:, agent]
            if not self._are_actions(agent, chosen[acts]):
                self._refuse(name, agent, chosen[acts])
            actions[acts] = chosen[acts]
        return actions

    def state(self) -> State:
        """Return the random state of each."""
        return {name: rng_state(rng) for name, rng in self._rng.items()}

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""
        for name, rng in self._rng.items():
            restore_rng(rng, state[name])

    def _are_actions(self, agent: int, chosen: Array) -> bool:
        """Return whether these are valid: compiled environments do not check."""
        low, ends = self._bounds[agent]
        return bool(((chosen >= low) & (chosen < ends)).all())

    def _refuse(self, name: str, agent: int, chosen: Array) -> None:
        low, ends = self._bounds[agent]
        found = chosen[~((chosen >= low) & (chosen < ends))].ravel()[0]
        spec = self._env.agents[agent]
        raise ConfigError(
            f"population.scripted.{name} chooses {found} for {spec.name}, whose actions are "
            f"{spec.action_space}; let it return one of these for each copy"
        )

    def _ask(
        self,
        name: str,
        agent: int,
        observations: Array,
        shape: tuple[int, ...],
        rng: np.random.Generator,
    ) -> Array:
        found = np.asarray(self._policies[name](self._env, agent, observations, rng))
        if found.shape != shape or found.dtype.kind not in "biuf":
            raise ConfigError(
                f"population.scripted.{name} returns {found.dtype} {found.shape} for "
                f"{self._env.agents[agent].name}; it must return an action for each copy, {shape}"
            )
        return found


def bounds_of(space: Space[object]) -> tuple[Array, Array]:
    """Return the least actions of a space, and exclusive upper bounds: [*action_shape] each."""
    if isinstance(space, Discrete):
        return np.array(space.start), np.array(space.start + space.n)
    if isinstance(space, MultiDiscrete):
        return space.start, space.start + space.nvec
    assert isinstance(space, Box), f"there are no bounds of {space}"
    return np.full(space.shape, -np.inf), np.full(space.shape, np.inf)


def load_scripted(
    game: Game, scripted: Mapping[str, str], workers: int = 1
) -> dict[str, ScriptedPolicy]:
    """Return the policies by scripted member; raise ConfigError for unknown or unusable ones."""
    found: dict[str, ScriptedPolicy] = {}
    for name, who in scripted.items():
        key = f"population.scripted.{name}"
        if workers > 1 and who != RANDOM and who in game.scripted:
            raise ConfigError(
                f"{key}: {who} looks into the game, whose copies are in other processes with "
                f"env.workers {workers}; take env.workers 1"
            )
        try:
            found[name] = game.policy(who)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
    return found
