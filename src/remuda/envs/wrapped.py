"""Wrappers of `VectorEnv`: every call goes to the game, except those that a subclass overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from remuda.checkpoint.state import restore_rng, rng_state
from remuda.envs.registry import Game
from remuda.envs.scripted import ScriptedPolicy, room_for
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError
from remuda.types import Array, Bools, Integers, State, TurnResult


class Wrapped(VectorEnv):
    """A wrapper that changes nothing; the base of others."""

    def __init__(self, game: VectorEnv) -> None:
        self.game = game
        self.num_envs, self.agents, self.turn_groups = game.num_envs, game.agents, game.turn_groups
        self.active, self.episode_metrics = game.active, game.episode_metrics
        self.can_observe_together = game.can_observe_together
        self.may_return_at_once = game.may_return_at_once
        self.rewards_so_far = game.rewards_so_far
        self.first_copy, self.checker = game.first_copy, game.checker
        self.notes = game.notes

    def warm_up(self) -> None:
        self.game.warm_up()

    def reset(self, seeds: Integers, mask: Bools) -> None:
        self.game.reset(seeds, mask)

    def begin_turn(self) -> None:
        self.game.begin_turn()

    def observe(self, agent: int, out: Array) -> None:
        self.game.observe(agent, out)

    def mask(self, agent: int, out: Bools) -> None:
        self.game.mask(agent, out)

    def act(self, agent: int, actions: Array) -> None:
        self.game.act(agent, actions)

    def end_turn(self) -> TurnResult:
        return self.game.end_turn()

    def render(self, env: int = 0) -> Array:
        return self.game.render(env)

    def history(self, env: int = 0) -> list[int] | None:
        return self.game.history(env)

    def state(self) -> State:
        return self.game.state()

    def restore(self, state: State) -> None:
        self.game.restore(state)

    def close(self) -> None:
        self.game.close()

    def options(self) -> dict[str, Any]:
        return self.game.options()


class SeatsTaken(Wrapped):
    """A game in which scripted policies act for some agents, in place of any other actions."""

    def __init__(
        self, game: VectorEnv, scripted: Mapping[int, ScriptedPolicy], rng: np.random.Generator
    ) -> None:
        super().__init__(game)
        self._scripted, self._rng = dict(scripted), rng
        self._seen = {agent: room_for(game, agent) for agent in scripted}

    def observe(self, agent: int, out: Array) -> None:
        """Observe, and keep what scripted policies act on."""
        self.game.observe(agent, out)
        if agent in self._seen:
            self._seen[agent][...] = out

    def state(self) -> State:
        return {"game": self.game.state(), "random": rng_state(self._rng)}

    def restore(self, state: State) -> None:
        self.game.restore(state["game"])
        restore_rng(self._rng, state["random"])

    def act(self, agent: int, actions: Array) -> None:
        if agent in self._scripted:
            policy = self._scripted[agent]
            actions = policy(self.game, agent, self._seen[agent], self._rng)
        self.game.act(agent, actions)


def with_scripted(
    game: Game, env: VectorEnv, scripted: Mapping[str, str], rng: np.random.Generator
) -> VectorEnv:
    """Return copies of a game in which scripted policies play some agents."""
    if not scripted:
        return env
    names = [spec.name for spec in env.agents]
    for name in scripted:
        if name not in names:
            raise ConfigError(
                f"{game.name} has no agent {name!r} to be scripted; it has {', '.join(names)}"
            )
    seats = {names.index(name): game.policy(policy) for name, policy in scripted.items()}
    return SeatsTaken(env, seats, rng)
