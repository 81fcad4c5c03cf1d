"""Matchmakers: who plays whom. Each is one small class; what it promises is tested by counting.

A matchmaker proposes matches for a game of so many seats. It keeps nothing but what it says in
`state`, draws from the stream that it is given, and never seats one policy twice in a match unless
there are fewer policies than seats, or it is self-play.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from remuda.errors import ConfigError
from remuda.population.ledger import Ledger
from remuda.population.records import Match, Member, PolicyRef, Population
from remuda.types import Array, State

Seating = tuple[PolicyRef, ...]
"""By seat: who sits there."""


class Matchmaker(ABC):
    """Proposes matches."""

    def __init__(self, num_seats: int) -> None:
        """Match for a game of so many seats."""
        self.num_seats = num_seats
        self._proposed = 0

    def propose(
        self, population: Population, ledger: Ledger, count: int, random: np.random.Generator
    ) -> list[Match]:
        """So many matches, numbered on from those before.

        Raises:
            ConfigError: nobody may take a seat.
        """
        for seat in range(self.num_seats):
            if not population.for_seat(seat):
                raise ConfigError(f"no policy of the population may take seat {seat}")
        matches = []
        for _ in range(count):
            seats = self.seat(population, ledger, random)
            matches.append(Match(self._proposed, seats))
            self._proposed += 1
        return matches

    @abstractmethod
    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:
        """Who sits where in the next match."""

    def begin_at(self, number: int) -> None:
        """Number the next match so; whoever proposed those before is gone."""
        self._proposed = number

    def state(self) -> State:
        """What a successor needs to propose what this would have."""
        return {"proposed": self._proposed}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self._proposed = state["proposed"]


class Fixed(Matchmaker):
    """The same seating in every match: a shared world in which every agent has its own policy."""

    def __init__(self, seats: Sequence[str]) -> None:
        """Seat these policies, by agent."""
        super().__init__(len(seats))
        self._seating = tuple(PolicyRef(policy) for policy in seats)

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """As ever."""
        return self._seating


class Random(Matchmaker):
    """All seatings of different policies are equally likely."""

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """Draw anew until nobody sits twice, which leaves all that remain equally likely."""
        return draw_different([population.for_seat(s) for s in range(self.num_seats)], random)


class RoundRobin(Matchmaker):
    """Everybody meets everybody: every combination of policies, in turn on every seat.

    A cycle has each combination once in each rotation of its seats, in an order drawn anew, so that
    after any number of matches no two seatings differ by more than one game. Seatings that policies
    may not take are passed over. A birth or a retirement begins a new cycle.
    """

    def __init__(self, num_seats: int) -> None:
        """Begin the first cycle with the first match."""
        super().__init__(num_seats)
        self._members: list[PolicyRef] = []
        self._order = Order(0, 1, 0)

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """The next of the cycle that policies may take."""
        members = [member.ref for member in population.members]
        if members != self._members:
            self._members, self._order = members, Order(0, 1, 0)
        passed = 0
        while True:
            if self._order.left == 0:
                self._order = Order.draw(self._cycle_length(), random)
            seating = self._seating(self._order.next())
            if all(population[ref].may_sit(seat) for seat, ref in enumerate(seating)):
                return seating
            passed += 1
            if passed > 2 * self._order.count:  # a whole cycle, wherever it was begun
                raise ConfigError(
                    "no combination of different policies may take the seats together"
                )

    def _cycle_length(self) -> int:
        count, seats = len(self._members), self.num_seats
        if count < seats:
            raise ConfigError(
                f"a round robin of {seats} seats needs as many policies; there are {count}"
            )
        return math.comb(count, seats) * seats

    def _seating(self, number: int) -> Seating:
        combination, turned = divmod(number, self.num_seats)
        chosen = [
            self._members[i]
            for i in nth_combination(len(self._members), self.num_seats, combination)
        ]
        return (*chosen[turned:], *chosen[:turned])

    def state(self) -> State:
        """Where it is in its cycle too."""
        members = [[ref.policy, ref.version] for ref in self._members]
        return {**super().state(), "order": self._order.plain(), "members": members}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        super().restore(state)
        self._order = Order(*state["order"])
        self._members = [PolicyRef(*ref) for ref in state["members"]]


MIX, WORD = 0x9E3779B97F4A7C15, 2**64 - 1


class Order:
    """The numbers from 0 to `count` - 1, each once, in a mixed-up order that takes no memory.

    Some numbers are turned by a Feistel network over the next power of four; those beyond the
    count are turned again until they are not (Black and Rogaway 2002, "Ciphers with arbitrary
    finite domains").
    """

    def __init__(self, count: int, key: int, done: int) -> None:
        self.count, self._key, self._done = count, key, done
        self._keys = [zlib.crc32(f"{key} {i}".encode()) for i in range(4)]
        self._bits = max((max(count - 1, 1).bit_length() + 1) // 2, 2)

    @staticmethod
    def draw(count: int, random: np.random.Generator) -> Order:
        """One of many orders."""
        return Order(count, int(random.integers(1, 2**62)), 0)

    @property
    def left(self) -> int:
        """How many are to come."""
        return self.count - self._done

    def next(self) -> int:
        """The next of them."""
        number = self._turn(self._done)
        while number >= self.count:
            number = self._turn(number)
        self._done += 1
        return number

    def plain(self) -> list[int]:
        """What makes another that goes on from here."""
        return [self.count, self._key, self._done]

    def _turn(self, number: int) -> int:
        mask = (1 << self._bits) - 1
        left, right = number >> self._bits, number & mask
        for key in self._keys:
            mixed = (right + key) * MIX & WORD
            left, right = right, left ^ ((mixed ^ mixed >> 29) * MIX >> 32 & mask)
        return left << self._bits | right


def nth_combination(count: int, size: int, number: int) -> list[int]:
    """Of all ways to choose `size` out of `count`, in lexicographic order, the one of a number."""
    chosen: list[int] = []
    for i in range(count):
        with_i = math.comb(count - i - 1, size - len(chosen) - 1) if len(chosen) < size else 0
        if number < with_i:
            chosen.append(i)
        else:
            number -= with_i
    return chosen


class Fitness(Matchmaker):
    """Equals play: no two ratings in a match differ by more than the window.

    The first of a match is drawn from all who have enough others within the window, the rest from
    those whom the window still allows. Where nobody has enough, the closest ratings there are meet.
    """

    def __init__(self, num_seats: int, window: float) -> None:
        """Match within this difference of ratings, on openskill's scale."""
        super().__init__(num_seats)
        self.window = window

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """Draw a group within the window, and seat it."""
        ranked = sorted(population.members, key=lambda member: member.rating)
        group = self._draw_group(ranked, random)
        return seat_all(group, self.num_seats, random)

    def _draw_group(self, ranked: list[Member], random: np.random.Generator) -> list[Member]:
        seats = self.num_seats
        if len(ranked) <= seats:
            return ranked
        # Every group within the window is a choice from a run of neighbours; the first of it is
        # drawn from all who are in such a run, and it chooses among the runs that it is in.
        runs = [
            (first, last)
            for first, last in zip(range(len(ranked)), self._reach(ranked), strict=True)
            if last - first >= seats
        ]
        if not runs:
            closest = min(
                range(len(ranked) - seats + 1),
                key=lambda i: ranked[i + seats - 1].rating - ranked[i].rating,
            )
            return ranked[closest : closest + seats]
        able = sorted({i for first, last in runs for i in range(first, last)})
        one = able[random.integers(len(able))]
        mine = [(first, last) for first, last in runs if first <= one < last]
        first, last = mine[random.integers(len(mine))]
        others = [i for i in range(first, last) if i != one]
        chosen = random.choice(len(others), seats - 1, replace=False)
        return [ranked[one], *(ranked[others[i]] for i in chosen)]

    def _reach(self, ranked: list[Member]) -> list[int]:
        """By member: one past the last whom the window above it reaches."""
        ratings = np.array([member.rating for member in ranked])
        reach: list[int] = np.searchsorted(ratings, ratings + self.window, side="right").tolist()
        return reach


class SelfPlay(Matchmaker):
    """A policy that learns against itself, and against what it was.

    The learner takes each seat in turn. Every other seat goes, with probability `newest`, to its
    live weights, and else to one of its frozen copies, all equally likely. Learners take turns.
    """

    def __init__(self, num_seats: int, newest: float = 0.5) -> None:
        """Play the live weights with this probability."""
        super().__init__(num_seats)
        self.newest = newest

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """The learner on its seat, itself or its past on the others."""
        able = population.free
        if not able:
            raise ConfigError("self-play needs a policy that learns and may take every seat")
        turn, place = divmod(self._proposed, self.num_seats)
        learner = able[turn % len(able)].ref
        past = population.past_of(learner.policy)

        def other() -> PolicyRef:
            if not past or random.random() < self.newest:
                return learner
            return past[int(random.random() * len(past))].ref

        return tuple(learner if seat == place else other() for seat in range(self.num_seats))


def hard(loses: Array) -> Array:
    """The chance to lose, squared: those whom one loses to most."""
    squared: Array = loses**2
    return squared


def even(loses: Array) -> Array:
    """The chance to lose times that to win: those who are one's equals."""
    product: Array = loses * (1.0 - loses)
    return product


WEIGHTINGS: Mapping[str, Callable[[Array], Array]] = {"hard": hard, "even": even}


class Prioritized(Matchmaker):
    """Prioritized fictitious self-play: opponents by the chance to lose to them.

    A learner, each in turn and on each seat in turn, meets others drawn with probability in
    proportion to a weighting of its chance to lose to them (Vinyals et al. 2019, "Grandmaster level
    in StarCraft II"). Where every weight is 0, all are equally likely.
    """

    def __init__(self, num_seats: int, weighting: str = "hard") -> None:
        """Weigh by `hard` or `even`.

        Raises:
            ConfigError: there is no such weighting.
        """
        super().__init__(num_seats)
        if weighting not in WEIGHTINGS:
            known = ", ".join(WEIGHTINGS)
            raise ConfigError(f"there is no weighting {weighting!r}; there are {known}")
        self._weigh = WEIGHTINGS[weighting]

    def chances(self, learner: PolicyRef, others: Sequence[PolicyRef], ledger: Ledger) -> Array:
        """The probability of each of these opponents: [len(others)]."""
        weights = self._weigh(1.0 - ledger.win_rates(learner, others))
        total = weights.sum()
        chances: Array = weights / total if total > 0.0 else np.full(len(others), 1 / len(others))
        return chances

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:
        """The learner on its seat, opponents drawn one after another without repetition."""
        learning = population.learning
        if not learning:
            raise ConfigError("nobody in the population learns, so nobody's opponents are chosen")
        turn, place = divmod(self._proposed, self.num_seats)
        learner = learning[turn % len(learning)]
        if not learner.may_sit(place):
            place = next(seat for seat in range(self.num_seats) if learner.may_sit(seat))
        seated = {place: learner.ref}
        for seat in range(self.num_seats):
            if seat == place:
                continue
            able = [m.ref for m in population.for_seat(seat) if m.ref not in seated.values()]
            if not able:  # fewer policies than seats: they sit more than once
                able = [m.ref for m in population.for_seat(seat)]
            seated[seat] = able[random.choice(len(able), p=self.chances(learner.ref, able, ledger))]
        return tuple(seated[seat] for seat in range(self.num_seats))


class Teams(Matchmaker):
    """Populations against each other: every seat belongs to a team, and each team has policies.

    Within a team all seatings of different policies are equally likely; teams are never mixed.
    """

    def __init__(self, seats: Sequence[str], policies: Mapping[str, Sequence[str]]) -> None:
        """Deal out the seats.

        Args:
            seats: by seat, its team.
            policies: by team, the policies that play for it; their frozen copies do too.

        Raises:
            ConfigError: a team without policies, or a policy in two teams.
        """
        super().__init__(len(seats))
        self._seats = tuple(seats)
        self._team_of: dict[str, str] = {}
        for team, members in policies.items():
            for policy in members:
                if self._team_of.setdefault(policy, team) != team:
                    raise ConfigError(f"the policy {policy} plays for two teams")
        for team in seats:
            if not policies.get(team):
                raise ConfigError(f"the team {team!r} has a seat and no policy")

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """Draw for each seat from its team."""
        able = [
            tuple(m for m in population.for_seat(seat) if self._team_of.get(m.ref.policy) == team)
            for seat, team in enumerate(self._seats)
        ]
        for seat, members in enumerate(able):
            if not members:
                raise ConfigError(f"the team {self._seats[seat]!r} has nobody left for seat {seat}")
        return draw_different(able, random)


TRIES = 1000
"""Draws before any seating is taken that seats nobody twice, where not all are equally likely."""


def draw_different(able: Sequence[Sequence[Member]], random: np.random.Generator) -> Seating:
    """One for each seat from those who may sit there, all seatings without repetition alike.

    Where there is no such seating, policies sit more than once.
    """
    seats_of: dict[tuple[PolicyRef, ...], list[int]] = {}
    for seat, members in enumerate(able):
        seats_of.setdefault(tuple(member.ref for member in members), []).append(seat)
    if sum(len(refs) for refs in seats_of) == len({ref for refs in seats_of for ref in refs}):
        # Seats that the same may take, and nobody else: these are drawn by themselves.
        seating: dict[int, PolicyRef] = {}
        for refs, seats in seats_of.items():
            chosen = random.choice(len(refs), len(seats), replace=len(refs) < len(seats))
            seating |= {seat: refs[i] for seat, i in zip(seats, chosen, strict=True)}
        return tuple(seating[seat] for seat in range(len(able)))
    drawn: Seating = ()
    for _ in range(TRIES):
        drawn = tuple(members[int(random.integers(len(members)))].ref for members in able)
        if len(set(drawn)) == len(drawn):
            return drawn
    return match_up([[member.ref for member in members] for members in able], random) or drawn


def match_up(able: Sequence[Sequence[PolicyRef]], random: np.random.Generator) -> Seating:
    """Some seating without repetition, by augmenting paths; empty: there is none."""
    seat_of: dict[PolicyRef, int] = {}

    def seat(number: int, asked: set[PolicyRef]) -> bool:
        for i in random.permutation(len(able[number])):
            ref = able[number][i]
            if ref not in asked:
                asked.add(ref)
                if ref not in seat_of or seat(seat_of[ref], asked):
                    seat_of[ref] = number
                    return True
        return False

    if not all(seat(number, set()) for number in range(len(able))):
        return ()
    seated = {number: ref for ref, number in seat_of.items()}
    return tuple(seated[number] for number in range(len(able)))


def seat_all(group: Sequence[Member], num_seats: int, random: np.random.Generator) -> Seating:
    """A group on the seats, in any order that their restrictions allow.

    Raises:
        ConfigError: there is no such order.
    """
    group = [group[i % len(group)] for i in range(num_seats)]
    for _ in range(TRIES):
        order = random.permutation(num_seats)
        if all(group[member].may_sit(seat) for seat, member in enumerate(order)):
            return tuple(group[member].ref for member in order)
    names = ", ".join(str(member.ref) for member in group)
    raise ConfigError(f"the policies {names} may not take the seats together")
