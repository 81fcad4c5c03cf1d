"""Ratings from match results: Elo by maximum likelihood, and Plackett-Luce over time.

Elo here is the model of Bradley and Terry (1952, "Rank analysis of incomplete block designs") on
the scale of chess: 400 points are odds of ten to one. All results are fitted at once; their order
does not matter, which suits policies that do not change. For policies that change,
`ledger_history` updates ratings match by match (Weng and Lin 2011). Neither model can represent
cycles: see `remuda.analysis.structure.transitivity`. A newborn is a policy that replaced another
in the population of a training run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import special

from remuda.analysis.as_json import Summary
from remuda.analysis.payoffs.ledger_reader import LedgerReader, keys_of, parents_of
from remuda.analysis.payoffs.ledger_seats import check_sides
from remuda.analysis.payoffs.payoffs import KNOWN, Payoffs, check_level
from remuda.errors import UsageError
from remuda.population.ledger.ratings import rate_all, sides_there
from remuda.population.ledger.records import FRESH, GAMES, RATING, UNCERTAINTY
from remuda.system.kernels import njit
from remuda.types import Integers, Numbers

POINTS = 400.0 / math.log(10.0)  # Elo points of a difference of 1 in log odds
PRIOR = 1.0  # virtual matches against average skill, half of them won: keeps ratings finite
STEPS = 200  # Newton steps; ten are usual


@dataclass(frozen=True)
class Elo:
    """Ratings by maximum likelihood, with intervals."""

    names: tuple[str, ...]  # of the n strategies
    ratings: Numbers  # [n] Elo points; their mean is 0
    errors: Numbers  # [n] standard errors of `ratings`, relative to their mean
    intervals: Numbers = field(repr=False)  # [2, n] at probability `level`
    covariance: Numbers = field(repr=False)  # [n, n]; differences vary less than `errors` suggest
    matches: Numbers  # [n] number of matches of each strategy
    prior: float  # virtual matches against average skill
    level: float


def elo(
    wins: npt.ArrayLike | Payoffs,
    draws: npt.ArrayLike | None = None,
    *,
    names: Sequence[str] = (),
    prior: float = PRIOR,
    level: float = 0.95,
) -> Elo:
    """Fit Elo ratings to results.

    A draw is half a win for both. The covariance is the inverse Fisher information, in which a draw
    is as uncertain as a win. With many draws, intervals are therefore slightly too wide.

    - `wins`: [n, n] how often the row beat the column; or `run.payoffs(wins=True)`.
    - `draws`: [n, n] how often they drew, symmetric; None: never.
    - `prior`: number of virtual matches against a strategy of average skill, half of them won.
    """
    check_level(level)
    if isinstance(wins, Payoffs):
        if draws is not None or names:
            raise UsageError("elo: Payoffs have their own draws and names; leave both out")
        return elo_of(wins, prior, level)
    won = np.array(wins, np.float64)
    drawn = np.zeros_like(won) if draws is None else np.array(draws, np.float64)
    if won.ndim != 2 or won.shape[0] != won.shape[1] or won.shape != drawn.shape or not len(won):
        raise UsageError(
            f"wins and draws must both be [n, n]; they have shapes {won.shape} and {drawn.shape}"
        )
    for what, counts in (("wins", won), ("draws", drawn)):
        np.fill_diagonal(counts, 0.0)  # self-play has no information
        if not np.isfinite(counts).all() or (counts < 0.0).any():
            raise UsageError(f"{what}: they must be counts, 0 or more")
    if not np.array_equal(drawn, drawn.T):
        raise UsageError("draws: they must be symmetric, the same for both strategies of a pair")
    if not (prior > 0.0 and math.isfinite(prior)):
        raise UsageError(
            f"prior: it must be above 0, or an unbeaten strategy is rated inf; this is {prior}"
        )
    if names and len(names) != len(won):
        raise UsageError(f"names: there are {len(names)} for {len(won)} strategies")
    shares, meetings = won + drawn / 2.0, won + won.T + drawn
    skills = _fit(shares, meetings, prior)
    centre = np.eye(len(won)) - 1.0 / len(won)
    covariance = centre @ np.linalg.inv(_information(skills, meetings, prior)) @ centre * POINTS**2
    ratings = (skills - skills.mean()) * POINTS
    errors = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    half = special.ndtri(0.5 + level / 2.0) * errors
    return Elo(
        tuple(names) or tuple(str(place) for place in range(len(won))),
        ratings,
        errors,
        np.stack([ratings - half, ratings + half]),
        covariance,
        meetings.sum(1),
        prior,
        level,
    )


def elo_of(payoffs: Payoffs, prior: float = PRIOR, level: float = 0.95) -> Elo:
    """Fit Elo ratings to wins (1, 0.5, 0) of `read_payoffs(wins=True)`; pairs may be missing."""
    payoffs.check_symmetric("elo")
    has_met = ~np.eye(len(payoffs.names), dtype=np.bool_) & ~payoffs.missing
    shares = np.where(has_met, payoffs.matrix, 0.5)
    if (shares < -1e-9).any() or (shares > 1.0 + 1e-9).any() or np.ptp(shares + shares.T) > 1e-6:
        raise UsageError(
            "elo: payoffs must be shares of wins, which add up to 1 for a pair; count wins instead "
            "of returns (`read_payoffs(wins=True)`)"
        )
    if (payoffs.counts[has_met] >= KNOWN).any():
        raise UsageError(
            "elo: these payoffs are known exactly, without matches to weight them by; pass "
            "numbers of wins to `elo`"
        )
    counts = np.where(has_met, payoffs.counts, 0)
    won = np.clip(shares, 0.0, 1.0) * counts
    return elo(won, names=payoffs.names, prior=prior, level=level)


def _fit(shares: Numbers, met: Numbers, prior: float) -> Numbers:
    """Return the maximum-likelihood log skills [n], by Newton's method with a line search."""
    skills = np.zeros(len(shares))
    least = _loss(skills, shares, prior)
    for _ in range(STEPS):
        expected = met * special.expit(np.subtract.outer(skills, skills))
        slope = (shares - expected).sum(1) + prior * (0.5 - special.expit(skills))
        step = np.linalg.solve(_information(skills, met, prior), slope)
        if np.abs(step).max() < 1e-10:
            break
        scale = 1.0
        while scale > 1e-9:
            loss = _loss(skills + scale * step, shares, prior)
            if loss <= least:
                break
            scale /= 2.0
        else:
            break  # no step size improves the loss beyond rounding
        skills, least = skills + scale * step, loss
    return skills


def _loss(skills: Numbers, shares: Numbers, prior: float) -> float:
    """Return the negative log likelihood, including the prior's matches."""
    found = -(shares * special.log_expit(np.subtract.outer(skills, skills))).sum()
    own = special.log_expit(skills) + special.log_expit(-skills)
    return float(found - prior / 2.0 * own.sum())


def _information(skills: Numbers, met: Numbers, prior: float) -> Numbers:
    """Return the [n, n] Fisher information of the log skills."""
    rates = special.expit(np.subtract.outer(skills, skills))
    weights = met * rates * (1.0 - rates)
    own = special.expit(skills)
    found: Numbers = np.diag(weights.sum(1) + prior * own * (1.0 - own)) - weights
    return found


@dataclass(frozen=True)
class RatingHistory(Summary):
    """Ratings at several numbers of matches, on openskill's scale."""

    names: tuple[str, ...]  # of the n strategies
    matches: Integers  # [C] number of matches before each recorded rating
    ratings: Numbers = field(repr=False)  # [C, n] means of the skills; 25 before the first match
    uncertainties: Numbers = field(repr=False)  # [C, n] standard deviations; 25 / 3 at first
    played: Integers = field(repr=False)  # [C, n] matches of each strategy

    def intervals(self, level: float = 0.95) -> Numbers:
        """Return intervals of the skills: [2, C, n]."""
        check_level(level)
        half = float(special.ndtri(0.5 + level / 2.0)) * self.uncertainties
        return np.stack([self.ratings - half, self.ratings + half])


def ledger_history(
    path: Path, *, sides: Sequence[int] = (), checkpoints: int = 100
) -> RatingHistory:
    """Rate the matches of a ledger in their order, as the run did while it trained.

    Ratings are recorded at even intervals. A live policy is one strategy, whichever version acted,
    and so is each of its frozen copies. A newborn starts with its parent's rating and the initial
    uncertainty. A seat whose return is NaN took no part, and its rating does not change.
    """
    if checkpoints < 1:
        raise UsageError(f"checkpoints: there must be at least one; this is {checkpoints}")
    reader = LedgerReader.open(path)
    of_seat = check_sides(sides, reader.seats)
    # Seats without a side play for themselves: each becomes its own side.
    no_side = of_seat < 0
    of_seat[no_side] = of_seat.max(initial=0) + 1 + np.arange(int(no_side.sum()))
    of_seat = np.unique(of_seat, return_inverse=True)[1].astype(np.int64)
    keys, total = np.zeros(0, np.int64), 0
    for matches in reader.pieces():
        keys, total = np.union1d(keys, keys_of(matches)), total + len(matches)
    if not total:
        raise UsageError(f"{path} has no finished match")
    ends = np.linspace(0, total, min(checkpoints, total) + 1).round()[1:]
    marks: Integers = np.unique(ends.astype(np.int64))
    numbers = np.tile(np.array(FRESH), (len(keys), 1))
    recorded, rated = [], 0
    for births, matches in reader.generations():
        for born, parent in parents_of(births, keys):
            numbers[born, UNCERTAINTY] = FRESH[UNCERTAINTY]
            numbers[born, RATING] = numbers[parent, RATING] if parent >= 0 else FRESH[RATING]
        places, returns = np.searchsorted(keys, keys_of(matches)), matches["returns"]
        start = 0
        for end in marks[(marks > rated) & (marks <= rated + len(matches))] - rated:
            _rate(places[start:end], returns[start:end].astype(np.float64), of_seat, numbers)
            recorded.append(numbers.copy())
            start = end
        _rate(places[start:], returns[start:].astype(np.float64), of_seat, numbers)
        rated += len(matches)
    found = np.array(recorded)
    return RatingHistory(
        tuple(str(reader.ref(key)) for key in keys.tolist()),
        marks,
        found[:, :, RATING],
        found[:, :, UNCERTAINTY],
        np.rint(found[:, :, GAMES]).astype(np.int64),
    )


@njit(cache=True)
def _rate(places: Integers, returns: Numbers, sides: Integers, numbers: Numbers) -> None:
    """Rate matches in order, and count those of each strategy."""
    over, sizes = np.ones(1, np.bool_), np.zeros(sides.max() + 1, np.int64)
    side_of = np.zeros(len(sides), np.int64)
    for m in range(len(places)):
        count, single_side = sides_there(places[m], returns[m], sides, side_of, sizes)
        if single_side or count < 2:
            continue
        for i in range(len(sides)):
            place, again = places[m, i], side_of[i] < 0
            for j in range(i):
                again |= places[m, j] == place and side_of[j] >= 0
            if not again:
                numbers[place, GAMES] += 1.0
        rate_all(places[m : m + 1], returns[m : m + 1], over, sides, numbers)
