"""Matchmakers: who plays whom. Each is one small class; what it promises is tested by counting.

A matchmaker proposes matches for a game of so many seats. It keeps nothing but what it says in
`state`, draws from the random generator that it is handed, and never seats one policy twice in a
match unless there are fewer policies than seats, or it is self-play.

In every match a policy learns: one seat, each with the same chance, is a live policy's, and of the
others frozen copies take a share that is configured, however many of them there are. A matchmaker
may let live policies play without learning (`Matchmaker.learning_seats`).
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np

from remuda.checkpoint.fitting import whole
from remuda.errors import ConfigError
from remuda.population.ledger import Ledger
from remuda.population.records import Match, Member, Population
from remuda.population.seating import (
    Group,
    Seating,
    draw_apart,
    groups_of,
)
from remuda.types import State

By = list[tuple[Member, ...]]
"""By seat, who may take it."""
Able = tuple[By, By, list[Group[tuple[Member, ...]]]]
"""Those that learn; the frozen copies; and together the seats for which both are the same."""
PAST = 0.5
"""The share of the other seats that frozen copies take, unless told otherwise."""
DRAWN = 4096
"""Matches that are drawn to find out who is seated how often."""


class ForLearner(Protocol):
    """Deals a match for a learner that has its seat already: a part of `mixed`."""

    def seat_for(
        self,
        learner: Member,
        place: int,
        population: Population,
        ledger: Ledger,
        random: np.random.Generator,
    ) -> Seating:
        """By seat, who sits there; the learner on the seat `place`."""


class Matchmaker(ABC):
    """Proposes matches."""

    exchangeable: ClassVar[bool] = False
    """Whether policies that may take the same seats are dealt alike before they have played."""
    seats_differ: ClassVar[bool] = False
    """Whether no policy sits twice in a match, where there are as many policies as seats and all
    may take any. Then there is room for one seat of each, and a match that needs more is refused.
    """

    def __init__(self, num_seats: int) -> None:
        """Match for a game of so many seats."""
        self.num_seats = num_seats
        self.name = type(self).__name__
        """For messages; once it is configured, as the configuration names it."""
        self.past_share = PAST
        """Of the seats besides the one that is sure to be a live policy's, those that frozen copies
        take, 0 to 1."""
        self.team_of_seat: tuple[str, ...] = ("",) * num_seats
        """By seat, the team whose policies alone may take it; an empty name: all."""
        self.proposed = 0
        """Matches that were proposed: the number of the next."""

    def propose(
        self, population: Population, ledger: Ledger, count: int, random: np.random.Generator
    ) -> list[Match]:
        """So many matches, numbered on from those before."""
        self.refuse_empty_seats(population)
        matches = []
        for _ in range(count):
            seats = self.seat(population, ledger, random)
            if all(ref.is_frozen for ref in seats) and population.learning:
                seats = self._with_one_live(seats, population, random)
            matches.append(Match(self.proposed, seats, self.learning_seats(seats)))
            self.proposed += 1
        return matches

    def refuse_empty_seats(self, population: Population) -> None:
        """Raise a `ConfigError` where no policy may take a seat."""
        nobody = population.view(("nobody", self.num_seats), lambda: self._nobodys_seat(population))
        if nobody is not None:
            raise ConfigError(f"no policy of the population may take seat {nobody}")

    def dealt_seats(self) -> Sequence[int]:
        """The seats that it deals."""
        return range(self.num_seats)

    def _nobodys_seat(self, population: Population) -> int | None:
        """A seat that no policy may take; None: there is none."""
        for seat in self.dealt_seats():
            if not (population.live_for_seat(seat) or population.past_for_seat(seat)):
                return seat
        return None

    def expected_shares(self, population: Population) -> dict[str, float]:
        """Return, by live policy, the seats of a match that it is dealt on average, and learns on.

        They are worked out by dealing with a copy of this matchmaker, unless all policies are
        dealt alike. Frozen copies take their seats from all live policies alike, so the shares of a
        population without any are in proportion.
        """
        learning = population.learning
        kinds = {self.dealt_like(member) for member in learning}
        if self.exchangeable and len(kinds) == 1 and not population.frozen:
            return {member.ref.policy: self.num_seats / len(learning) for member in learning}
        dealer = copy.deepcopy(self)
        cycle = len(learning) * self.num_seats  # in which a matchmaker may go round
        drawn = -(-DRAWN // cycle) * cycle
        matches = dealer.propose(population, Ledger(population), drawn, np.random.default_rng(0))
        seated = Counter(
            ref.policy
            for match in matches
            for seat, ref in enumerate(match.seats)
            if not ref.is_frozen and (match.learns is None or seat in match.learns)
        )
        found = {member.ref.policy: seated[member.ref.policy] / drawn for member in learning}
        if not self.exchangeable:
            return _without_noise(found, drawn, dict.fromkeys(found, 1))
        sizes: dict[str, int] = {}
        for kind in kinds:
            alike = [m.ref.policy for m in learning if self.dealt_like(m) == kind]
            found |= dict.fromkeys(alike, sum(found[name] for name in alike) / len(alike))
            sizes |= dict.fromkeys(alike, len(alike))
        return _without_noise(found, drawn, sizes)

    def dealt_like(self, member: Member) -> Hashable:
        """What is equal for policies that are dealt alike, where the matchmaker is exchangeable."""
        return member.seats

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Return the live policies that no match will ever seat, as far as that is known."""
        del population
        return ()

    def live_for(self, population: Population, seat: int) -> tuple[Member, ...]:
        """Those that learn and may take a seat, of all whom this matchmaker deals it."""
        return population.live_for_seat(seat)

    def past_for(self, population: Population, seat: int) -> tuple[Member, ...]:
        """The frozen copies that may take a seat, of all whom this matchmaker deals it."""
        return population.past_for_seat(seat)

    def past_seats(self, population: Population, random: np.random.Generator) -> list[bool]:
        """Draw the seats that frozen copies take in the next match: by seat, whether they do.

        One seat at least is a live policy's, if there is a live policy that may take one. Seats
        that the same policies may take go to no more of either kind than there are, while there are
        enough of both together.
        """
        seats = range(self.num_seats)
        if not population.frozen:
            return [False for _ in seats]
        live, past, groups = self.able(population)
        able = [seat for seat in seats if live[seat]]
        sure = able[int(random.integers(len(able)))] if able else -1
        drawn = (random.random(self.num_seats) < self.past_share).tolist()
        found = [
            seat != sure and bool(past[seat]) and (drawn[seat] or not live[seat]) for seat in seats
        ]
        order = random.permutation(self.num_seats).tolist()
        for _, alike in groups:
            some, group = alike[0], sorted(alike, key=order.index)
            count = sum(found[seat] for seat in group)
            spare = [seat for seat in group if found[seat] and live[seat]]
            for seat in spare[: max(count - len(past[some]), 0)]:
                found[seat] = False
            count = sum(found[seat] for seat in group)
            rest = [seat for seat in group if not found[seat] and seat != sure and past[seat]]
            missing = len(group) - count - len(live[some])
            for seat in rest[: max(min(missing, len(past[some]) - count), 0)]:
                found[seat] = True
        return found

    @abstractmethod
    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:
        """Who sits where in the next match."""

    def learning_seats(self, seats: Seating) -> frozenset[int] | None:  # noqa: ARG002
        """Which seats of the match that `seat` just dealt learn from it; None: all.

        A live policy on another seat plays as it is now, and nothing of the match goes into its
        experience. On any seat a frozen copy learns nothing.
        """
        return None

    def able(self, population: Population) -> Able:
        """Who may take which seat."""

        def find() -> Able:
            seats = range(self.num_seats)
            live = [self.live_for(population, seat) for seat in seats]
            past = [self.past_for(population, seat) for seat in seats]
            return live, past, groups_of([(live[seat], past[seat]) for seat in seats])

        return population.view(("able", self.name, self.team_of_seat), find)

    def _with_one_live(
        self, seats: Seating, population: Population, random: np.random.Generator
    ) -> Seating:
        """A seating with a live policy on a seat, if one may take any."""
        able = [seat for seat in range(len(seats)) if self.live_for(population, seat)]
        if not able:
            return seats
        seat = able[int(random.integers(len(able)))]
        members = self.live_for(population, seat)
        live = members[int(random.integers(len(members)))].ref
        return (*seats[:seat], live, *seats[seat + 1 :])

    def begin_at(self, number: int) -> None:
        """Number the next match so; a matchmaker before this one proposed those before."""
        self.proposed = number

    def state(self) -> State:
        """What a successor needs to propose what this would have."""
        return {"proposed": self.proposed}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self.proposed = whole(state, "proposed")


def draw_uniformly(
    matchmaker: Matchmaker, population: Population, random: np.random.Generator
) -> Seating:
    """Draw from all members that may take the seats; `past_seats` says where frozen copies sit."""
    past = matchmaker.past_seats(population, random)
    live, frozen, _ = matchmaker.able(population)
    return draw_apart(
        population, ("all", matchmaker.name, matchmaker.team_of_seat), past, live, frozen, random
    )


def _without_noise(
    shares: Mapping[str, float], drawn: int, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Shares that were counted, with the same number for those that chance alone sets apart."""
    found: dict[str, float] = {}
    together: list[str] = []
    for name in [*sorted(shares, key=shares.__getitem__), ""]:
        mean = sum(shares[each] for each in together) / max(len(together), 1)
        counted = drawn * min(sizes.get(name, 1), max(len(together), 1))
        if together and (not name or shares[name] - mean > 4.0 * math.sqrt(mean / counted)):
            found |= dict.fromkeys(together, mean)
            together = []
        together.append(name)
    return {name: found[name] for name in shares}
