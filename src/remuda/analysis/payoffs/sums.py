"""Sums over matches from which payoffs are computed, in compiled code."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from remuda.analysis.payoffs.payoffs import Payoffs, from_sums
from remuda.system.kernels import njit
from remuda.types import Bools, Integers, Numbers

ROWS = 8  # number of sums in `add_up`


@njit(inline="always")
def _add(sums: Numbers, one: int, other: int, a: float, b: float, weight: float) -> None:
    sums[0, one, other] += weight
    sums[1, one, other] += weight * a
    sums[2, one, other] += weight * b
    sums[3, one, other] += weight * a * a
    sums[4, one, other] += weight * b * b
    sums[5, one, other] += weight * a * b


@njit(inline="always")
def _add_match(sums: Numbers, one: int, other: int, weight: float, share: float) -> None:
    sums[6, one, other] += share * weight * weight
    sums[7, one, other] += share


@njit(inline="always")
def _opponents(returns: Numbers, sides: Integers, present: Bools, size: Integers) -> int:
    """Find the seats that took part in a match, and return the number of opposing sides.

    `returns`, `sides`: [seats]. The function fills `present` (which seats took part and are on a
    side) and `size` (how many such seats are on each seat's side).
    """
    for i in range(sides.size):
        present[i] = sides[i] >= 0 and not math.isnan(returns[i])
    opponents = -1
    for i in range(sides.size):
        size[i], begins = 0, present[i]
        for j in range(sides.size):
            if present[j] and sides[i] == sides[j]:
                size[i] += 1
                begins &= j >= i
        opponents += begins
    return opponents


@njit(cache=True)
def add_up(
    places: Integers,
    returns: Numbers,
    sides: Integers,
    symmetric: bool,
    wins: bool,
    sums: Numbers,
) -> None:
    """Add the returns of matches to the sums of the pairs that met.

    Two seats of a match that are on different sides form a meeting. A return against several
    opponents is a single observation, and so are the returns of a policy with several seats in a
    team. The weight of an observation is divided among its meetings. So the precision of means over
    opponents corresponds to the number of matches. Several meetings of two policies in one match
    are one observation with their total weight. In a symmetric game a meeting counts for both
    orders; a meeting between two seats of one policy counts half for each order.

    - `places`: [M, seats] member numbers; -1: ignored.
    - `returns`: [M, seats]; NaN: the seat took no part and is ignored.
    - `sides`: [seats] the number of each seat's team; -1: a reserved seat, which meets no other.
    - `symmetric`: seats are interchangeable; otherwise the first of two seats is the first role.
    - `wins`: count wins as 1, losses as 0 and draws as 0.5, instead of returns.
    - `sums`: [8, N, N] to add to: weights, returns of row and column, their squares, their
      products, squared weights of matches, and numbers of matches with a meeting. [6, N, N]:
      without the last two.
    """
    seats = places.shape[1]
    present, size = np.zeros(seats, np.bool_), np.zeros(seats, np.int64)
    weights = np.zeros((seats, seats))
    first, own_seats = np.zeros(seats, np.int64), np.zeros(seats, np.int64)
    for m in range(places.shape[0]):
        opponents = _opponents(returns[m], sides, present, size)
        for i in range(seats):
            first[i], own_seats[i] = i, 0
            for j in range(seats):
                if places[m, j] == places[m, i] and present[j]:
                    first[i] = min(first[i], j)
                    own_seats[i] += sides[i] == sides[j]
        for i in range(seats):
            for j in range(i + 1, seats):
                row_member, column_member = places[m, i], places[m, j]
                if row_member < 0 or column_member < 0 or sides[i] == sides[j]:
                    continue
                if not (present[i] and present[j]):
                    continue
                a, b = returns[m, i], returns[m, j]
                if wins:
                    a, b = 0.5 + 0.5 * np.sign(a - b), 0.5 + 0.5 * np.sign(b - a)
                weight = 1.0 / (opponents * max(size[j] * own_seats[i], size[i] * own_seats[j]))
                row, column = first[i], first[j]
                if symmetric and row > column:
                    row, column = column, row
                weights[row, column] += weight
                if symmetric and row_member == column_member:
                    weight *= 0.5
                _add(sums, row_member, column_member, a, b, weight)
                if symmetric:
                    _add(sums, column_member, row_member, b, a, weight)
        for i in range(seats):
            for j in range(seats):
                if weights[i, j] > 0.0:
                    row_member, column_member = places[m, i], places[m, j]
                    if sums.shape[0] > 6:
                        share = 0.5 if symmetric and row_member == column_member else 1.0
                        _add_match(sums, row_member, column_member, weights[i, j], share)
                        if symmetric:
                            _add_match(sums, column_member, row_member, weights[i, j], share)
                    weights[i, j] = 0.0


def payoffs_of_matches(
    names: Sequence[str],
    places: Integers,
    returns: Numbers,
    sides: Integers,
    matches: int | None = None,
) -> Payoffs:
    """Return the symmetric payoffs of matches, whose arrays are those of `add_up`."""
    sums = np.zeros((ROWS, len(names), len(names)))
    add_up(places, returns, sides, True, False, sums)
    return from_sums(names, sums, True, matches)
