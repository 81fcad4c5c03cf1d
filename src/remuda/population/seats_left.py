"""Matches beside seats that are taken for good: `env.scripted` of a run whose seats are dealt."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence

import numpy as np

from remuda.errors import ConfigError
from remuda.population.ledger import Ledger
from remuda.population.matchmaking import Matchmaker
from remuda.population.records import SCRIPTED, Match, Member, PolicyRef, Population
from remuda.population.seating import Seating
from remuda.types import State


class SeatsLeft(Matchmaker):
    """Lets a matchmaker deal the seats that are left, as if the game had no others.

    What it guarantees:

    1. Who has taken a seat for good sits there in every match, and nowhere else.
    2. To the matchmaker the other seats are numbered from 0 on, in their order, and who may take
       all of these may take every seat.
    3. Who sits there for good counts neither as a frozen copy nor in any share.
    """

    def __init__(self, dealer: Matchmaker, agents: Sequence[str], taken: Sequence[int]) -> None:
        """Deal what is left."""
        super().__init__(len(agents))
        self.dealer = dealer
        self._taken = {seat: PolicyRef(agents[seat], SCRIPTED) for seat in taken}
        self._left = [seat for seat in range(len(agents)) if seat not in self._taken]
        self._number = {seat: i for i, seat in enumerate(self._left)}
        self.name = dealer.name
        self.begin_at(dealer.proposed)

    def propose(
        self, population: Population, ledger: Ledger, count: int, random: np.random.Generator
    ) -> list[Match]:
        """What the matchmaker proposes, and those who sit there for good."""
        self.refuse_empty_seats(population)
        found = self.dealer.propose(self._others(population), ledger, count, random)
        self.proposed = self.dealer.proposed
        return [
            Match(
                match.id,
                self._with_taken(match.seats),
                None if match.learns is None else frozenset(self._left[i] for i in match.learns),
            )
            for match in found
        ]

    def dealt_seats(self) -> Sequence[int]:
        """Those that are not taken."""
        return self._left

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:
        """What the matchmaker deals, and those who sit there for good."""
        return self._with_taken(self.dealer.seat(self._others(population), ledger, random))

    def _with_taken(self, seats: Seating) -> Seating:
        if len(seats) != len(self._left):
            raise ConfigError(
                f"the matchmaker {self.name} deals {len(seats)} seats, and the game has "
                f"{len(self._left)} besides those that env.scripted takes; let its `seat` return "
                "one PolicyRef for each"
            )
        sits = self._taken | dict(zip(self._left, seats, strict=True))
        return tuple(sits[seat] for seat in range(self.num_seats))

    def _others(self, population: Population) -> Population:
        """All but those who sit there for good, with the seats that are left."""

        def find() -> Population:
            gone = set(self._taken.values())
            others = [self._as_left(m) for m in population.members if m.ref not in gone]
            found = Population(numbers=population.numbers)
            for member in others:
                found.add(member, member.place)
            return found

        others = population.view(("but for", tuple(self._taken)), find)
        others.matches = population.matches
        others.empty, others.expected = population.empty, population.expected
        others.leaving = population.leaving
        return others

    def _as_left(self, member: Member) -> Member:
        """A member as the matchmaker knows it: its numbers are the same memory."""
        found, own = copy.copy(member), member.seats
        if own is not None:
            seats = frozenset(self._number[seat] for seat in own if seat in self._number)
            found.seats = None if len(seats) == len(self._left) else seats
        return found

    def expected_shares(self, population: Population) -> dict[str, float]:
        """As the matchmaker's."""
        return self.dealer.expected_shares(self._others(population))

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """As the matchmaker's."""
        return self.dealer.never_dealt(self._others(population))

    def dealt_like(self, member: Member) -> Hashable:
        """As the matchmaker's."""
        return self.dealer.dealt_like(self._as_left(member))

    def begin_at(self, number: int) -> None:
        """Number the next match so."""
        self.dealer.begin_at(number)
        self.proposed = number

    def state(self) -> State:
        """The matchmaker's."""
        return self.dealer.state()

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self.dealer.restore(state)
        self.proposed = self.dealer.proposed
