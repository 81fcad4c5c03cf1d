"""Matches beside reserved seats: `env.scripted` of a run whose other seats are dealt."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from remuda.errors import ConfigError
from remuda.population.ledger import Ledger
from remuda.population.matchmaking import Matchmaker
from remuda.population.records import SCRIPTED, Match, Member, PolicyRef, Population
from remuda.population.seating import Seating
from remuda.types import State


class ReservedSeats(Matchmaker):
    """Lets a matchmaker deal the remaining seats, as if there were no others.

    Guarantees:

    1. The member of a reserved seat sits there in every match, and nowhere else.
    2. The matchmaker sees the remaining seats numbered from 0 on, and members that may take all of
       these may take every seat.
    3. Members of reserved seats count neither as frozen copies nor in any share.
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
        """Propose the matchmaker's matches with the reserved seats filled in."""
        self.refuse_empty_seats(population)
        dealt, found = self.dealt_seats, []
        for match in self.dealer.propose(self._others(population), ledger, count, rng):
            learns = match.learns and frozenset(dealt[i] for i in match.learns)
            found.append(Match(match.id, self._with_taken(match.seats), learns))
        return found

    def seat(self, population: Population, ledger: Ledger, rng: np.random.Generator) -> Seating:
        """Return the matchmaker's seating with the reserved seats filled in."""
        return self._with_taken(self.dealer.seat(self._others(population), ledger, rng))

    def _with_taken(self, seats: Seating) -> Seating:
        dealt = self.dealt_seats
        if len(seats) != len(dealt):
            raise ConfigError(
                f"the matchmaker {self.name} deals {len(seats)} seats, and the game has "
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
                    found.add(self._renumbered(member), member.place)
            return found

        others = population.view(("but for", tuple(self._taken)), find)
        others.matches = population.matches
        others.empty, others.expected = population.empty, population.expected
        others.leaving = population.leaving
        return others

    def _renumbered(self, member: Member) -> Member:
        """Return a member with the remaining seats; its numbers are the same memory."""
        found = copy.copy(member)
        if member.seats is not None:
            seats = frozenset(self._number[seat] for seat in member.seats if seat in self._number)
            found.seats = None if len(seats) == len(self._number) else seats
        return found

    def expected_shares(self, population: Population) -> dict[str, float]:
        """Return the matchmaker's shares."""
        return self.dealer.expected_shares(self._others(population))

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Return the matchmaker's answer."""
        return self.dealer.never_dealt(self._others(population))

    def begin_at(self, number: int) -> None:
        """Set the number of the next match."""
        self.dealer.begin_at(number)

    def state(self) -> State:
        """Return the matchmaker's state."""
        return self.dealer.state()

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        self.dealer.restore(state)
