"""Reserved seats: `env.scripted` policies take them, and a matchmaker assigns the other seats."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from remuda.errors import ConfigError
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import SCRIPTED, Match, Member, PolicyRef, Population
from remuda.population.matchmaking.matchmaker import Matchmaker
from remuda.population.matchmaking.seating import Seating
from remuda.types import State


class ReservedSeats(Matchmaker):
    """A matchmaker that fills the reserved seats and lets another matchmaker assign the rest.

    Guarantees:

    1. The member of a reserved seat has that seat in every match, and no other.
    2. The other matchmaker sees only the remaining seats, numbered from 0. To it, a member that may
       take all of these is a member that may take every seat.
    3. Members on reserved seats count neither as frozen copies nor in any share.
    """

    def __init__(self, dealer: Matchmaker, agents: Sequence[str], taken: Sequence[int]) -> None:
        super().__init__(len(agents))
        self.dealer, self.name = dealer, dealer.name
        self._taken = {seat: PolicyRef(agents[seat], SCRIPTED) for seat in taken}
        self.dealt_seats = [seat for seat in range(len(agents)) if seat not in taken]
        self._number = {seat: i for i, seat in enumerate(self.dealt_seats)}

    def propose(
        self, population: Population, ledger: Ledger, count: int, rng: np.random.Generator
    ) -> list[Match]:
        """Propose the other matchmaker's matches with the reserved seats filled in."""
        self.refuse_empty_seats(population)
        dealt, found = self.dealt_seats, []
        for match in self.dealer.propose(self._others(population), ledger, count, rng):
            learns = match.learns and frozenset(dealt[i] for i in match.learns)
            found.append(Match(match.id, self._with_taken(match.seats), learns))
        return found

    def seat(self, population: Population, ledger: Ledger, rng: np.random.Generator) -> Seating:
        """Return the other matchmaker's seating with the reserved seats filled in."""
        return self._with_taken(self.dealer.seat(self._others(population), ledger, rng))

    def _with_taken(self, seats: Seating) -> Seating:
        dealt = self.dealt_seats
        if len(seats) != len(dealt):
            raise ConfigError(
                f"the matchmaker {self.name} deals {len(seats)} seats, but the game has "
                f"{len(dealt)} besides those that env.scripted takes; let its `seat` return one "
                "PolicyRef for each"
            )
        sits = self._taken | dict(zip(dealt, seats, strict=True))
        return tuple(sits[seat] for seat in range(self.num_seats))

    def _others(self, population: Population) -> Population:
        def find() -> Population:
            found, takers = Population(numbers=population.numbers), set(self._taken.values())
            for member in population.members:
                if member.ref not in takers:
                    found.add(self._renumbered(member), member.slot)
            return found

        others = population.view(("but for", tuple(self._taken)), find)
        others.matches = population.matches
        others.empty, others.expected = population.empty, population.expected
        others.leaving = population.leaving
        return others

    def _renumbered(self, member: Member) -> Member:
        """Return a copy of the member with renumbered seats; both share the same `numbers`."""
        found = copy.copy(member)
        if member.seats is not None:
            seats = frozenset(self._number[seat] for seat in member.seats if seat in self._number)
            found.seats = None if len(seats) == len(self._number) else seats
        return found

    def expected_shares(self, population: Population) -> dict[str, float]:
        return self.dealer.expected_shares(self._others(population))

    def begin_at(self, number: int) -> None:
        self.dealer.begin_at(number)

    def state(self) -> State:
        return self.dealer.state()

    def restore(self, state: State) -> None:
        self.dealer.restore(state)
