"""Ratings of skill from results, with their uncertainty: the model of Plackett and Luce.

The update is that of Weng and Lin 2011, "A Bayesian approximation method for online ranking",
algorithm 4, as openskill 6 has it; a test holds the two together. Compiled it costs a microsecond
or two for a match, so the actor rates every match in the turn in which it is over, and ratings
repeat themselves exactly wherever the matches do.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from remuda.kernels import njit
from remuda.population.records import (
    RATING,
    UNCERTAINTY,
    Member,
    Numbers,
    Population,
    Result,
)
from remuda.types import Bools, Integers

BETA = 25.0 / 6.0
"""Standard deviation of a performance around the skill."""
KAPPA = 1e-4
"""The least that one match leaves of a variance, as a share."""
TAU = 25.0 / 600.0
"""Added to the uncertainty, in squares, before each match: skills change. Half of openskill's
default, since here a thousand matches pass while a policy hardly changes."""


def sides_of(teams: Sequence[str], seats: int, taken: Collection[int] = ()) -> Integers:
    """By seat, the number of its side: [seats]. Without a team it stands for itself.

    Args:
        teams: by seat, its team; empty, or an empty name: none.
        seats: of the game.
        taken: seats on no side, -1: those that are taken for good, where who sits there is nobody's
            opponent.
    """
    numbers: dict[object, int] = {}
    return np.array(
        [
            -1
            if seat in taken
            else numbers.setdefault((teams[seat] if teams else "") or seat, len(numbers))
            for seat in range(seats)
        ],
        np.int64,
    )


def rate(population: Population, result: Result, teams: Sequence[str] = ()) -> None:
    """Let one result change the ratings of all who sat; nothing, where one of them is gone.

    Args:
        population: the members, whose ratings are changed.
        result: what came of a match.
        teams: by seat, its team; empty, or an empty name: it stands for itself.
    """
    seats = result.match.seats
    if any(ref not in population for ref in seats):
        return
    places = np.array([[population[ref].place for ref in seats]])
    returns = np.array([result.returns], np.float64)
    sides = sides_of(teams, len(seats))
    rate_all(places, returns, np.ones(1, np.bool_), sides, population.numbers)


def probability_of_order(better: Member, worse: Member) -> float:
    """Return the probability, by their ratings, that the skill of one is above the other's."""
    spread = math.hypot(better.uncertainty, worse.uncertainty)
    if spread == 0.0:
        return 0.5 + 0.5 * float(np.sign(better.rating - worse.rating))
    return 0.5 * math.erfc((worse.rating - better.rating) / (spread * math.sqrt(2.0)))


@njit(inline="always")
def _rate_sides(
    mean: Numbers,
    mu: Numbers,
    variance: Numbers,
    q: Numbers,
    sum_q: Numbers,
    ties: Integers,
    omega: Numbers,
    delta: Numbers,
) -> None:
    """Work out by how much the match changes each side: `omega` and `delta` of algorithm 4.

    All are [sides]: mean return, sums of ratings and of variances; `q`, `sum_q` and `ties` are
    room to work in.
    """
    count = mean.size
    c = np.sqrt((variance + BETA**2).sum())
    q[:] = np.exp((mu - mu.max()) / c)  # only their ratios count
    for i in range(count):
        sum_q[i], ties[i] = 0.0, 0
        for j in range(count):
            if mean[j] <= mean[i]:
                sum_q[i] += q[j]
            if mean[j] == mean[i]:
                ties[i] += 1
    for i in range(count):
        omega[i] = delta[i] = 0.0
        for j in range(count):
            if mean[j] < mean[i]:
                continue
            share = q[i] / sum_q[j]
            delta[i] += share * (1.0 - share) / ties[j]
            omega[i] += ((1.0 if i == j else 0.0) - share) / ties[j]
        omega[i] *= variance[i] / c
        delta[i] *= variance[i] / c**2 * (np.sqrt(variance[i]) / c)


@njit(inline="always")
def _write_means(
    places: Integers, m: int, new_mu: Numbers, new_sigma: Numbers, numbers: Numbers
) -> None:
    """Give each policy of match `m` the mean of what its seats would make of it."""
    seats = new_mu.size
    for i in range(seats):
        place, found, rating, uncertainty = places[m, i], 0, 0.0, 0.0
        for j in range(seats):
            if places[m, j] == place:
                found += 1
                rating += new_mu[j]
                uncertainty += new_sigma[j]
        numbers[place, RATING] = rating / found
        numbers[place, UNCERTAINTY] = uncertainty / found


@njit(cache=True)
def rate_all(
    places: Integers, returns: Numbers, over: Bools, sides: Integers, numbers: Numbers
) -> None:
    """Rate matches, one after another.

    Sides are ranked by the mean return of their seats; equal means are a draw. A policy on several
    seats of one match is rated once, by the mean of what its seats would make of it. A match
    of one side, or of one policy against itself, changes nothing.

    Args:
        places: [M, seats] who sat where, by place in the population.
        returns: [M, seats].
        over: [M] which of these matches are over.
        sides: [seats] by seat, the number of its side, from 0 on.
        numbers: [places, fields] of the members, whose ratings are changed.
    """
    seats = sides.size
    count = sides.max() + 1
    mean, mu, variance, q = np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count)
    sum_q, omega, delta = np.zeros(count), np.zeros(count), np.zeros(count)
    sizes, ties = np.zeros(count, np.int64), np.zeros(count, np.int64)
    new_mu, new_sigma = np.zeros(seats), np.zeros(seats)
    for side in sides:
        sizes[side] += 1
    for m in range(len(over)):
        alone = True
        for i in range(1, seats):
            alone &= places[m, i] == places[m, 0]
        if not over[m] or alone or count < 2:
            continue
        mean[:] = mu[:] = variance[:] = 0.0
        for i in range(seats):
            member = numbers[places[m, i]]
            mean[sides[i]] += returns[m, i]
            mu[sides[i]] += member[RATING]
            variance[sides[i]] += member[UNCERTAINTY] ** 2 + TAU**2
        mean /= sizes  # last, so that equal sums are a draw
        _rate_sides(mean, mu, variance, q, sum_q, ties, omega, delta)
        for i in range(seats):
            member, side = numbers[places[m, i]], sides[i]
            own = member[UNCERTAINTY] ** 2 + TAU**2
            part = own / variance[side]
            new_mu[i] = member[RATING] + part * omega[side]
            new_sigma[i] = np.sqrt(own * max(1.0 - part * delta[side], KAPPA))
        _write_means(places, m, new_mu, new_sigma, numbers)
