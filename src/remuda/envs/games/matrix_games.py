"""Matrix games: two agents choose at once, and a table gives the payoff of each.

Rules. In each round both agents choose an action, without seeing the other's choice. The row of
agent 0 and the column of agent 1 select a cell of two payoffs, the first for agent 0. An episode
has `rounds` rounds (1); in later rounds each agent observes both choices of the previous round.

Payoffs, and the equilibria that tests compare with:

- Rock-paper-scissors: the loser gives the winner 1. Biased: rock beats scissors for 2, and the
  only equilibrium is rock 1/4, paper 1/2, scissors 1/4.
- Matching pennies: agent 0 wants the sides to match, agent 1 wants them to differ.
- Prisoner's dilemma: temptation 5, reward 3, punishment 1, sucker 0; both defect.
- Stag hunt: two stags 5 each, a hare 1, a lone stag 0; all stag, all hare, or stag with
  probability 1/5.
- Hawk-dove: temptation 2, reward 1, a fight -4, yielding 0; a hawk and a dove, or hawk with
  probability 1/5.
- Bach or Stravinsky: equal choices pay 5 and 1, or 1 and 5; others nothing.

Each game has a scripted policy for each action, with the action's name, which always chooses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.games.array_game import TableGame
from remuda.envs.games.options import require_whole
from remuda.envs.vector_env import VectorEnv
from remuda.system.checkpoint.fitting import COUNT, Range, Table, require
from remuda.types import Array, Bools, Floats, Integers, State, TurnResult

NONE = -1  # the choice before the first round


class MatrixGame(TableGame):
    """A game of two agents, defined by its table of payoffs.

    An agent observes a constant 1, then its own and the other's choice in the previous round, each
    one-hot, or zeros in the first round.
    """

    def __init__(
        self,
        payoffs: Sequence[Sequence[Sequence[float]]],
        num_envs: int,
        rounds: int,
        action_names: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        """Set up a game from its payoffs: [choices of agent 0, choices of agent 1, agent].

        `options` are the game's options that determined the table.
        """
        require_whole("rounds", rounds, 1)
        self.action_names = action_names
        self.payoffs: Floats = np.array(payoffs, np.float32)
        self.rounds = rounds
        self._choices = rows, columns = self.payoffs.shape[:2]
        space = Box(0.0, 1.0, (1 + rows + columns,), np.float32)
        acts = [Discrete(rows), Discrete(columns)]
        self._allocate(num_envs, {"rounds": rounds, **options}, space, acts)
        self._last: Integers = np.full(self.active.shape, NONE, np.int64)
        self._round: Integers = np.zeros(num_envs, np.int64)

    def reset(self, seeds: Integers, mask: Bools) -> None:  # noqa: ARG002
        self._last[mask], self._round[mask], self.active[mask] = NONE, 0, True

    def observe(self, agent: int, out: Array) -> None:
        """Write the choices of the previous round, the agent's own first."""
        out[...] = 0.0
        out[:, 0] = 1.0
        played = np.flatnonzero(self._last[:, 0] != NONE)
        out[played, 1 + self._last[played, agent]] = 1.0
        out[played, 1 + self._choices[agent] + self._last[played, 1 - agent]] = 1.0

    def end_turn(self) -> TurnResult:
        """Pay both; the last round terminates the episode."""
        on = self.active[:, 0]
        self._rewards[on] = self.payoffs[self._chosen[on, 0], self._chosen[on, 1]]
        self._last[on] = self._chosen[on]
        self._round[on] += 1
        self._terminated[...] = (on & (self._round >= self.rounds))[:, None]
        self.active &= ~self._terminated
        return self._result

    def _world(self) -> Table:
        return {
            "last": (self._last, Range(NONE, max(self._choices) - 1)),
            "round": (self._round, COUNT),
            "active": (self.active, None),
        }

    def _check(self, state: State) -> None:
        last = state["last"]
        fits = (last < np.array(self._choices)).all() and (
            (last == NONE).all(1) | (last != NONE).all(1)
        ).all()
        require(state, "last", bool(fits), "both have chosen a row and a column, or neither")


def rock_paper_scissors(num_envs: int = 1, rounds: int = 1, biased: bool = False) -> MatrixGame:
    """Make rock-paper-scissors; `biased`: rock beats scissors for twice as much."""
    rock = 2.0 if biased else 1.0
    rows: list[list[float]] = [[0, -1, rock], [1, 0, -1], [-rock, 1, 0]]
    payoffs = [[[x, -x] for x in row] for row in rows]
    return MatrixGame(payoffs, num_envs, rounds, ("rock", "paper", "scissors"), biased=biased)


def matching_pennies(num_envs: int = 1, rounds: int = 1) -> MatrixGame:
    """Make matching pennies: agent 0 wins if the sides match."""
    payoffs = [[[1, -1], [-1, 1]], [[-1, 1], [1, -1]]]
    return MatrixGame(payoffs, num_envs, rounds, ("heads", "tails"))


def prisoners_dilemma(num_envs: int = 1, rounds: int = 1) -> MatrixGame:
    """Make the prisoner's dilemma: cooperate or defect."""
    payoffs = [[[3, 3], [0, 5]], [[5, 0], [1, 1]]]
    return MatrixGame(payoffs, num_envs, rounds, ("cooperate", "defect"))


def stag_hunt(num_envs: int = 1, rounds: int = 1) -> MatrixGame:
    """Make the stag hunt: stag or hare."""
    payoffs = [[[5, 5], [0, 1]], [[1, 0], [1, 1]]]
    return MatrixGame(payoffs, num_envs, rounds, ("stag", "hare"))


def hawk_dove(num_envs: int = 1, rounds: int = 1) -> MatrixGame:
    """Make hawk-dove: fight or yield."""
    payoffs = [[[-4, -4], [2, 0]], [[0, 2], [1, 1]]]
    return MatrixGame(payoffs, num_envs, rounds, ("hawk", "dove"))


def bach_or_stravinsky(num_envs: int = 1, rounds: int = 1) -> MatrixGame:
    """Make Bach or Stravinsky: agent 0 prefers Bach."""
    payoffs = [[[5, 1], [0, 0]], [[0, 0], [1, 5]]]
    return MatrixGame(payoffs, num_envs, rounds, ("bach", "stravinsky"))


@dataclass(frozen=True)
class Always:
    """A scripted policy that always chooses the same action."""

    action: int

    def __call__(
        self,
        env: VectorEnv,  # noqa: ARG002
        agent: int,  # noqa: ARG002
        observations: Array,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> Integers:
        return np.full(len(observations), self.action, np.int64)


first_action, second_action, third_action = map(Always, range(3))
