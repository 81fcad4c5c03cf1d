"""Self-play against cross-play: what policies earn with themselves, and with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from remuda.types import Numbers

LEAST = 3  # entrants: without one of them there must still be a pair
EQUAL = 1e-6  # largest spread of the sums in a constant-sum game, relative to the largest mean


@dataclass(frozen=True)
class SelfAndCrossPlay:
    """Mean returns in self-play and cross-play, and their difference (the gap).

    Each is (mean, standard error), over entrants.
    """

    self_play: tuple[float, float]
    cross_play: tuple[float, float]
    gap: tuple[float, float]


def self_and_cross_play(means: Numbers) -> SelfAndCrossPlay | None:
    """Compare the diagonal of a cross-play matrix [N, N] with all other cells.

    Cells that share an entrant are not independent, so standard errors are those of the jackknife
    over entrants. None: fewer than three entrants, pairs that never met, or a constant-sum game,
    where self-play and cross-play are equal by its rules.
    """
    sums = means + means.T
    if len(means) < LEAST or np.isnan(sums).any():
        return None
    if np.ptp(sums) <= EQUAL * np.abs(means).max():
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

    The expected squared error is not below the variance (Efron & Stein 1981).
    """
    count = len(means)
    kept = [np.delete(np.arange(count), i) for i in range(count)]
    without = np.array([statistic(means[np.ix_(rows, rows)]) for rows in kept])
    error = np.sqrt((count - 1) * without.var())
    return statistic(means), float(error)
