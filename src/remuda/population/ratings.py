"""Ratings of skill from results, with their uncertainty: openskill's model of Plackett and Luce."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from remuda.population.records import Population, Result


def rate(population: Population, result: Result, teams: Sequence[str] = ()) -> None:
    """Let a result count: in games, reward and rating of all who sat, those who still exist.

    Teams are ranked by the mean return of their seats; without teams everybody stands alone. A
    policy on several seats of one match is rated once, by the mean of what its seats would make of
    it.

    Args:
        population: the members, whose records are changed.
        result: what came of a match.
        teams: by seat, its team; empty, or an empty name: it stands for itself.
    """
    seats = result.match.seats
    model = _model()
    sides: dict[object, list[int]] = {}
    for seat in range(len(seats)):
        sides.setdefault((teams[seat] if teams else "") or seat, []).append(seat)
    members = {ref: population[ref] for ref in set(seats) if ref in population}
    for seat, ref in enumerate(seats):
        if ref in members:
            members[ref].games += 1
            members[ref].total_reward += result.returns[seat]
    if len(sides) < 2 or len(members) < len(set(seats)):
        return
    groups = list(sides.values())
    before = [
        [
            model.rating(mu=members[seats[s]].rating, sigma=members[seats[s]].uncertainty)
            for s in side
        ]
        for side in groups
    ]
    scores = [float(np.mean([result.returns[s] for s in side])) for side in groups]
    after = model.rate(before, scores=scores)
    found: dict[Any, list[tuple[float, float]]] = {}
    for side, rated in zip(groups, after, strict=True):
        for seat, rating in zip(side, rated, strict=True):
            found.setdefault(seats[seat], []).append((rating.mu, rating.sigma))
    for ref, ratings in found.items():
        means = np.mean(ratings, axis=0)
        members[ref].rating, members[ref].uncertainty = float(means[0]), float(means[1])


@cache
def _model() -> Any:
    from openskill.models import PlackettLuce

    return PlackettLuce()
