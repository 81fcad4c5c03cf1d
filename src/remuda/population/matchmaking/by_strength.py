"""Matchmakers by strength: opponents of similar rating, or prioritised fictitious self-play."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.random import Generator

from remuda.errors import ConfigError
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import GAMES, RATING, UNCERTAINTY, Member, Population
from remuda.population.matchmaking.matchmaker import Matchmaker, draw_kinds
from remuda.population.matchmaking.seating import Seating, draw_different, seat_all
from remuda.types import Array, Bools, Integers, Numbers


class SimilarRatings(Matchmaker):
    """A matchmaker of equals: a live policy meets those whose ratings are nearest to its own.

    1. Live policies take turns to be the first of a match in every second match. In the others, the
       one with the fewest rated matches is. So each of L live policies plays in at least 1 / (2 L)
       of the matches, however far its rating is from all others.
    2. Its opponents are drawn from the `window` live policies and the `window` frozen members with
       the nearest ratings (as many for each set of allowed seats), and from all whose ratings
       differ from its own by less than the uncertainty of the difference.
    3. If seats are restricted, the first one takes a seat that it may take, and each other seat is
       drawn from those that may take it. Where none of them is near, any of them is drawn.
    """

    seats_differ = True
    exchangeable = True

    def __init__(self, num_seats: int, window: int) -> None:
        super().__init__(num_seats)
        self.window = window

    def seat(self, population: Population, ledger: Ledger, rng: Generator) -> Seating:  # noqa: ARG002
        members = population.members
        learns: Bools = population.view(
            "learns", lambda: np.array([member.learns for member in members])
        )
        numbers = population.numbers[population.slots]
        first = self._first(numbers[:, GAMES], learns, rng)
        near = self._near(population, numbers, first)
        if any(member.seats is not None for member in members):
            return self._draw_by_seat(population, near, members[first], rng)
        group = self._draw_group(near, learns, first, rng)
        return seat_all([members[i] for i in group], self.num_seats, rng)

    def _first(self, games: Array, learns: Bools, rng: Generator) -> int:
        able = np.flatnonzero(learns if learns.any() else ~learns)
        turn, by_games = divmod(self.proposed, 2)
        if not by_games:
            return int(able[turn % len(able)])
        fewest = able[games[able] == games[able].min()]
        return int(fewest[rng.integers(len(fewest))])

    def _near(self, population: Population, numbers: Numbers, first: int) -> Bools:
        """Return the mask of the members that may meet the first one: [members]."""

        def find() -> list[tuple[int, Integers]]:
            """Return the places of each kind of members, after the seats that they may take."""
            kinds: dict[tuple[bool, frozenset[int] | None], list[int]] = {}
            for place, member in enumerate(population.members):
                kinds.setdefault((member.learns, member.seats), []).append(place)
            others = self.num_seats - 1
            return [
                (others if seats is None else min(len(seats), others), np.array(places))
                for (_, seats), places in kinds.items()
            ]

        apart = np.abs(numbers[:, RATING] - numbers[first, RATING])
        near: Bools = apart <= np.hypot(numbers[:, UNCERTAINTY], numbers[first, UNCERTAINTY])
        apart[first] = np.inf
        for seats, places in population.view(("kinds of members", self.num_seats), find):
            nearest = np.argsort(apart[places], kind="stable")[: max(self.window, seats)]
            near[places[nearest]] = True
        near[first] = False
        return near

    def _draw_by_seat(
        self, population: Population, near: Bools, first: Member, rng: Generator
    ) -> Seating:
        close = [population.members[i] for i in np.flatnonzero(near).tolist()]
        different = min(self.num_seats, len(population.members))
        for own in rng.permutation(self.num_seats).tolist():
            if not first.may_sit(own):
                continue
            able, others = (
                [
                    [m for m in close if some and m.may_sit(seat) and m.learns == some[0].learns]
                    or some
                    for seat, some in enumerate(kinds)
                ]
                for kinds in draw_kinds(self, population, rng, own)
            )
            able[own] = [first]
            seating = tuple(member.ref for member in draw_different(able, rng, others))
            if len(set(seating)) == different:  # else the others need this seat
                break
        return seating

    def _draw_group(self, near: Bools, learns: Bools, first: int, rng: Generator) -> list[int]:
        """Draw the members of a match, fewer than its seats if there are fewer in all."""
        learning, frozen = np.flatnonzero(near & learns), np.flatnonzero(near & ~learns)
        seats = min(self.num_seats - 1, len(learning) + len(frozen))
        past = 0
        if len(frozen):
            past = int((rng.random(seats) < self.past_share).sum())
            past = min(max(past, seats - len(learning)), len(frozen))
        chosen = learning[rng.choice(len(learning), seats - past, replace=False)]
        drawn = frozen[rng.choice(len(frozen), past, replace=False)]
        return [first, *chosen.tolist(), *drawn.tolist()]


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
