"""The base class of matchmakers, which choose the policies of each match.

Frozen members (copies, policies of other runs and scripted policies) take a configured share of the
seats, regardless of their number.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np
from numpy.random import Generator

from remuda.errors import ConfigError
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import Match, Member, PolicyRef, Population
from remuda.population.matchmaking.seating import Seating, draw_different
from remuda.population.own_code import learning_seats_of, seating_of
from remuda.system.checkpoint.fitting import whole
from remuda.types import State

BySeat = Sequence[tuple[Member, ...]]


class ForLearner(Protocol):
    """A matchmaker that can choose opponents for a learner on a given seat; a part of `Mixed`."""

    def seat_for(
        self, learner: Member, own_seat: int, population: Population, ledger: Ledger, rng: Generator
    ) -> Seating:
        """Return the member on each seat, with the learner on its seat."""


class Matchmaker(ABC):
    """The base class of matchmakers, which propose matches for `num_seats` seats.

    `state` returns the complete state of a matchmaker, which draws only from the generator passed
    to it. A policy has two seats in a match only if there are fewer policies than seats, or in
    self-play.
    """

    exchangeable: ClassVar[bool] = False
    """True if policies with the same allowed seats get equal shares."""
    seats_differ: ClassVar[bool] = False
    """True if no policy sits twice in a match when there are enough policies and all may take any
    seat. Then memory is allocated for one seat of each policy, and a match that needs more is
    refused."""

    def __init__(self, num_seats: int) -> None:
        self.num_seats = num_seats
        self.dealt_seats: Sequence[int] = range(num_seats)
        self.name = type(self).__name__
        """Its name in messages: the class name, or the name in the configuration."""
        self.past_share = 0.5  # share of seats for frozen members, besides one for a live policy
        self.proposed = 0  # matches proposed so far, which is the number of the next match

    def propose(
        self, population: Population, ledger: Ledger, count: int, rng: Generator
    ) -> list[Match]:
        """Return `count` matches with consecutive numbers."""
        self.refuse_empty_seats(population)
        matches = []
        for _ in range(count):
            seats = seating_of(self.seat(population, ledger, rng), self.name)
            if all(ref.is_frozen for ref in seats) and population.learning:
                seats = self._with_one_live(seats, population, rng)
            learns = learning_seats_of(self.learning_seats(seats), self.num_seats, self.name)
            matches.append(Match(self.proposed, seats, learns))
            self.proposed += 1
        return matches

    def refuse_empty_seats(self, population: Population) -> None:
        def find() -> int | None:
            return next((s for s in self.dealt_seats if not population.for_seat(s)), None)

        empty = population.view(("nobody", self.num_seats), find)
        if empty is not None:
            raise ConfigError(f"no policy in the population may take seat {empty}")

    def expected_shares(self, population: Population) -> dict[str, float]:
        """Return the mean number of seats per match on which each live policy learns.

        A copy of this matchmaker proposes trial matches, unless all policies get equal shares.
        Frozen members take seats from all live policies equally, so ratios of shares do not change.
        """
        learning = population.learning
        kinds = {self.dealt_like(member) for member in learning}
        if self.exchangeable and len(kinds) == 1 and not population.frozen:
            return {member.ref.policy: self.num_seats / len(learning) for member in learning}
        dealer = copy.deepcopy(self)
        cycle = len(learning) * self.num_seats  # the period of a matchmaker that takes turns
        drawn = -(-4096 // cycle) * cycle  # trial matches, whole cycles
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
        """Return a key that is equal for policies with equal shares, if `exchangeable` is set."""
        return member.seats

    def past_seats(
        self, population: Population, rng: Generator, live_seat: int | None = None
    ) -> list[bool]:
        """Draw the seats of frozen members in the next match.

        At least one seat goes to a live policy, if a live policy may take any: `live_seat`, or one
        drawn at random.
        """
        seats = range(self.num_seats)
        if not population.frozen:
            return [False for _ in seats]
        live, past = self.able(population)
        able = [seat for seat in seats if live[seat]]
        sure = live_seat
        if sure is None:
            sure = able[int(rng.integers(len(able)))] if able else -1
        drawn = (rng.random(self.num_seats) < self.past_share).tolist()
        return [
            seat != sure and bool(past[seat]) and (drawn[seat] or not live[seat]) for seat in seats
        ]

    @abstractmethod
    def seat(self, population: Population, ledger: Ledger, rng: Generator) -> Seating:
        """Return the member on each seat of the next match."""

    def learning_seats(self, seats: Seating) -> frozenset[int] | None:  # noqa: ARG002
        """Return the seats that learn from the match that `seat` just returned; None for all.

        A live policy on any other seat plays, but the match does not enter its experience. Frozen
        members never learn.
        """
        return None

    def able(self, population: Population) -> tuple[BySeat, BySeat]:
        """Return the learning and the frozen members that may take each seat."""

        def find() -> tuple[BySeat, BySeat]:
            seats = range(self.num_seats)
            live = [population.live_for_seat(seat) for seat in seats]
            return live, [population.past_for_seat(seat) for seat in seats]

        return population.view(("able", self.num_seats), find)

    def _with_one_live(self, seats: Seating, population: Population, rng: Generator) -> Seating:
        """Replace a member by a live policy, if one may take a seat."""
        able = [seat for seat in range(len(seats)) if population.live_for_seat(seat)]
        if not able:
            return seats
        seat = able[int(rng.integers(len(able)))]
        members = population.live_for_seat(seat)
        live = members[int(rng.integers(len(members)))].ref
        return (*seats[:seat], live, *seats[seat + 1 :])

    def begin_at(self, number: int) -> None:
        """Set the number of the next match; an earlier matchmaker proposed all before it."""
        self.proposed = number

    def state(self) -> State:
        """Return the state that a successor needs."""
        return {"proposed": self.proposed}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        self.proposed = whole(state, "proposed")


def draw_uniformly(matchmaker: Matchmaker, population: Population, rng: Generator) -> Seating:
    """Draw from all members that may take the seats; frozen members get those of `past_seats`.

    If there are too few of one kind, members of the other kind take some of its seats.
    """
    able, substitutes = draw_kinds(matchmaker, population, rng)
    return tuple(member.ref for member in draw_different(able, rng, substitutes))


def draw_kinds(
    matchmaker: Matchmaker, population: Population, rng: Generator, live_seat: int | None = None
) -> tuple[BySeat, BySeat]:
    """Draw whether live or frozen members take each seat, as `Matchmaker.past_seats` does.

    Returns: By seat, the members of that kind that may take it, and those of the other kind.
    """
    past = matchmaker.past_seats(population, rng, live_seat)
    kinds = zip(past, *matchmaker.able(population), strict=True)
    pairs = [(frozen, live) if is_past else (live, frozen) for is_past, live, frozen in kinds]
    able, substitutes = zip(*pairs, strict=True)
    return able, substitutes


def _without_noise(
    shares: Mapping[str, float], drawn: int, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Give the same share to policies whose counts differ only by chance."""
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


def can_do_without(
    members: Sequence[Member], ref: PolicyRef, matchmaker: Matchmaker, least: int = 1
) -> bool:
    """Return whether the others suffice for matches, both with and without frozen members."""
    others = [member for member in members if member.ref != ref]
    learners = [member for member in others if member.learns]
    enough = len(learners) >= least
    return enough and all(_makes_matches(some, matchmaker) for some in (others, learners))


def can_stand_in(members: Sequence[Member], ref: PolicyRef, matchmaker: Matchmaker) -> bool:
    """Return whether matches can be made with a frozen copy in place of a policy."""
    live = next(member for member in members if member.ref == ref)
    others = [member for member in members if member.ref != ref]
    versions = (member.ref.version for member in others if not member.ref.is_scripted)
    newest = max(versions, default=0)
    frozen = Member(PolicyRef(ref.policy, max(newest, 0) + 1), live.seats)
    frozen.slot = live.slot
    learns = any(member.learns for member in others)
    return learns and _makes_matches([*others, frozen], matchmaker)


def _makes_matches(members: Sequence[Member], matchmaker: Matchmaker) -> bool:
    population = Population()
    for member in members:
        population.add(Member(member.ref, member.seats, member.parent), member.slot)
    trial = copy.deepcopy(matchmaker)
    try:
        trial.propose(population, Ledger(population), 1, np.random.default_rng(0))
    except ConfigError:
        return False
    return True
