"""Kuhn poker worked out exactly: what strategies earn, and how much best answers to them gain.

A strategy of one player is an array [3, 2] of probabilities to bet: by its card (jack, queen, king)
and by where it is asked. Player 0 is asked at the start, and after it passed and the other bet;
player 1 after a pass, and after a bet. The numbers come from the tree of the game
(`tree_games.KuhnPoker`); `policy` writes a strategy as a policy of that tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from remuda.analysis import exploitability as exploitabilities
from remuda.analysis.best_response import expected_returns
from remuda.analysis.played_trees import KUHN, PLAYED
from remuda.analysis.tree_games import KuhnPoker
from remuda.analysis.tree_policies import mixture
from remuda.analysis.tree_walk import flatten
from remuda.analysis.trees import Tree
from remuda.types import Floats

if TYPE_CHECKING:
    from remuda.policies.spec import PolicySpec

Strategy = npt.NDArray[np.float64]
Known = tuple[int, tuple[int, ...]]
"""What a player knows: its card, and what has been done."""
ASKED = (((), (0, 1)), ((0,), (1,)))
"""By player, what has been done when it is asked the first and the second way; 0 passed, 1 bet."""
VALUE = -1.0 / 18.0
"""What player 0 earns a game at equilibrium (Kuhn 1950)."""


@cache
def tree() -> Tree:
    """The tree of the game: 58 nodes, and six information sets of each player."""
    return flatten(KuhnPoker())


def policy(player: int, strategy: Strategy) -> Strategy:
    """A strategy as a policy [6, 2] of the tree's information sets, pass and bet."""
    bets = np.array([strategy[place] for place in _places(player)])
    return np.stack([1.0 - bets, bets], axis=1)


def strategy_of(player: int, play: Strategy) -> Strategy:
    """A policy [6, 2] of the tree as a strategy."""
    found = np.zeros((3, 2))
    for place, row in zip(_places(player), play, strict=True):
        found[place] = row[1]
    return found


def value(first: Strategy, second: Strategy) -> float:
    """What player 0 earns a game, on average over the deals."""
    return float(expected_returns(tree(), (policy(0, first), policy(1, second)))[0])


def exploitability(first: Strategy, second: Strategy) -> float:
    """NashConv / 2: what best answers to both would gain, on average; 0 at an equilibrium."""
    return exploitabilities.exploitability(tree(), (policy(0, first), policy(1, second)))


def average(firsts: Sequence[Strategy], seconds: Sequence[Strategy]) -> tuple[Strategy, Strategy]:
    """The strategies that play as one drawn from each list for a whole game does.

    What a player does after it passed counts by how often it passed.
    """
    first, second = (
        strategy_of(player, mixture(tree(), player, [policy(player, one) for one in strategies]))
        for player, strategies in enumerate((firsts, seconds))
    )
    return first, second


def strategies(spec: PolicySpec, weights: Floats) -> tuple[Strategy, Strategy]:
    """What a policy of a run does as player 0, and as player 1.

    Raises:
        UsageError: it was trained in another game, or goes by earlier observations too.
    """
    first, second = PLAYED[KUHN].policies(tree(), spec, weights)
    return strategy_of(0, first), strategy_of(1, second)


def summary(first: Strategy, second: Strategy) -> Mapping[str, float]:
    """Exploitability, and the value to player 0."""
    return {"exploitability": exploitability(first, second), "value": value(first, second)}


def _places(player: int) -> list[tuple[int, int]]:
    """Where a strategy tells of each information set of the tree: its card, and how it is asked."""
    known = [cast(Known, one.key) for one in tree().information_sets[player]]
    return [(card, ASKED[player].index(done)) for card, done in known]
