"""The fitness of policies in one or several objectives, with uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from remuda.config.evolution import episode_metrics_of
from remuda.population.ledger.records import (
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
)
from remuda.types import Bools, Numbers

LEAST = 10  # minimum number of games: the deviation of fewer returns may be 0 by chance


@dataclass(frozen=True)
class Fitness:
    """Means and standard errors of P policies in D objectives; higher is better."""

    names: tuple[str, ...]
    means: Numbers = field(repr=False)  # [P, D]; NaN if unknown
    errors: Numbers = field(repr=False)  # [P, D] of the means; 0 if the mean is exact
    freedom: Numbers = field(repr=False)  # [P, D] degrees of freedom; infinite for exact errors
    together: Numbers | None = field(default=None, repr=False)
    """[P, P, D] upper bounds of the correlation of two policies' means, 0 to 1, due to common
    games; None if the policies are independent."""

    @property
    def judged(self) -> Bools:
        """[P]: whether a policy's mean and error are known in every objective."""
        known = np.isfinite(self.means) & np.isfinite(self.errors) & (self.freedom > 0.0)
        return np.asarray(known.all(1))

    def p_value(self, better: int, worse: int, objective: int = 0) -> float:
        """Return the p-value of the one-sided test that `better` is better than `worse`.

        Welch 1947, "The generalization of Student's problem when several different population
        variances are involved", with the degrees of freedom of Satterthwaite 1946. If both means
        are exact, the p-value is 0 or 1. In common games one policy's win may be the other's loss.
        So the error of the difference is the largest possible, as if means were negatively
        correlated.
        """
        from scipy import special  # imported here: runs without evolution import this file too

        pair = [better, worse]
        better_mean, worse_mean = self.means[pair, objective].tolist()
        errors, freedoms = self.errors[pair, objective].tolist(), self.freedom[pair, objective]
        difference = better_mean - worse_mean
        scale = max(errors)
        if scale == 0.0:
            return 0.0 if difference > 0.0 else 1.0
        squares = [(error / scale) ** 2 for error in errors]  # scaled, so that no square underflows
        shared = 0.0 if self.together is None else float(self.together[better, worse, objective])
        at_most = sum(squares) + 2.0 * shared * math.sqrt(squares[0] * squares[1])
        ratio = difference / scale / math.sqrt(at_most)
        inverse_freedom = sum(
            s**2 / freedom for s, freedom in zip(squares, freedoms.tolist(), strict=True)
        )
        if inverse_freedom == 0.0:
            return float(special.ndtr(-ratio))
        return float(special.stdtr(sum(squares) ** 2 / inverse_freedom, -ratio))


class FitnessEstimate(NamedTuple):
    """A policy's fitness in one objective, with its uncertainty."""

    value: float  # mean return of the policy or its team, metric, rating, or win rate
    error: float  # standard error of the value
    freedom: float = math.inf  # degrees of freedom of the error
    by_games: bool = True  # whether it is a mean over games, in which policies may be correlated


class Meetings(NamedTuple):
    """A policy's meetings with other policies since its birth, to bound correlations."""

    slot: int  # of the policy in the population
    games: float  # number of seats that it has played
    met: Numbers  # [policies] meetings by slot; at `slot`, meetings of two of the policy's seats

    @property
    def seats(self) -> float:
        """The policy's mean number of seats in a match, weighted by seats."""
        return 1.0 + float(self.met[self.slot]) / self.games if self.games else 1.0


class FitnessEstimates(NamedTuple):
    """The fitness estimates of a policy."""

    objectives: tuple[FitnessEstimate, ...]
    games: int  # games that the estimates are based on
    meetings: Meetings | None = None  # None if its games are independent of other policies'

    @property
    def value(self) -> float:
        return self.objectives[0].value


def estimate_fitness(
    member: Member, before: Sequence[float], objectives: Sequence[str], met: Numbers | None = None
) -> FitnessEstimates | None:
    """Estimate a policy's fitness from the games since its `numbers` were `before` [fields].

    `objectives`: names as in `population.evolution.fitness`; `met`: [policies] meetings by slot.
    """
    now = member.numbers.tolist()
    games = now[GAMES] - before[GAMES]
    if games < 2:
        return None
    meetings = Meetings(member.slot, now[GAMES], met) if met is not None else None
    seats = meetings.seats if meetings is not None else 1.0
    columns = _columns(objectives)
    found = [_estimate(now, before, games, seats, *each) for each in columns]
    known = tuple(each for each in found if each is not None)
    return FitnessEstimates(known, int(games), meetings) if len(known) == len(found) else None


def _columns(objectives: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield each objective with the column of its sum, if there is a sum."""
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
    """Return the estimate of one objective, or None without data.

    For a mean over games, `total` is the column of the sum. The results of a policy's seats in one
    match may be correlated, completely so with shared rewards. So they count as one game, which
    never overstates the sample size.
    """
    matches = games / seats
    if objective == "rating":
        return FitnessEstimate(now[RATING], now[UNCERTAINTY], by_games=False)
    if objective == "win_rate":
        met, won = now[MEETINGS] - before[MEETINGS], now[WINS] - before[WINS]
        if met <= 0:
            return None
        # Two matches, half of them won, are added, so that no error is 0 (Agresti and Coull).
        each = met / matches
        share = (won + each) / (met + 2.0 * each)
        return FitnessEstimate(share, math.sqrt(share * (1.0 - share) / (matches + 2.0)))
    square = SQUARES if total == REWARD else total + 1
    mean = (now[total] - before[total]) / games
    squares = (now[square] - before[square]) / games
    variance = max(squares - mean**2, 0.0) * games / (games - 1.0)
    error = max(math.sqrt(variance / matches), 1e-7 * abs(mean))  # returns are float32
    value = -mean if objective.endswith(":min") else mean
    return FitnessEstimate(value, error, max(matches - 1.0, 1.0))


def fitness_of(estimates: Mapping[str, FitnessEstimates]) -> Fitness:
    count = len(next(iter(estimates.values())).objectives) if estimates else 1
    columns = np.array([each.objectives for each in estimates.values()], np.float64)
    columns = np.moveaxis(columns.reshape(len(estimates), count, 4), 2, 0)
    means, errors, freedom, by_games = columns
    together = _together(estimates)[:, :, None] * by_games[None, :, :]
    return Fitness(tuple(estimates), means, errors, freedom, together)


def _together(estimates: Mapping[str, FitnessEstimates]) -> Numbers:
    """Return upper bounds of the correlation of two policies' means: [P, P].

    If n returns of one policy and m of the other include l pairs from common matches, the bound is
    l / sqrt(n m). Several seats of a policy in a match count once.
    """
    known = [each.meetings for each in estimates.values() if each.meetings is not None]
    if len(known) < len(estimates) or not estimates:
        return np.zeros((len(estimates), len(estimates)))
    slots = [each.slot for each in known]
    met = np.array([each.met[slots] for each in known])
    # Meetings since both policies exist, scaled to the games that both estimates are based on.
    played = np.array([each.games for each in known])
    games = np.array([each.games for each in estimates.values()], np.float64)
    seats = np.array([each.seats for each in known])
    pairs = met / np.minimum.outer(played, played) * np.minimum.outer(games, games)
    found: Numbers = np.minimum(pairs / np.sqrt(np.outer(games * seats, games * seats)), 1.0)
    return found


def unjudged(member: Member) -> list[float]:
    """Return the `numbers` that the member has before its first game."""
    return [*FRESH, *[0.0] * (len(member.numbers) - len(FRESH))]
