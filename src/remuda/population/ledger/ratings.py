"""Skill ratings with uncertainty (the Plackett-Luce model), and sums of results for evolution.

The update is algorithm 4 of Weng and Lin 2011, "A Bayesian approximation method for online
ranking", as in openskill 6; a test compares the two. The compiled code takes one or two
microseconds per match. So the actor rates every match in the turn in which it ends, and ratings are
reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from remuda.population.ledger.records import (
    RATING,
    TEAM,
    TEAM_SQUARES,
    UNCERTAINTY,
    Member,
    Numbers,
)
from remuda.system.kernels import njit
from remuda.types import Bools, Floats, Integers

BETA = 25.0 / 6.0  # standard deviation of the performance in one match around the skill
KAPPA = 1e-4  # minimum share of a variance that remains after a match
TAU = 25.0 / 600.0
"""Standard deviation of the change of a skill before each match; its square is added to the
variance. It is half of openskill's default, since a policy hardly changes over 1000 matches."""


def sides_of(teams: Sequence[str], seats: int, taken: Collection[int] = ()) -> Integers:
    """Return each seat's side: [seats]; -1 for `taken`. A seat without a team is its own side."""
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


def probability_of_order(better: Member, worse: Member) -> float:
    """Return the probability that `better` has the higher skill, according to both ratings."""
    spread = math.hypot(better.uncertainty, worse.uncertainty)
    if spread == 0.0:
        return 0.5 + 0.5 * float(np.sign(better.rating - worse.rating))
    return 0.5 * math.erfc((worse.rating - better.rating) / (spread * math.sqrt(2.0)))


@njit(inline="always")
def sides_there(
    slots: Integers, returns: Numbers, sides: Integers, side_of: Integers, sizes: Integers
) -> tuple[int, bool]:
    """Return how many sides took part in a match, and whether one member had all their seats.

    Outputs: `side_of` [seats], the number of each seat's side among those that took part, or -1;
    `sizes` [sides], the number of seats that took part, by that number.
    """
    sizes[:] = 0
    first, single = -1, True
    for i in range(sides.size):
        if not math.isnan(returns[i]):
            sizes[sides[i]] += 1
            first = slots[i] if first < 0 else first
            single &= slots[i] == first
    for i in range(sides.size):
        side_of[i] = -1
        if not math.isnan(returns[i]):
            side_of[i] = 0
            for side in range(sides[i]):
                side_of[i] += sizes[side] > 0
    count = 0
    for side in range(sizes.size):
        if sizes[side] > 0:
            sizes[count] = sizes[side]
            count += 1
    return count, single


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
    """Compute the update of each side: `omega` and `delta` of algorithm 4.

    All arguments are [sides]. `mean` is the mean return, `mu` and `variance` are sums of ratings
    and of variances; `q`, `sum_q` and `ties` are scratch space.
    """
    count = mean.size
    c = np.sqrt((variance + BETA**2).sum())
    q[:] = np.exp((mu - mu.max()) / c)  # only ratios matter; this avoids overflow
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
    slots: Integers,
    m: int,
    side_of: Integers,
    new_mu: Numbers,
    new_sigma: Numbers,
    numbers: Numbers,
) -> None:
    """Write the new rating of each policy in match `m`: the mean over its seats that took part."""
    seats = new_mu.size
    for i in range(seats):
        if side_of[i] < 0:
            continue
        slot, found, rating, uncertainty = slots[m, i], 0, 0.0, 0.0
        for j in range(seats):
            if slots[m, j] == slot and side_of[j] >= 0:
                found += 1
                rating += new_mu[j]
                uncertainty += new_sigma[j]
        numbers[slot, RATING] = rating / found
        numbers[slot, UNCERTAINTY] = uncertainty / found


@njit(cache=True)
def rate_all(
    slots: Integers, returns: Numbers, over: Bools, sides: Integers, numbers: Numbers
) -> None:
    """Update the ratings with the results of matches, one after another.

    Sides are ranked by the mean return of their seats; equal means are a draw. A seat whose return
    is NaN took no part: its rating stays, and its side is rated without it. A policy on several
    seats gets the mean of their updates. A match of one side, or of one policy against itself,
    changes nothing.

    sides: [seats] the number of each seat's side, from 0 on.
    numbers: [slots, fields] of the members; their ratings are updated in place.
    """
    seats = sides.size
    count = sides.max() + 1
    mean, mu, variance, q = np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count)
    sum_q, omega, delta = np.zeros(count), np.zeros(count), np.zeros(count)
    sizes, ties = np.zeros(count, np.int64), np.zeros(count, np.int64)
    side_of = np.zeros(seats, np.int64)  # among sides that took part; -1 if the seat did not
    new_mu, new_sigma = np.zeros(seats), np.zeros(seats)
    for m in range(len(over)):
        if not over[m]:
            continue
        count, single = sides_there(slots[m], returns[m], sides, side_of, sizes)
        if single or count < 2:
            continue
        mean[:] = mu[:] = variance[:] = 0.0
        for i in range(seats):
            if side_of[i] < 0:
                continue
            member = numbers[slots[m, i]]
            mean[side_of[i]] += returns[m, i]
            mu[side_of[i]] += member[RATING]
            variance[side_of[i]] += member[UNCERTAINTY] ** 2 + TAU**2
        mean[:count] /= sizes[:count]  # divided at the end, so that equal sums are a draw
        _rate_sides(
            mean[:count], mu[:count], variance[:count], q[:count], sum_q, ties, omega, delta
        )
        for i in range(seats):
            if side_of[i] < 0:
                continue
            member, side = numbers[slots[m, i]], side_of[i]
            own = member[UNCERTAINTY] ** 2 + TAU**2
            part = own / variance[side]
            new_mu[i] = member[RATING] + part * omega[side]
            new_sigma[i] = np.sqrt(own * max(1.0 - part * delta[side], KAPPA))
        _write_means(slots, m, side_of, new_mu, new_sigma, numbers)


def sides_by_agent(teams: Sequence[str]) -> Integers:
    """Return the number of each agent's team: [num_agents]; all 0 if there are no teams."""
    return sides_of(teams, len(teams)) if any(teams) else np.zeros(len(teams), np.int64)


@njit(cache=True)
def count_teams(
    slots: Integers, returns: Numbers, over: Bools, sides: Integers, numbers: Numbers
) -> None:
    """Add to each seat's member the mean return of its team, and the square; skip NaN returns."""
    seats = slots.shape[1]
    for m in range(len(over)):
        if not over[m]:
            continue
        for i in range(seats):
            if math.isnan(returns[m, i]):
                continue
            total, members = 0.0, 0
            for j in range(seats):
                if sides[j] == sides[i] and not math.isnan(returns[m, j]):
                    total += returns[m, j]
                    members += 1
            mean = total / members
            numbers[slots[m, i], TEAM] += mean
            numbers[slots[m, i], TEAM_SQUARES] += mean**2


@njit(cache=True)
def count_metrics(
    slots: Integers, returns: Numbers, metrics: Floats, over: Bools, numbers: Numbers, first: int
) -> None:
    """Add up the episode's metrics and their squares for each seat that took part."""
    for m in range(len(over)):
        if not over[m]:
            continue
        for i in range(slots.shape[1]):
            if math.isnan(returns[m, i]):
                continue
            for metric in range(len(metrics)):
                value = float(metrics[metric, m])
                numbers[slots[m, i], first + 2 * metric] += value
                numbers[slots[m, i], first + 2 * metric + 1] += value**2
