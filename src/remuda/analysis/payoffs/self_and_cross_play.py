"""Self-play against cross-play: what policies earn with themselves, and with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from remuda.types import Numbers

LEAST = 3  # entrants: without one of them there must still be a pair
EQUAL = 1e-5  # largest spread of a constant sum of returns, relative to the largest return


@dataclass(frozen=True)
class SelfAndCrossPlay:
    """Mean returns in self-play and cross-play, and their difference (the gap).

    Each is (mean, standard error), over entrants.
    """

    self_play: tuple[float, float]
    cross_play: tuple[float, float]
    gap: tuple[float, float]


def self_and_cross_play(means: Numbers, returns: Numbers) -> SelfAndCrossPlay | None:
    """Compare the diagonal of a cross-play matrix [N, N] with all other cells.

    Cells that share an entrant are not independent, so standard errors are those of the jackknife
    over entrants. None: fewer than three entrants, a single seat, pairs that never met, or a
    constant-sum game, where all self-play returns are equal by its rules.

    `returns` [matches, D]: the returns of the entrants' seats in all matches; NaN: no part taken.
    """
    if len(means) < LEAST or returns.shape[1] < 2 or np.isnan(means).any():
        return None
    if np.ptp(np.nansum(returns, 1)) <= EQUAL * np.nanmax(np.abs(returns)):
        return None
    return SelfAndCrossPlay(
        _jackknife(_self_play, means),
        _jackknife(_cross_play, means),
        _jackknife(lambda own: _self_play(own) - _cross_play(own), means),
    )


def _self_play(means: Numbers) -> float:
    return float(np.diagonal(means).mean())


def _cross_play(means: Numbers) -> float:
    return float(means[~np.eye(len(means), dtype=np.bool_)].mean())


def _jackknife(statistic: Callable[[Numbers], float], means: Numbers) -> tuple[float, float]:
    """Return a statistic of a matrix, and its standard error.

    Its square is too large on average (Efron & Stein 1981). An interval needs Student's t with
    N - 1 degrees of freedom, and with 3 entrants it is rough.
    """
    count = len(means)
    kept = [np.delete(np.arange(count), i) for i in range(count)]
    without = np.array([statistic(means[np.ix_(rows, rows)]) for rows in kept])
    error = np.sqrt((count - 1) * without.var())
    return statistic(means), float(error)
