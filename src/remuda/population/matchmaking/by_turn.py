"""Matchmakers that ignore strength: fixed, random, round robin and self-play."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.random import Generator

from remuda.errors import ConfigError
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.population.matchmaking.matchmaker import Matchmaker, draw_uniformly
from remuda.population.matchmaking.seating import Seating, draw_different, seat_all
from remuda.system.checkpoint.fitting import MOST, Range, require, where_is, whole_number
from remuda.types import Integers, State


class Fixed(Matchmaker):
    """A matchmaker with the same seating in every match; a policy may have several seats."""

    def __init__(self, seats: Sequence[str]) -> None:
        super().__init__(len(seats))
        self._seating = tuple(PolicyRef(policy) for policy in seats)

    def expected_shares(self, population: Population) -> dict[str, float]:
        seated = Counter(ref.policy for ref in self._seating)
        return {m.ref.policy: float(seated[m.ref.policy]) for m in population.learning}

    def seat(self, population: Population, ledger: Ledger, rng: Generator) -> Seating:  # noqa: ARG002
        return tuple(self._stand_in(population, ref) for ref in self._seating)

    @staticmethod
    def _stand_in(population: Population, ref: PolicyRef) -> PolicyRef:
        if ref in population:
            return ref
        past = population.past_of(ref.policy)
        if not past:
            raise ConfigError(f"the policy {ref.policy} has retired, and has no frozen copy")
        return past[-1].ref


class Random(Matchmaker):
    """A matchmaker that draws uniformly from all seatings of different policies.

    Frozen members take their configured share of seats. It is also the matchmaker of teams, whose
    policies may only take the seats of their team.
    """

    seats_differ = True
    exchangeable = True

    def seat(self, population: Population, ledger: Ledger, rng: Generator) -> Seating:  # noqa: ARG002
        return draw_uniformly(self, population, rng)


LONGEST = 100_000  # seatings of a round robin's cycle; of more, each is drawn at random
SKIPPED = 10  # combinations without an allowed order to skip before a seating is drawn


class RoundRobin(Matchmaker):
    """A round robin of live policies: every combination, in every rotation of the seats.

    A cycle has each combination once in each rotation, in random order. So the number of games of
    two seatings never differs by more than one. Instead of a rotation that `population.seats`
    forbids, a random order is played. Combinations without an allowed order are skipped; after
    `SKIPPED` in a row, a seating is drawn at random. A birth or a retirement starts a new cycle;
    freezing or dropping a copy does not. A seat drawn for a frozen member goes to a random one, and
    the live policy loses its turn in this seat.
    """

    seats_differ = True
    exchangeable = True

    def __init__(self, num_seats: int) -> None:
        super().__init__(num_seats)
        self._members: list[PolicyRef] = []
        self._combinations: Integers = np.zeros((0, num_seats), np.int64)
        self._order: Integers = np.zeros(0, np.int64)  # numbers of the cycle's seatings
        self._key, self._done = 0, 0  # the seed of the order, and how many seatings were played

    def seat(self, population: Population, ledger: Ledger, rng: Generator) -> Seating:  # noqa: ARG002
        seating = [*self._next(population, rng)]
        past = [s for s, is_past in enumerate(self.past_seats(population, rng)) if is_past]
        able = [population.past_for_seat(seat) for seat in past]
        for seat, member in zip(past, draw_different(able, rng) if past else (), strict=True):
            # If too few frozen members may take these seats, the live policy keeps its turn.
            if member.ref not in seating:
                seating[seat] = member.ref
        return tuple(seating)

    def _next(self, population: Population, rng: Generator) -> Seating:
        learning = population.learning
        members: list[PolicyRef] = population.view("refs", lambda: [m.ref for m in learning])
        if len(members) < self.num_seats:
            raise ConfigError(
                f"a round robin of {self.num_seats} seats needs as many policies; "
                f"there are {len(members)}"
            )
        if members != self._members:
            self._begin_cycle(members, int(rng.integers(MOST)))
        for _ in range(SKIPPED):
            group = [learning[i] for i in self._next_indices(rng)]
            if all(member.may_sit(seat) for seat, member in enumerate(group)):
                return tuple(member.ref for member in group)
            if seating := seat_all(group, self.num_seats, rng):
                return seating
        seats = range(self.num_seats)
        able = [population.live_for_seat(seat) or population.for_seat(seat) for seat in seats]
        return tuple(member.ref for member in draw_different(able, rng))

    def _begin_cycle(self, members: list[PolicyRef], key: int, done: int = 0) -> None:
        self._members, self._key, self._done = members, key, done
        policies, seats = len(members), self.num_seats
        if math.comb(policies, seats) * seats > LONGEST:
            self._order = np.zeros(0, np.int64)
            return
        self._combinations = np.array([*combinations(range(policies), seats)], np.int64)
        self._order = np.random.default_rng(key).permutation(len(self._combinations) * seats)

    def _next_indices(self, rng: Generator) -> list[int]:
        """Return the index of the policy on each seat in the next seating of the cycle."""
        if not len(self._order):
            drawn = rng.choice(len(self._members), self.num_seats, replace=False)
            return [int(index) for index in drawn]
        if self._done == len(self._order):
            self._begin_cycle(self._members, int(rng.integers(MOST)))
        turned, combination = divmod(int(self._order[self._done]), len(self._combinations))
        self._done += 1
        chosen: list[int] = self._combinations[combination].tolist()
        return [*chosen[turned:], *chosen[:turned]]

    def state(self) -> State:
        members = [[ref.policy, ref.version] for ref in self._members]
        return {**super().state(), "cycle": [self._key, self._done], "members": members}

    def restore(self, state: State) -> None:
        super().restore(state)
        where = where_is(state, "members")
        members = [
            PolicyRef(str(policy), whole_number(version, where, Range(-1, MOST)))
            for policy, version in state["members"]
        ]
        where = where_is(state, "cycle")
        key, done = (whole_number(number, where) for number in state["cycle"])
        self._begin_cycle(members, key, done)
        require(state, "cycle", done <= len(self._order), "it must not be over")


class SelfPlay(Matchmaker):
    """Self-play: a policy learns against itself and its frozen copies.

    Learners take turns, and each takes every seat in turn. Every other seat goes to the learner's
    live weights with probability `newest`. Otherwise it goes to one of the learner's frozen copies,
    a policy of another run or a scripted policy, all equally likely.
    """

    exchangeable = True

    def __init__(self, num_seats: int, newest: float = 0.5) -> None:
        super().__init__(num_seats)
        self.past_share = 1.0 - newest

    def seat(self, population: Population, ledger: Ledger, rng: Generator) -> Seating:
        able = population.free
        if not able:
            raise ConfigError("self-play needs a policy that learns and may take every seat")
        turn, seat = divmod(self.proposed, self.num_seats)
        return self.seat_for(able[turn % len(able)], seat, population, ledger, rng)

    def seat_for(
        self,
        learner: Member,
        own_seat: int,
        population: Population,
        ledger: Ledger,  # noqa: ARG002
        rng: Generator,
    ) -> Seating:
        """Seat the learner against itself or its copies; seats closed to it go to other members."""
        ref = learner.ref
        own = population.past_of(ref.policy)

        def other(seat: int) -> PolicyRef:
            if not learner.may_sit(seat):
                others = population.live_for_seat(seat) or population.for_seat(seat)
                return others[int(rng.random() * len(others))].ref
            past = own
            if population.imported:
                past = [*own, *(m for m in population.imported if m.may_sit(seat))]
            if not past or rng.random() < 1.0 - self.past_share:
                return ref
            return past[int(rng.random() * len(past))].ref

        return tuple(ref if seat == own_seat else other(seat) for seat in range(self.num_seats))
