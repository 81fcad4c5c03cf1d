"""The game in which best responses (oracles) of all players train simultaneously.

Each oracle trains against its own target: a policy or mixture of the other player.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError
from remuda.solvers.exploit.game import AgainstTarget
from remuda.types import Array, Bools, Floats, Integers, TurnResult


class AgainstTargets(VectorEnv):
    """`num_envs` copies of T games in parallel, each with a target on all seats except one.

    Each agent is an oracle in its own game, against one target. So oracles for different seats and
    mixtures are policies of one run. A copy ends when all of its T games have ended; an agent whose
    game has ended waits for the others.
    """

    def __init__(self, num_envs: int = 1, *, targets: Sequence[str], seats: Sequence[int]) -> None:
        if len(targets) != len(seats) or not targets:
            raise ConfigError(
                f"env.options.seats has {len(seats)} seats for {len(targets)} targets; there must "
                "be one seat for each target"
            )
        self._options = {"targets": list(targets), "seats": list(seats)}
        self._games = [
            AgainstTarget(num_envs, target=target, seat=seat)
            for target, seat in zip(targets, seats, strict=True)
        ]
        self.num_envs = num_envs
        # Each agent is its own team: it shares no rewards with oracles of other games.
        self.agents = tuple(
            replace(game.agents[0], name=name_of(number), team=name_of(number))
            for number, game in enumerate(self._games)
        )
        self.turn_groups = (tuple(range(len(self._games))),)
        self.action_names = self._games[0].action_names
        shape = (num_envs, len(self._games))
        self.active: Bools = np.zeros(shape, np.bool_)
        self.rewards_so_far = None
        if any(game.rewards_so_far is not None for game in self._games):
            self.rewards_so_far = np.zeros(shape, np.float32)
        self._rewards: Floats = np.zeros(shape, np.float32)
        self._terminated: Bools = np.zeros(shape, np.bool_)
        self._truncated: Bools = np.zeros(shape, np.bool_)

    def options(self) -> dict[str, Any]:
        return dict(self._options)

    def reset(self, seeds: Integers, mask: Bools) -> None:
        for game in self._games:
            game.reset(seeds, mask)
        self._look()

    def begin_turn(self) -> None:
        for game in self._games:
            game.begin_turn()
        self._look()

    def observe(self, agent: int, out: Array) -> None:
        self._games[agent].observe(0, out)
        self._look_at(agent)

    def mask(self, agent: int, out: Bools) -> None:
        self._games[agent].mask(0, out)

    def act(self, agent: int, actions: Array) -> None:
        self._games[agent].act(0, actions)

    def end_turn(self) -> TurnResult:
        for number, game in enumerate(self._games):
            result = game.end_turn()
            self._rewards[:, number] = result.rewards[:, 0]
            self._terminated[:, number] = result.terminated[:, 0]
            self._truncated[:, number] = result.truncated[:, 0]
        self._look()
        return TurnResult(self._rewards, self._terminated, self._truncated)

    def render(self, env: int = 0) -> Array:
        return self._games[0].render(env)

    def describe(self, agent: int, env: int = 0) -> str:
        return self._games[agent].describe(0, env)

    def close(self) -> None:
        for game in self._games:
            game.close()

    def _look(self) -> None:
        for number in range(len(self._games)):
            self._look_at(number)

    def _look_at(self, number: int) -> None:
        """Read whether the oracle must act in a game, and its rewards so far."""
        game = self._games[number]
        self.active[:, number] = game.active[:, 0]
        if self.rewards_so_far is not None and game.rewards_so_far is not None:
            self.rewards_so_far[:, number] = game.rewards_so_far[:, 0]


def name_of(target: int) -> str:
    """Return the name of the agent that trains against a target."""
    return f"target_{target}"
