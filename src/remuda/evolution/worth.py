"""What a policy is worth, judged by the games that it played since it was judged last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from remuda.evolution.fitness import Fitness
from remuda.population.records import (
    FRESH,
    GAMES,
    MEETINGS,
    RATING,
    REWARD,
    SQUARES,
    UNCERTAINTY,
    WINS,
    Member,
)


class Worth(NamedTuple):
    """What a policy is worth, and how sure that is."""

    value: float
    """The mean return of its games, its rating, or the share of its meetings that it won."""
    error: float
    """Standard error of that."""
    games: int
    """That it was judged by."""
    freedom: float = math.inf
    """Degrees of freedom that the error has."""


def worth_of(member: Member, before: Sequence[float], fitness: str) -> Worth | None:
    """Judge a policy by its games since its numbers were `before`.

    Args:
        member: with its numbers as they are now.
        before: [fields] its numbers as they were; those of `FRESH` when it was born.
        fitness: `return`, `rating` or `win_rate`.

    Returns:
        None: it has played too little for an error to be told.
    """
    now = member.numbers.tolist()
    games = now[GAMES] - before[GAMES]
    if games < 2:
        return None
    if fitness == "rating":
        return Worth(now[RATING], now[UNCERTAINTY], int(games))
    if fitness == "win_rate":
        met, won = now[MEETINGS] - before[MEETINGS], now[WINS] - before[WINS]
        if met <= 0:
            return None
        # Two meetings that went half and half are added, so that no error is 0 (Agresti, Coull).
        share = (won + 1.0) / (met + 2.0)
        return Worth(share, math.sqrt(share * (1.0 - share) / (met + 2.0)), int(games))
    mean = (now[REWARD] - before[REWARD]) / games
    squares = (now[SQUARES] - before[SQUARES]) / games
    variance = max(squares - mean**2, 0.0) * games / (games - 1.0)
    return Worth(mean, math.sqrt(variance / games), int(games), games - 1.0)


def fitness_of(worths: Mapping[str, Worth]) -> Fitness:
    """What policies are worth, as selections take it."""
    columns = np.array([[w.value, w.error, w.freedom] for w in worths.values()], np.float64)
    means, errors, freedom = columns.reshape(-1, 3).T[:, :, None]
    return Fitness(tuple(worths), means, errors, freedom)


def unjudged() -> list[float]:
    """Numbers of a policy that has not played: what a newborn is judged from."""
    return list(FRESH)
