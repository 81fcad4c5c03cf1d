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
    TEAM,
    TEAM_SQUARES,
    UNCERTAINTY,
    WINS,
    Member,
)


class Estimate(NamedTuple):
    """What a policy is worth in one objective, and how sure that is."""

    value: float
    """The mean return of its games, or of its team in them, its rating, or the share of its
    meetings that it won."""
    error: float
    """Standard error of that."""
    freedom: float = math.inf
    """Degrees of freedom that the error has."""


class Worth(NamedTuple):
    """What a policy is worth."""

    objectives: tuple[Estimate, ...]
    """In each that it was judged by."""
    games: int
    """That it was judged by."""

    @property
    def value(self) -> float:
        """In the first objective."""
        return self.objectives[0].value


def worth_of(member: Member, before: Sequence[float], objectives: Sequence[str]) -> Worth | None:
    """Judge a policy by its games since its numbers were `before`.

    Args:
        member: with its numbers as they are now.
        before: [fields] its numbers as they were; those of `FRESH` when it was born.
        objectives: each `return`, `team_return`, `rating` or `win_rate`.

    Returns:
        None: it has played too little for an error to be told.
    """
    now = member.numbers.tolist()
    games = now[GAMES] - before[GAMES]
    if games < 2:
        return None
    found = [_estimate(now, before, games, objective) for objective in objectives]
    told = tuple(each for each in found if each is not None)
    return Worth(told, int(games)) if len(told) == len(found) else None


def _estimate(
    now: Sequence[float], before: Sequence[float], games: float, objective: str
) -> Estimate | None:
    """What numbers say of one objective; None: nothing yet."""
    if objective == "rating":
        return Estimate(now[RATING], now[UNCERTAINTY])
    if objective == "win_rate":
        met, won = now[MEETINGS] - before[MEETINGS], now[WINS] - before[WINS]
        if met <= 0:
            return None
        # Two meetings that went half and half are added, so that no error is 0 (Agresti, Coull).
        share = (won + 1.0) / (met + 2.0)
        return Estimate(share, math.sqrt(share * (1.0 - share) / (met + 2.0)))
    total, square = (TEAM, TEAM_SQUARES) if objective == "team_return" else (REWARD, SQUARES)
    mean = (now[total] - before[total]) / games
    squares = (now[square] - before[square]) / games
    variance = max(squares - mean**2, 0.0) * games / (games - 1.0)
    return Estimate(mean, math.sqrt(variance / games), games - 1.0)


def fitness_of(worths: Mapping[str, Worth]) -> Fitness:
    """What policies are worth, as selections take it."""
    count = len(next(iter(worths.values())).objectives) if worths else 1
    columns = np.array([worth.objectives for worth in worths.values()], np.float64)
    means, errors, freedom = np.moveaxis(columns.reshape(len(worths), count, 3), 2, 0)
    return Fitness(tuple(worths), means, errors, freedom, (True,) * count)


def unjudged() -> list[float]:
    """Numbers of a policy that has not played: what a newborn is judged from."""
    return list(FRESH)
