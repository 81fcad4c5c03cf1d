"""Sums of team returns and episode metrics in each member's matches, for evolution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from remuda.kernels import njit
from remuda.population.records import TEAM, TEAM_SQUARES, Numbers
from remuda.types import Bools, Floats, Integers


def sides_by_agent(teams: Sequence[str]) -> Integers:
    """Return the number of each agent's team: [num_agents]."""
    if not any(teams):
        return np.zeros(len(teams), np.int64)
    keys = [team or number for number, team in enumerate(teams)]
    names = list(dict.fromkeys(keys))
    return np.array([names.index(key) for key in keys], np.int64)


@njit(cache=True)
def count_teams(
    places: Integers, returns: Numbers, over: Bools, sides: Integers, numbers: Numbers
) -> None:
    """Add up, for each seat that took part, the mean return of its team's seats that did.

    sides: [seats] the number of each seat's team.
    numbers: [places, fields] of the members, to be added to.
    """
    seats = places.shape[1]
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
            numbers[places[m, i], TEAM] += mean
            numbers[places[m, i], TEAM_SQUARES] += mean**2


@njit(cache=True)
def count_metrics(
    places: Integers, returns: Numbers, metrics: Floats, over: Bools, numbers: Numbers, first: int
) -> None:
    """Add up, for each seat that took part, the metrics of the episode, and their squares.

    numbers: [places, fields] of the members, to be added to.
    """
    for m in range(len(over)):
        if not over[m]:
            continue
        for i in range(places.shape[1]):
            if math.isnan(returns[m, i]):
                continue
            for metric in range(len(metrics)):
                value = float(metrics[metric, m])
                numbers[places[m, i], first + 2 * metric] += value
                numbers[places[m, i], first + 2 * metric + 1] += value**2
