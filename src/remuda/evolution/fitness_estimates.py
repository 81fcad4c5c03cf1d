"""Estimate the fitness of a policy from its games since it was last judged."""

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
"""The relative rounding error of returns: sums of numbers of 24 bits."""


class FitnessEstimate(NamedTuple):
    """A policy's fitness in one objective, with its uncertainty."""

    value: float
    """The mean return of its games or of its team in them, its rating, or its win rate."""
    error: float
    """Standard error of the value."""
    freedom: float = math.inf
    """Degrees of freedom of the error."""
    by_games: bool = True
    """A mean over games, so that policies of one game may share its luck."""


class Meetings(NamedTuple):
    """A policy's opponents since its birth, with which it shares luck."""

    place: int
    """The policy's place in the population."""
    games: float
    """Number of its seats."""
    met: Numbers
    """[policies] meetings by place; also with itself, if it had several seats."""

    @property
    def seats(self) -> float:
        """Its mean number of seats in a match, weighted by seats."""
        return 1.0 + float(self.met[self.place]) / self.games if self.games else 1.0


class FitnessEstimates(NamedTuple):
    """The fitness estimates of a policy."""

    objectives: tuple[FitnessEstimate, ...]
    """The estimate in each objective."""
    games: int
    """Games that it was judged by."""
    meetings: Meetings | None = None
    """Its opponents; None: its games are independent of others'."""

    @property
    def value(self) -> float:
        """In the first objective."""
        return self.objectives[0].value


def estimate_fitness(
    member: Member,
    before: Sequence[float],
    objectives: Sequence[str],
    met: Numbers | None = None,
) -> FitnessEstimates | None:
    """CheckpointPlay a policy by its games since its numbers were `before`.

    - `before`: [fields] earlier numbers; those of `FRESH` at its birth.
    - `objectives`: each `return`, `team_return`, `rating`, `win_rate`, or an episode metric, as
      `population.evolution.fitness` names them.
    - `met`: [policies] meetings by place; None: it met none.
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
    return FitnessEstimates(told, int(games), meetings) if len(told) == len(found) else None


def _columns(objectives: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield each objective with the column of its sum, where it has one."""
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
) -> FitnessEstimate | None:
    """Return the estimate of one objective; None: no data yet.

    For a mean over games, `total` is the column of the sum, and the next that of squares. A policy
    with several seats of a match has that match's luck on each: in the worst case, such as shared
    rewards, they count as one game. Games are counted that way, which no correlation makes too
    many.
    """
    matches = games / seats
    if objective == "rating":
        return FitnessEstimate(now[RATING], now[UNCERTAINTY], by_games=False)
    if objective == "win_rate":
        met, won = now[MEETINGS] - before[MEETINGS], now[WINS] - before[WINS]
        if met <= 0:
            return None
        # Two matches that went half and half are added, so that no error is 0 (Agresti, Coull).
        each = met / matches
        share = (won + each) / (met + 2.0 * each)
        return FitnessEstimate(share, math.sqrt(share * (1.0 - share) / (matches + 2.0)))
    square = SQUARES if total == REWARD else total + 1
    mean = (now[total] - before[total]) / games
    squares = (now[square] - before[square]) / games
    variance = max(squares - mean**2, 0.0) * games / (games - 1.0)
    error = max(math.sqrt(variance / matches), ROUNDING * abs(mean))
    value = -mean if objective.endswith(":min") else mean
    return FitnessEstimate(value, error, max(matches - 1.0, 1.0))


def fitness_of(worths: Mapping[str, FitnessEstimates]) -> Fitness:
    """Return the fitness of policies for selection."""
    count = len(next(iter(worths.values())).objectives) if worths else 1
    columns = np.array([worth.objectives for worth in worths.values()], np.float64)
    columns = np.moveaxis(columns.reshape(len(worths), count, 4), 2, 0)
    means, errors, freedom, by_games = columns
    together = _together(worths)[:, :, None] * by_games[None, :, :]
    return Fitness(tuple(worths), means, errors, freedom, (True,) * count, together)


def _together(worths: Mapping[str, FitnessEstimates]) -> Numbers:
    """Return [P, P]: bounds of the correlation of two policies' means.

    For sums of n and m returns with l pairs from one match it is l / sqrt(n m), counted once for
    all seats of a policy in a match.
    """
    known = [worth.meetings for worth in worths.values() if worth.meetings is not None]
    if len(known) < len(worths) or not worths:
        return np.zeros((len(worths), len(worths)))
    places = [each.place for each in known]
    met = np.array([each.met[places] for each in known])
    # Meetings since both exist, scaled to the games that both are judged by.
    played = np.array([each.games for each in known])
    games = np.array([worth.games for worth in worths.values()], np.float64)
    seats = np.array([each.seats for each in known])
    pairs = met / np.minimum.outer(played, played) * np.minimum.outer(games, games)
    found: Numbers = np.minimum(pairs / np.sqrt(np.outer(games * seats, games * seats)), 1.0)
    return found


def unjudged(member: Member) -> list[float]:
    """Return a policy's numbers before it played: what a newborn is judged from."""
    return [*FRESH, *[0.0] * (len(member.numbers) - len(FRESH))]
