"""Counts of finished episodes in an actor's rows of the scoreboard."""

from __future__ import annotations

import math

import numpy as np

from remuda.kernels import njit
from remuda.scoreboard import Policy, Row
from remuda.types import Integers

# Numba takes plain numbers as constants.
EPISODES, RETURN_SUM, TURNS_SUM = (
    int(Policy.EPISODES),
    int(Policy.RETURN_SUM),
    int(Policy.TURNS_SUM),
)
MARK, RETURNS, FIRST = int(Policy.MARK), int(Policy.RETURNS), int(Policy.FIRST)
ABOVE_SUM, ABOVE_SQUARES = int(Policy.ABOVE_SUM), int(Policy.ABOVE_SQUARES)
LOW, HIGH = int(Policy.LOW), int(Policy.HIGH)


class EpisodeCounter:
    """A counter of the episodes of some policies."""

    def __init__(self, rows: Row, mark: Row | None = None) -> None:
        """Count into `rows` [policies, fields by `Policy`]; `mark` is `Scoreboard.mark`."""
        self._rows = rows
        self._mark = np.ones(1) if mark is None else mark
        nothing: Integers = np.zeros(0, np.int64)
        self.count(nothing, np.zeros(0), nothing)

    def count(self, policies: Integers, returns: np.ndarray, turns: Integers) -> None:
        """Count episodes [N] by the row of their policy; NaN returns are skipped."""
        _count(self._rows, policies, returns, turns, self._mark[0])


@njit(cache=True)
def _count(
    rows: Row, policies: Integers, returns: np.ndarray, turns: Integers, mark: float
) -> None:
    for i in range(policies.size):
        k, value = policies[i], returns[i]
        if math.isnan(value):
            continue
        if rows[k, MARK] != mark:
            rows[k, RETURNS] = 0.0  # first: until there is a return, readers pass all over
            rows[k, MARK] = mark
            rows[k, FIRST] = rows[k, LOW] = rows[k, HIGH] = value
            rows[k, ABOVE_SUM] = rows[k, ABOVE_SQUARES] = 0.0
        above = value - rows[k, FIRST]
        rows[k, ABOVE_SUM] += above
        rows[k, ABOVE_SQUARES] += above * above
        rows[k, LOW] = min(rows[k, LOW], value)
        rows[k, HIGH] = max(rows[k, HIGH], value)
        rows[k, RETURNS] += 1.0
        rows[k, EPISODES] += 1.0
        rows[k, RETURN_SUM] += value
        rows[k, TURNS_SUM] += turns[i]
