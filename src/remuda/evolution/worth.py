"""What a policy is worth, judged by the games that it played since it was judged last."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from remuda.config.evolution import episode_metrics_of
from remuda.evolution.fitness import Fitness
from remuda.population.records import (
    FRESH,
    GAMES,
    MEETINGS,
    RATING,
    REWARD,
    SQUARES,
    TEAM,
    UNCERTAINTY,
    WINS,
    Member,
    Numbers,
)

ROUNDING = 1e-7
"""The share of a return that says nothing: returns are sums of numbers of 24 bits."""


class Estimate(NamedTuple):
    """What a policy is worth in one objective, and how sure that is."""

    value: float
    """The mean return of its games, or of its team in them, its rating, or the share of its
    meetings that it won."""
    error: float
    """Standard error of that."""
    freedom: float = math.inf
    """Degrees of freedom that the error has."""
    by_games: bool = True
    """Whether it is a mean over games, so that two policies in one game may share its luck."""


class Meetings(NamedTuple):
    """Whom a policy met in matches since it was born, so that both have their luck."""

    place: int
    """Of the policy in the population."""
    games: float
    """Seats that it had."""
    met: Numbers
    """[policies] by place, how often it met who is there; itself too, where it has several seats.
    """

    @property
    def seats(self) -> float:
        """Of its own in a match, on average, weighed by seats."""
        return 1.0 + float(self.met[self.place]) / self.games if self.games else 1.0


class Worth(NamedTuple):
    """What a policy is worth."""

    objectives: tuple[Estimate, ...]
    """In each that it was judged by."""
    games: int
    """That it was judged by."""
    meetings: Meetings | None = None
    """Whom it met; None: its games have nothing in common with those of others."""

    @property
    def value(self) -> float:
        """In the first objective."""
        return self.objectives[0].value


def worth_of(
    member: Member,
    before: Sequence[float],
    objectives: Sequence[str],
    met: Numbers | None = None,
) -> Worth | None:
    """Judge a policy by its games since its numbers were `before`.

    Args:
        member: with its numbers as they are now.
        before: [fields] its numbers as they were; those of `FRESH` when it was born.
        objectives: each `return`, `team_return`, `rating`, `win_rate`, or what the game tells of
            episodes, as `population.evolution.fitness` names them.
        met: [policies] by place, how often it met who is there; None: it met none.

    Returns:
        None: it has played too little for an error to be told.
    """
    now = member.numbers.tolist()
    games = now[GAMES] - before[GAMES]
    if games < 2:
        return None
    meetings = Meetings(member.place, now[GAMES], met) if met is not None else None
    seats = meetings.seats if meetings is not None else 1.0
    columns = _columns(objectives)
    found = [_estimate(now, before, games, seats, *each) for each in columns]
    told = tuple(each for each in found if each is not None)
    return Worth(told, int(games), meetings) if len(told) == len(found) else None


def _columns(objectives: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Each objective, with the column of what is added up for it, where anything is."""
    after = len(FRESH)
    for objective in objectives:
        if episode_metrics_of([objective]):
            yield objective, after
            after += 2
        else:
            yield objective, TEAM if objective == "team_return" else REWARD


def _estimate(
    now: Sequence[float],
    before: Sequence[float],
    games: float,
    seats: float,
    objective: str,
    total: int,
) -> Estimate | None:
    """What numbers say of one objective; None: nothing yet.

    Where it is a mean over games, `total` is the column of the sum; the next is that of squares.
    A policy that has several seats of a match has that match's luck on each: in the worst case,
    such as rewards that all share, so many seats say no more than one. Games are counted as if that
    were so, which no correlation makes too many.
    """
    matches = games / seats
    if objective == "rating":
        return Estimate(now[RATING], now[UNCERTAINTY], by_games=False)
    if objective == "win_rate":
        met, won = now[MEETINGS] - before[MEETINGS], now[WINS] - before[WINS]
        if met <= 0:
            return None
        # Two matches that went half and half are added, so that no error is 0 (Agresti, Coull).
        each = met / matches
        share = (won + each) / (met + 2.0 * each)
        return Estimate(share, math.sqrt(share * (1.0 - share) / (matches + 2.0)))
    square = SQUARES if total == REWARD else total + 1
    mean = (now[total] - before[total]) / games
    squares = (now[square] - before[square]) / games
    variance = max(squares - mean**2, 0.0) * games / (games - 1.0)
    error = max(math.sqrt(variance / matches), ROUNDING * abs(mean))
    value = -mean if objective.endswith(":min") else mean
    return Estimate(value, error, max(matches - 1.0, 1.0))


def fitness_of(worths: Mapping[str, Worth]) -> Fitness:
    """What policies are worth, as selections take it."""
    count = len(next(iter(worths.values())).objectives) if worths else 1
    columns = np.array([worth.objectives for worth in worths.values()], np.float64)
    columns = np.moveaxis(columns.reshape(len(worths), count, 4), 2, 0)
    means, errors, freedom, by_games = columns
    together = _together(worths)[:, :, None] * by_games[None, :, :]
    return Fitness(tuple(worths), means, errors, freedom, (True,) * count, together)


def _together(worths: Mapping[str, Worth]) -> Numbers:
    """[P, P]: the greatest correlation that the means of two policies may have.

    Of two sums of n and m returns, of which l pairs are of one match, it is l / sqrt(n m), each of
    them counted once for all seats that the policy has in a match.
    """
    known = [worth.meetings for worth in worths.values() if worth.meetings is not None]
    if len(known) < len(worths) or not worths:
        return np.zeros((len(worths), len(worths)))
    places = [each.place for each in known]
    met = np.array([each.met[places] for each in known])
    # What they met since both are there, for the games that both are judged by.
    played = np.array([each.games for each in known])
    games = np.array([worth.games for worth in worths.values()], np.float64)
    seats = np.array([each.seats for each in known])
    pairs = met / np.minimum.outer(played, played) * np.minimum.outer(games, games)
    found: Numbers = np.minimum(pairs / np.sqrt(np.outer(games * seats, games * seats)), 1.0)
    return found


def unjudged(member: Member) -> list[float]:
    """Numbers of a policy before it played: what a newborn is judged from."""
    return [*FRESH, *[0.0] * (len(member.numbers) - len(FRESH))]
