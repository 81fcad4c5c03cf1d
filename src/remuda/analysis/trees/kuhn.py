"""Exact values and exploitability of strategies in Kuhn poker.

A strategy of one player is an array [3, 2] of probabilities to bet: by its card (jack, queen, king)
and by its decision. Player 0 decides at the start, and again if it passed and player 1 bet. Player
1 decides after a pass, or after a bet. All numbers come from the tree of the game
(`tree_games.KuhnPoker`); `policy` converts a strategy to a policy of that tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from remuda.analysis.trees import exploitability as exploitabilities
from remuda.analysis.trees.exploitability import expected_returns
from remuda.analysis.trees.played_trees import KUHN, PLAYED
from remuda.analysis.trees.tree_games import KuhnPoker
from remuda.analysis.trees.tree_walk import flatten
from remuda.analysis.trees.trees import Tree, mixture
from remuda.types import Floats

if TYPE_CHECKING:
    from remuda.policies.spec import PolicySpec

Strategy = npt.NDArray[np.float64]
Known = tuple[int, tuple[int, ...]]  # a player's knowledge: its card, and the actions so far
BEFORE = (((), (0, 1)), ((0,), (1,)))  # by player, the actions before each decision; 1: bet
VALUE = -1.0 / 18.0  # the value to player 0 at equilibrium (Kuhn 1950)


@cache
def tree() -> Tree:
    """Return the tree of the game: 58 nodes, six information sets for each player."""
    return flatten(KuhnPoker())


def policy(player: int, strategy: Strategy) -> Strategy:
    """Convert a strategy to a policy [6, 2] of the tree: probabilities to pass and to bet."""
    bets = np.array([strategy[place] for place in _places(player)])
    return np.stack([1.0 - bets, bets], axis=1)


def strategy_of(player: int, play: Strategy) -> Strategy:
    """Convert a policy [6, 2] of the tree to a strategy."""
    found = np.zeros((3, 2))
    for place, row in zip(_places(player), play, strict=True):
        found[place] = row[1]
    return found


def value(first: Strategy, second: Strategy) -> float:
    """Return the expected return of player 0."""
    return float(expected_returns(tree(), (policy(0, first), policy(1, second)))[0])


def exploitability(first: Strategy, second: Strategy) -> float:
    """Return NashConv / 2; 0 at an equilibrium."""
    return exploitabilities.exploitability(tree(), (policy(0, first), policy(1, second)))


def average(firsts: Sequence[Strategy], seconds: Sequence[Strategy]) -> tuple[Strategy, Strategy]:
    """Return the strategies equivalent to drawing one from each list for a whole game.

    A player's second decision is weighted by its probability of passing first.
    """
    first, second = (
        strategy_of(
            player, mixture(tree(), player, [policy(player, strategy) for strategy in strategies])
        )
        for player, strategies in enumerate((firsts, seconds))
    )
    return first, second


def strategies(spec: PolicySpec, weights: Floats) -> tuple[Strategy, Strategy]:
    """Return the strategies of a run's policy as player 0 and as player 1."""
    first, second = PLAYED[KUHN].policies(tree(), spec, weights)
    return strategy_of(0, first), strategy_of(1, second)


def summary(first: Strategy, second: Strategy) -> Mapping[str, float]:
    """Return exploitability and the value to player 0."""
    return {"exploitability": exploitability(first, second), "value": value(first, second)}


def _places(player: int) -> list[tuple[int, int]]:
    """Return each information set's index in a strategy: card and decision."""
    known = [cast(Known, each.key) for each in tree().information_sets[player]]
    return [(card, BEFORE[player].index(done)) for card, done in known]
