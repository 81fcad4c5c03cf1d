"""A game with something about it changed: every call goes to the game, but for those overridden."""

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
    """The game itself; to be inherited."""

    def __init__(self, game: VectorEnv) -> None:
        """Wrap a game."""
        self.game = game
        self.num_envs, self.agents, self.turn_groups = game.num_envs, game.agents, game.turn_groups
        self.active, self.facts = game.active, game.facts
        self.can_observe_together = game.can_observe_together
        self.may_return_at_once = game.may_return_at_once
        self.rewards_so_far = game.rewards_so_far
        self.first_copy, self.checker = game.first_copy, game.checker
        self.notes = game.notes

    def warm_up(self) -> None:
        """As the game."""
        self.game.warm_up()

    def reset(self, seeds: Integers, mask: Bools) -> None:
        """As the game."""
        self.game.reset(seeds, mask)

    def begin_turn(self) -> None:
        """As the game."""
        self.game.begin_turn()

    def observe(self, agent: int, out: Array) -> None:
        """As the game."""
        self.game.observe(agent, out)

    def mask(self, agent: int, out: Bools) -> None:
        """As the game."""
        self.game.mask(agent, out)

    def act(self, agent: int, actions: Array) -> None:
        """As the game."""
        self.game.act(agent, actions)

    def end_turn(self) -> TurnResult:
        """As the game."""
        return self.game.end_turn()

    def render(self, env: int = 0) -> Array:
        """As the game."""
        return self.game.render(env)

    def history(self, env: int = 0) -> list[int] | None:
        """As the game."""
        return self.game.history(env)

    def state(self) -> State:
        """As the game."""
        return self.game.state()

    def restore(self, state: State) -> None:
        """As the game."""
        self.game.restore(state)

    def close(self) -> None:
        """As the game."""
        self.game.close()

    def options(self) -> dict[str, Any]:
        """As the game."""
        return self.game.options()


class SeatsTaken(Wrapped):
    """Scripted policies sit on some seats, whatever others choose for them."""

    def __init__(
        self, game: VectorEnv, scripted: Mapping[int, ScriptedPolicy], random: np.random.Generator
    ) -> None:
        """Take the seats.

        Args:
            game: the game itself.
            scripted: by agent, who plays it.
            random: what they draw from.
        """
        super().__init__(game)
        self._scripted, self._random = dict(scripted), random
        self._seen = {agent: room_for(game, agent) for agent in scripted}

    def observe(self, agent: int, out: Array) -> None:
        """As the game; a scripted policy remembers what its agent saw."""
        self.game.observe(agent, out)
        if agent in self._seen:
            self._seen[agent][...] = out

    def state(self) -> State:
        """The game's, and what the scripted policies draw from."""
        return {"game": self.game.state(), "random": rng_state(self._random)}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self.game.restore(state["game"])
        restore_rng(self._random, state["random"])

    def act(self, agent: int, actions: Array) -> None:
        """As the game, but for the seats that are taken."""
        if agent in self._scripted:
            policy = self._scripted[agent]
            actions = policy(self.game, agent, self._seen[agent], self._random)
        self.game.act(agent, actions)


def with_scripted(
    game: Game, env: VectorEnv, scripted: Mapping[str, str], random: np.random.Generator
) -> VectorEnv:
    """The copies `env` of a game, with scripted policies on some seats.

    Args:
        game: which game it is.
        env: its copies.
        scripted: by agent, the policy's name, as `Game.policy` takes it.
        random: what the policies draw from.

    Raises:
        ConfigError: there is no such agent, or no such policy.
    """
    if not scripted:
        return env
    names = [spec.name for spec in env.agents]
    for name in scripted:
        if name not in names:
            raise ConfigError(
                f"{game.name} has no agent {name!r} to be scripted; it has {', '.join(names)}"
            )
    seats = {names.index(name): game.policy(policy) for name, policy in scripted.items()}
    return SeatsTaken(env, seats, random)
