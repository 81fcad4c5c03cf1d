"""Ratings of skill from results, with their uncertainty: openskill's model of Plackett and Luce."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from remuda.population.records import PolicyRef, Population, Result
from remuda.types import State


def rate(population: Population, result: Result, teams: Sequence[str] = ()) -> None:
    """Let a result change the ratings of all who sat; nothing, where one of them is gone.

    Teams are ranked by the mean return of their seats; without teams everybody stands alone. A
    policy on several seats of one match is rated once, by the mean of what its seats would make of
    it.

    Args:
        population: the members, whose ratings are changed.
        result: what came of a match.
        teams: by seat, its team; empty, or an empty name: it stands for itself.
    """
    seats = result.match.seats
    model = _model()
    sides: dict[object, list[int]] = {}
    for seat in range(len(seats)):
        sides.setdefault((teams[seat] if teams else "") or seat, []).append(seat)
    members = {ref: population[ref] for ref in set(seats) if ref in population}
    if len(sides) < 2 or len(members) < len(set(seats)) or len(members) < 2:
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
        members[ref].rate(*(float(mean) for mean in np.mean(ratings, axis=0)))


class Rater:
    """Rates results one by one, at its own pace, so that no game waits for it.

    Where results come faster, those that it has no room for are never rated.
    """

    ROOM = 64

    def __init__(self, teams: Sequence[str] = ()) -> None:
        self._teams = tuple(teams)
        self._waiting: deque[Result] = deque()

    @property
    def room(self) -> int:
        """How many results more it takes."""
        return self.ROOM - len(self._waiting)

    def add(self, result: Result) -> None:
        """Rate this when it is its turn, if there is room."""
        if self.room:
            self._waiting.append(result)

    def forget(self, ref: PolicyRef) -> None:
        """Somebody else has this name from now on."""
        kept = [result for result in self._waiting if ref not in result.match.seats]
        self._waiting = deque(kept)

    def step(self, population: Population) -> None:
        """Rate the oldest that waits."""
        if self._waiting:
            rate(population, self._waiting.popleft(), self._teams)

    def state(self) -> State:
        """What still waits."""
        return {"waiting": [result.plain() for result in self._waiting]}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self._waiting.clear()
        self._waiting.extend(Result.from_plain(plain) for plain in state["waiting"])


@cache
def _model() -> Any:
    from openskill.models import PlackettLuce

    return PlackettLuce()
