"""Matchmakers that ignore strength: seats and turns alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.checkpoint.fitting import MOST, Range, where_is, whole_number
from remuda.errors import ConfigError
from remuda.population.ledger import Ledger
from remuda.population.matchmaking import Matchmaker, draw_uniformly
from remuda.population.records import Member, PolicyRef, Population
from remuda.population.rounds import Order, Rounds
from remuda.population.seating import Seating, draw_different
from remuda.types import State


class Fixed(Matchmaker):
    """The same seating in every match: every agent has its own policy."""

    def expected_shares(self, population: Population) -> dict[str, float]:
        """Return the number of its seats."""
        seated = Counter(ref.policy for ref in self._seating)
        return {m.ref.policy: float(seated[m.ref.policy]) for m in population.learning}

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Return policies without a seat."""
        seated = {ref.policy for ref in self._seating}
        return tuple(m.ref.policy for m in population.learning if m.ref.policy not in seated)

    def __init__(self, seats: Sequence[str]) -> None:
        """Seat these policies, by agent."""
        super().__init__(len(seats))
        self._seating = tuple(PolicyRef(policy) for policy in seats)

    def seat(self, population: Population, ledger: Ledger, rng: np.random.Generator) -> Seating:  # noqa: ARG002
        """Return the fixed seating, with the newest frozen copy of each absent policy."""
        if all(ref in population for ref in self._seating):
            return self._seating
        return tuple(self._stand_in(population, ref) for ref in self._seating)

    @staticmethod
    def _stand_in(population: Population, ref: PolicyRef) -> PolicyRef:
        if ref in population:
            return ref
        past = population.past_of(ref.policy)
        if not past:
            raise ConfigError(f"the policy {ref.policy} is gone, and no copy of it is there")
        return past[-1].ref


class Random(Matchmaker):
    """All seatings of different policies are equally likely; frozen copies take their share."""

    seats_differ = True

    exchangeable = True

    def seat(self, population: Population, ledger: Ledger, rng: np.random.Generator) -> Seating:  # noqa: ARG002
        """Draw from all seatings that seat no member twice."""
        return draw_uniformly(self, population, rng)


class RoundRobin(Matchmaker):
    """Every combination of live policies, in turn on every seat.

    A cycle has each combination once in each rotation of its seats, in random order, so that after
    any number of matches two seatings differ by at most one game. Forbidden seatings are skipped. A
    birth or a retirement begins a new cycle; frozen and dropped copies do not. On seats for frozen
    copies, all equally likely, the live policy gives up its turn.
    """

    seats_differ = True

    exchangeable = True

    def __init__(self, num_seats: int) -> None:
        """Begin the first cycle with the first match."""
        super().__init__(num_seats)
        self._members: list[PolicyRef] = []
        self._rounds = Rounds((), num_seats)
        self._order = Order(0, 1, 0)

    def seat(self, population: Population, ledger: Ledger, rng: np.random.Generator) -> Seating:  # noqa: ARG002
        """Return the next allowed seating of the cycle, with frozen copies on their seats."""
        seating = self._next(population, rng)
        past = [s for s, is_past in enumerate(self.past_seats(population, rng)) if is_past]
        if not past:
            return seating
        able = [population.past_for_seat(seat) for seat in range(self.num_seats)]
        drawn = draw_different(population, ("stand in", *past), able, past, rng)
        # Where too few copies may take these seats, the live policy takes its turn after all.
        first = {ref: i for i, ref in reversed([*enumerate(drawn)])}
        instead = {past[i]: ref for ref, i in first.items()}
        return tuple(instead.get(seat, ref) for seat, ref in enumerate(seating))

    def _next(self, population: Population, rng: np.random.Generator) -> Seating:
        learning = population.learning
        members: list[PolicyRef] = population.view("refs", lambda: [m.ref for m in learning])
        if members != self._members or not self._rounds.count:
            if len(members) < self.num_seats:
                raise ConfigError(
                    f"a round robin of {self.num_seats} seats needs as many policies; "
                    f"there are {len(members)}"
                )
            if members != self._members:
                self._order = Order(0, 1, 0)
            self._members = members
            self._rounds = Rounds([member.seats for member in learning], self.num_seats)
        if not self._rounds.count:
            raise ConfigError("no combination of different policies may take the seats together")
        if self._order.left == 0 or self._order.count != self._rounds.count:
            self._order = Order.draw(self._rounds.count, rng)
        return tuple(members[i] for i in self._rounds.seating(self._order.next()))

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Return policies that no turn of a combination seats."""
        learning = population.learning
        if len(learning) < self.num_seats or all(member.seats is None for member in learning):
            return ()
        dealt = Rounds([member.seats for member in learning], self.num_seats).dealt()
        return tuple(member.ref.policy for i, member in enumerate(learning) if i not in dealt)

    def state(self) -> State:
        """Return the state, with the position in the cycle."""
        members = [[ref.policy, ref.version] for ref in self._members]
        return {**super().state(), "order": self._order.plain(), "members": members}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        super().restore(state)
        where = where_is(state, "order")
        count, key, done = state["order"]
        self._order = Order(
            whole_number(count, where),
            whole_number(key, where, Range(0, 2**62)),
            whole_number(done, where, Range(0, count)),
        )
        where = where_is(state, "members")
        self._members = [
            PolicyRef(str(policy), whole_number(version, where, Range(-1, MOST)))
            for policy, version in state["members"]
        ]


class SelfPlay(Matchmaker):
    """A policy learns against itself and its frozen copies.

    The learner takes each seat in turn. Every other seat goes to its live weights with probability
    `newest`, and else to one of its frozen copies or to a policy of another run, all equally
    likely. Learners take turns.
    """

    exchangeable = True

    def __init__(self, num_seats: int, newest: float = 0.5) -> None:
        """Play the live weights with this probability."""
        super().__init__(num_seats)
        self.past_share = 1.0 - newest

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Return policies that may not take every seat, as a learner must."""
        return tuple(m.ref.policy for m in population.learning if m not in population.free)

    def seat(self, population: Population, ledger: Ledger, rng: np.random.Generator) -> Seating:
        """Seat the learner, and itself or its copies on the other seats."""
        able = population.free
        if not able:
            raise ConfigError("self-play needs a policy that learns and may take every seat")
        turn, place = divmod(self.proposed, self.num_seats)
        return self.seat_for(able[turn % len(able)], place, population, ledger, rng)

    def seat_for(
        self,
        learner: Member,
        place: int,
        population: Population,
        ledger: Ledger,  # noqa: ARG002
        rng: np.random.Generator,
    ) -> Seating:
        """Seat this learner on this seat, and itself or its copies on the others.

        A seat that it may not take goes to any live policy that may, and else to any copy.
        """
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

        return tuple(ref if seat == place else other(seat) for seat in range(self.num_seats))


class Teams(Matchmaker):
    """Populations against each other: every seat belongs to a team, and each team has policies.

    Within a team all seatings of different policies are equally likely; frozen copies take their
    share. Teams are never mixed.
    """

    exchangeable = True

    def __init__(self, seats: Sequence[str], policies: Mapping[str, Sequence[str]]) -> None:
        """Assign the seats to teams."""
        super().__init__(len(seats))
        self.team_of_seat = tuple(seats)
        self._team_of: dict[str, str] = {}
        for team, members in policies.items():
            for policy in members:
                if self._team_of.setdefault(policy, team) != team:
                    raise ConfigError(f"the policy {policy} plays for two teams")
        for team in seats:
            if not policies.get(team):
                raise ConfigError(f"the team {team!r} has a seat and no policy")

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Return policies without a team, or without a seat in it."""
        teams = [(member, self._team_of.get(member.ref.policy)) for member in population.learning]
        return tuple(
            member.ref.policy
            for member, team in teams
            if not any(own == team and member.may_sit(i) for i, own in enumerate(self.team_of_seat))
        )

    def seat(self, population: Population, ledger: Ledger, rng: np.random.Generator) -> Seating:  # noqa: ARG002
        """Draw each seat from its team."""
        live, past, _ = self.able(population)
        for seat, team in enumerate(self.team_of_seat):
            if not live[seat] and not past[seat]:
                raise ConfigError(f"the team {team!r} has no policy left for seat {seat}")
        return draw_uniformly(self, population, rng)

    def live_for(self, population: Population, seat: int) -> tuple[Member, ...]:
        """Return learning policies of its team that may take a seat."""
        return self._of_team(population, seat, "live", population.live_for_seat(seat))

    def past_for(self, population: Population, seat: int) -> tuple[Member, ...]:
        """Return frozen copies of its team that may take a seat."""
        return self._of_team(population, seat, "past", population.past_for_seat(seat))

    def _of_team(
        self, population: Population, seat: int, name: str, members: tuple[Member, ...]
    ) -> tuple[Member, ...]:
        team, of = self.team_of_seat[seat], self._team_of
        return population.view(
            ("team", name, team, population.kind_of_seat(seat)),
            lambda: tuple(member for member in members if of.get(member.ref.policy) == team),
        )
