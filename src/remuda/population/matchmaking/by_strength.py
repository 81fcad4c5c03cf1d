"""Matchmakers by strength: opponents of similar rating, or prioritised fictitious self-play."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.random import Generator

from remuda.errors import ConfigError
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import RATING, Member, Population
from remuda.population.matchmaking.matchmaker import Matchmaker, draw_uniformly
from remuda.population.matchmaking.seating import Seating, seat_all
from remuda.types import Array, Bools, Integers


class SimilarRatings(Matchmaker):
    """A matchmaker of equals: if possible, ratings in a match differ by at most the window.

    The first policy of a match is drawn uniformly from the live policies. So each of L live
    policies plays in at least 1 / L of the matches on average, regardless of its rating. The rest
    are drawn from the policies within the window; if there are too few, the policies with the
    closest ratings play. If no such group may take the seats, any allowed policies are drawn.
    """

    seats_differ = True
    exchangeable = True

    def __init__(self, num_seats: int, window: float) -> None:
        super().__init__(num_seats)
        self.window = window

    def seat(self, population: Population, ledger: Ledger, rng: Generator) -> Seating:  # noqa: ARG002
        ratings = population.numbers[population.slots, RATING]
        order = np.argsort(ratings, kind="stable")
        members = population.members
        learns: Bools = population.view(
            "learns", lambda: np.array([member.learns for member in members])
        )
        live = learns[order]
        first = np.flatnonzero(live if live.any() else ~live)
        player = int(first[rng.integers(len(first))])
        # Try several groups of equals; of so few members there is only one.
        for _ in range(20 if len(members) > self.num_seats else 1):
            group = self._draw_group(ratings[order], live, player, rng)
            seating = seat_all([members[order[i]] for i in group], self.num_seats, rng)
            if seating:
                return seating
        # The seats are restricted, and no group of equals may take them: draw any allowed policies.
        return draw_uniformly(self, population, rng)

    def _draw_group(self, ratings: Array, live: Bools, one: int, rng: Generator) -> list[int]:
        """Choose the players: [seats], indices into the members sorted by rating."""
        seats, count = self.num_seats, len(ratings)
        if count <= seats:
            return list(range(count))
        # Every group within the window is part of a range of neighbours; choose one of the ranges
        # that contain the first player.
        ends = np.searchsorted(ratings, ratings + self.window, side="right")
        largest = np.diff(ends, prepend=0) > 0  # skip ranges that are part of another range
        firsts = np.flatnonzero((ends - np.arange(count) >= seats) & largest)
        ends = ends[firsts]
        own = np.flatnonzero((firsts <= one) & (one < ends))
        if not len(own):
            return self._closest(ratings, one)
        run = int(own[rng.integers(len(own))])
        others = np.arange(firsts[run], ends[run])
        others = others[others != one]
        if live.all():
            chosen = others[rng.choice(len(others), seats - 1, replace=False)]
            return [one, *chosen.tolist()]
        learning, frozen = others[live[others]], others[~live[others]]
        past = int((rng.random(seats - 1) < self.past_share).sum())
        past = min(max(past, seats - 1 - len(learning)), len(frozen))
        chosen = learning[rng.choice(len(learning), seats - 1 - past, replace=False)]
        drawn = frozen[rng.choice(len(frozen), past, replace=False)]
        return [one, *chosen.tolist(), *drawn.tolist()]

    def _closest(self, ratings: Array, one: int) -> list[int]:
        """Return the group of neighbours with the closest ratings, including the first player."""
        seats = self.num_seats
        firsts = np.arange(max(one - seats + 1, 0), min(one, len(ratings) - seats) + 1)
        first = int(firsts[np.argmin(ratings[firsts + seats - 1] - ratings[firsts])])
        return list(range(first, first + seats))


WEIGHTINGS: Mapping[str, Callable[[Array], Array]] = {
    "hard": lambda loses: loses**2,
    "even": lambda loses: loses * (1.0 - loses),
    "capped": lambda loses: np.minimum(loses, 0.5),
    "uniform": lambda loses: np.ones(len(loses)),
}
"""Weightings of the loss probability 1 - x, x being the win rate. The first three are `squared`,
`variance` and `linear_capped` in the supplement of Vinyals et al. 2019; the last is fictitious
self-play."""


class Prioritized(Matchmaker):
    """Prioritised fictitious self-play (PFSP): opponents drawn by the probability to lose to them.

    Learners take turns, and each takes every seat in turn. Opponents are drawn in proportion to a
    weighting of the loss probability (Vinyals et al. 2019, "Grandmaster level in StarCraft II"). If
    all weights are 0, the draw is uniform.
    """

    seats_differ = True
    exchangeable = True

    def __init__(self, num_seats: int, weighting: str = "hard") -> None:
        super().__init__(num_seats)
        if weighting not in WEIGHTINGS:
            known = ", ".join(WEIGHTINGS)
            raise ConfigError(f"there is no weighting {weighting!r}; there are {known}")
        self._weigh = WEIGHTINGS[weighting]

    def seat(self, population: Population, ledger: Ledger, rng: Generator) -> Seating:
        learning = population.learning
        if not learning:
            raise ConfigError("no policy in the population learns, so no opponents are chosen")
        turn, seat = divmod(self.proposed, self.num_seats)
        learner = learning[turn % len(learning)]
        if not learner.may_sit(seat):
            seat = next(seat for seat in range(self.num_seats) if learner.may_sit(seat))
        return self.seat_for(learner, seat, population, ledger, rng)

    def seat_for(
        self, learner: Member, own_seat: int, population: Population, ledger: Ledger, rng: Generator
    ) -> Seating:
        is_past = self._other_past_seats(own_seat, population, rng)
        slots, members = population.slots, population.members
        weights = self._weigh(1.0 - ledger.win_rates_at(learner.slot, slots))
        free = np.ones(len(slots), np.bool_)  # members without a seat so far
        free[np.searchsorted(slots, learner.slot)] = False
        seated = []
        for seat in range(self.num_seats):
            if seat == own_seat:
                seated.append(learner.ref)
                continue
            rows = self._rows(population, seat, "past" if is_past[seat] else "live")
            able = rows[free[rows]]
            if not len(able):  # too few of this kind; if all members are used, some sit twice
                rows = self._rows(population, seat, "all")
                able = rows[free[rows]]
                able = able if len(able) else rows
            row = able[draw_by_weight(weights[able], rng)]
            free[row] = False
            seated.append(members[row].ref)
        return tuple(seated)

    def _rows(self, population: Population, seat: int, name: str) -> Integers:
        def find() -> Integers:
            by_name = {"live": population.live_for_seat, "past": population.past_for_seat}
            members = by_name.get(name, population.for_seat)(seat)
            return np.searchsorted(population.slots, population.slots_of(members))

        return population.view(("rows", name, population.kind_of_seat(seat)), find)

    def _other_past_seats(
        self, own_seat: int, population: Population, rng: Generator
    ) -> list[bool]:
        if not population.frozen:
            return [False] * self.num_seats
        drawn = (rng.random(self.num_seats) < self.past_share).tolist()
        return [is_past and seat != own_seat for seat, is_past in enumerate(drawn)]


def draw_by_weight(weights: Array, rng: Generator) -> int:
    """Draw an index by weight; uniformly if all weights are 0."""
    sums = weights.cumsum()
    if sums[-1] <= 0.0:
        return int(rng.random() * len(weights))
    drawn = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    return min(drawn, len(weights) - 1)
