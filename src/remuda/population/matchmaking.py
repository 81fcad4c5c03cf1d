"""Matchmakers: who plays whom. Each is one small class; what it promises is tested by counting.

A matchmaker proposes matches for a game of so many seats. It keeps nothing but what it says in
`state`, draws from the stream that it is given, and never seats one policy twice in a match unless
there are fewer policies than seats, or it is self-play.

In every match somebody learns: one seat, each with the same chance, is a live policy's, and of the
others frozen copies take a share that is configured, however many of them there are.
"""

from __future__ import annotations

import copy
import math
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from remuda.errors import ConfigError
from remuda.population.ledger import Ledger
from remuda.population.records import RATING, Match, Member, PolicyRef, Population
from remuda.population.seating import Seating, Seatings, draw_apart, draw_different, seat_all
from remuda.types import Array, Bools, State

PAST = 0.5
"""The share of the other seats that frozen copies take, unless told otherwise."""
LOOKED_THROUGH = 50_000
"""Seatings of a round robin that are looked through for policies that it never deals."""
DRAWN = 4096
"""Matches that are drawn to find out who is seated how often."""


class Matchmaker(ABC):
    """Proposes matches."""

    exchangeable: ClassVar[bool] = False
    """Whether policies that may take the same seats are dealt alike before they have played."""

    def __init__(self, num_seats: int) -> None:
        """Match for a game of so many seats."""
        self.num_seats = num_seats
        self.past_share = PAST
        """Of the seats besides the one that is sure to be a live policy's, those that frozen copies
        take, 0 to 1."""
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
            if population.learning and all(ref.is_frozen for ref in seats):
                seats = _with_one_live(seats, population, random)
            matches.append(Match(self._proposed, seats))
            self._proposed += 1
        return matches

    def expected_shares(self, population: Population) -> dict[str, float]:
        """Return, by live policy, the seats of a match that it is dealt on average.

        They are worked out by dealing with a copy of this matchmaker, unless all policies are
        dealt alike. Frozen copies take their seats from all live policies alike, so the shares of a
        population without any are in proportion.

        Args:
            population: before its first match.
        """
        learning = population.learning
        kinds = {member.seats for member in learning}
        if self.exchangeable and len(kinds) == 1:
            return {member.ref.policy: self.num_seats / len(learning) for member in learning}
        dealer = copy.deepcopy(self)
        cycle = len(learning) * self.num_seats  # in which a matchmaker may go round
        drawn = -(-DRAWN // cycle) * cycle
        matches = dealer.propose(population, Ledger(population), drawn, np.random.default_rng(0))
        seated = Counter(ref.policy for match in matches for ref in match.seats)
        found = {member.ref.policy: seated[member.ref.policy] / drawn for member in learning}
        if not self.exchangeable:
            return _without_noise(found, drawn, dict.fromkeys(found, 1))
        sizes: dict[str, int] = {}
        for kind in kinds:
            alike = [member.ref.policy for member in learning if member.seats == kind]
            found |= dict.fromkeys(alike, sum(found[name] for name in alike) / len(alike))
            sizes |= dict.fromkeys(alike, len(alike))
        return _without_noise(found, drawn, sizes)

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Return the live policies that no match will ever seat, as far as that is known.

        Args:
            population: before its first match.
        """
        del population
        return ()

    def past_seats(self, population: Population, random: np.random.Generator) -> list[bool]:
        """Draw the seats that frozen copies take in the next match: by seat, whether they do.

        One seat at least is a live policy's, if there is a live policy that may take one; nobody
        need sit twice for it, where all may take all seats.
        """
        seats = range(self.num_seats)
        if not population.frozen:
            return [False for _ in seats]
        live = [seat for seat in seats if population.live_for_seat(seat)]
        sure = live[int(random.integers(len(live)))] if live else -1
        drawn = (random.random(self.num_seats) < self.past_share).tolist()
        found = [
            bool(population.past_for_seat(seat)) and (drawn[seat] or seat not in live)
            for seat in seats
        ]
        if live:
            found[sure] = False
        # Not more of either than there are, while there are enough of both together.
        order = random.permutation(self.num_seats).tolist()
        spare = [seat for seat in order if found[seat] and seat in live]
        for seat in spare[: max(sum(found) - len(population.frozen), 0)]:
            found[seat] = False
        rest = [seat for seat in order if not found[seat] and seat != sure]
        able = [seat for seat in rest if population.past_for_seat(seat)]
        missing = self.num_seats - sum(found) - len(population.learning)
        for seat in able[: max(min(missing, len(population.frozen) - sum(found)), 0)]:
            found[seat] = True
        return found

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

    def expected_shares(self, population: Population) -> dict[str, float]:
        """As many seats as it has."""
        seated = Counter(ref.policy for ref in self._seating)
        return {m.ref.policy: float(seated[m.ref.policy]) for m in population.learning}

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Those that it was not made with."""
        seated = {ref.policy for ref in self._seating}
        return tuple(m.ref.policy for m in population.learning if m.ref.policy not in seated)

    def __init__(self, seats: Sequence[str]) -> None:
        """Seat these policies, by agent."""
        super().__init__(len(seats))
        self._seating = tuple(PolicyRef(policy) for policy in seats)

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """As ever."""
        return self._seating


class Random(Matchmaker):
    """All seatings of different policies are equally likely: live on some seats, else frozen."""

    exchangeable = True

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """Draw from all seatings that seat nobody twice."""
        return _draw_anybody(self, population, random)


class RoundRobin(Matchmaker):
    """Everybody meets everybody: every combination of live policies, in turn on every seat.

    A cycle has each combination once in each rotation of its seats, in an order drawn anew, so that
    after any number of matches no two seatings differ by more than one game. Seatings that policies
    may not take are passed over. A birth or a retirement begins a new cycle; copies that are frozen
    or dropped do not. Where the past takes a seat, the live policy whose turn it was stands back
    for a frozen copy, all of them equally likely.
    """

    exchangeable = True

    def __init__(self, num_seats: int) -> None:
        """Begin the first cycle with the first match."""
        super().__init__(num_seats)
        self._members: list[PolicyRef] = []
        self._order = Order(0, 1, 0)

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """The next of the cycle that policies may take, with the past on its seats."""
        seating = self._next(population, random)
        past = [s for s, is_past in enumerate(self.past_seats(population, random)) if is_past]
        if not past:
            return seating
        able = [population.past_for_seat(seat) for seat in range(self.num_seats)]
        drawn = draw_different(population, ("stand in", *past), able, past, random)
        instead = dict(zip(past, drawn, strict=True))
        return tuple(instead.get(seat, ref) for seat, ref in enumerate(seating))

    def _next(self, population: Population, random: np.random.Generator) -> Seating:
        """The next combination of live policies."""
        members = [member.ref for member in population.learning]
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

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Those that no turn of a combination lets sit; not looked for in very long cycles.

        Args:
            population: before its first match.
        """
        learning = population.learning
        if all(member.seats is None for member in learning):
            return ()
        other = RoundRobin(self.num_seats)
        other._members = [member.ref for member in learning]
        count = other._cycle_length()
        missing = {member.ref for member in learning}
        if count > LOOKED_THROUGH:
            return ()
        for number in range(count):
            seating = other._seating(number)
            if not missing.isdisjoint(seating) and all(
                population[ref].may_sit(seat) for seat, ref in enumerate(seating)
            ):
                missing.difference_update(seating)
                if not missing:
                    break
        return tuple(member.ref.policy for member in learning if member.ref in missing)

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
    those whom the window still allows. Where nobody has enough, the closest ratings there are meet;
    where seats are kept to some policies, and no such group may take them, whoever may.
    """

    def __init__(self, num_seats: int, window: float) -> None:
        """Match within this difference of ratings, on openskill's scale."""
        super().__init__(num_seats)
        self.window = window

    exchangeable = True

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """Draw a group within the window, and seat it."""
        ratings = population.numbers[population.places, RATING]
        order = np.argsort(ratings, kind="stable")
        members = population.members
        live = np.array([member.learns for member in population.members])[order]
        for _ in range(self._tries(population)):
            group = self._draw_group(ratings[order], live, random)
            seating = seat_all([members[order[i]] for i in group], self.num_seats, random)
            if seating:
                return seating
        # Seats are kept to some, and no equals may take them together: whoever may.
        return _draw_anybody(self, population, random)

    def _tries(self, population: Population) -> int:
        """How many groups are worth drawing."""
        if len(population.members) <= self.num_seats:
            return 1  # there is but one
        seats = range(self.num_seats)
        everybody = population.view(
            "everybody", lambda: Seatings([population.for_seat(seat) for seat in seats])
        )
        return GROUPS if everybody.possible else 0

    def _draw_group(self, ratings: Array, live: Bools, random: np.random.Generator) -> list[int]:
        """Choose who plays: [seats], numbers into the members by rating.

        Args:
            ratings: [N] ascending.
            live: [N] who learns.
            random: to draw from.
        """
        seats, count = self.num_seats, len(ratings)
        if count <= seats:
            return list(range(count))
        # Every group within the window is a choice from a run of neighbours; the first of it is
        # drawn from all live policies in such a run, and it chooses among the runs that it is in.
        ends = np.searchsorted(ratings, ratings + self.window, side="right")
        largest = np.diff(ends, prepend=0) > 0  # what is part of another run is none of its own
        firsts = np.flatnonzero((ends - np.arange(count) >= seats) & largest)
        ends = ends[firsts]
        covered = np.zeros(count + 1, np.int64)
        np.add.at(covered, firsts, 1)
        np.add.at(covered, ends, -1)
        able = np.flatnonzero((covered.cumsum()[:count] > 0) & live)
        if not len(able):
            return self._closest(ratings, live)
        one = int(able[random.integers(len(able))])
        mine = np.flatnonzero((firsts <= one) & (one < ends))
        run = int(mine[random.integers(len(mine))])
        others = np.arange(firsts[run], ends[run])
        others = others[others != one]
        if live.all():
            chosen = others[random.choice(len(others), seats - 1, replace=False)]
            return [one, *chosen.tolist()]
        learning, frozen = others[live[others]], others[~live[others]]
        past = int((random.random(seats - 1) < self.past_share).sum())
        past = min(max(past, seats - 1 - len(learning)), len(frozen))
        chosen = learning[random.choice(len(learning), seats - 1 - past, replace=False)]
        drawn = frozen[random.choice(len(frozen), past, replace=False)]
        return [one, *chosen.tolist(), *drawn.tolist()]

    def _closest(self, ratings: Array, live: Bools) -> list[int]:
        """Those neighbours whose ratings are closest, of whom one learns."""
        seats = self.num_seats
        spread = ratings[seats - 1 :] - ratings[: len(ratings) - seats + 1]
        lives = np.concatenate(([0], live.cumsum()))
        learns = lives[seats:] > lives[: len(lives) - seats]
        first = int(np.argmin(np.where(learns, spread, np.inf))) if learns.any() else 0
        return list(range(first, first + seats))


class SelfPlay(Matchmaker):
    """A policy that learns against itself, and against what it was.

    The learner takes each seat in turn. Every other seat goes, with probability `newest`, to its
    live weights, and else to one of its frozen copies, all equally likely. Learners take turns.
    """

    exchangeable = True

    def __init__(self, num_seats: int, newest: float = 0.5) -> None:
        """Play the live weights with this probability."""
        super().__init__(num_seats)
        self.past_share = 1.0 - newest

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Those that may not take every seat: a learner takes all of them itself."""
        return tuple(m.ref.policy for m in population.learning if m not in population.free)

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """The learner on its seat, itself or its past on the others."""
        able = population.free
        if not able:
            raise ConfigError("self-play needs a policy that learns and may take every seat")
        turn, place = divmod(self._proposed, self.num_seats)
        learner = able[turn % len(able)].ref
        past = population.past_of(learner.policy)

        def other() -> PolicyRef:
            if not past or random.random() < 1.0 - self.past_share:
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

    exchangeable = True

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
        return self._chances(ledger.win_rates(learner, others))

    def _chances(self, win_rates: Array) -> Array:
        weights = self._weigh(1.0 - win_rates)
        total = weights.sum()
        chances: Array = weights / total if total > 0.0 else np.full(len(weights), 1 / len(weights))
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
        seated, taken = {place: learner.ref}, [learner.place]
        is_past = self._other_past_seats(place, population, random)
        for seat in range(self.num_seats):
            if seat == place:
                continue
            members = population.past_for_seat(seat) if is_past[seat] else ()
            places = population.places_of(members or population.live_for_seat(seat))
            able = places[~np.isin(places, taken)]
            if not len(able):  # fewer of these than seats; or fewer policies: they sit twice
                places = population.places_of(population.for_seat(seat))
                able = places[~np.isin(places, taken)]
                able = able if len(able) else places
            chances = self._chances(ledger.win_rates_at(learner.place, able))
            other = int(able[random.choice(len(able), p=chances)])
            seated[seat] = population.at(other).ref
            taken.append(other)
        return tuple(seated[seat] for seat in range(self.num_seats))

    def _other_past_seats(
        self, place: int, population: Population, random: np.random.Generator
    ) -> list[bool]:
        """By seat, whether a frozen copy is to take it; never the learner's own."""
        if not population.frozen:
            return [False] * self.num_seats
        drawn = (random.random(self.num_seats) < self.past_share).tolist()
        return [is_past and seat != place for seat, is_past in enumerate(drawn)]


class Teams(Matchmaker):
    """Populations against each other: every seat belongs to a team, and each team has policies.

    Within a team all seatings of different policies are equally likely: live on some seats, else
    frozen. Teams are never mixed.
    """

    exchangeable = True

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

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Those of no team, and those that may take none of their team's seats."""
        teams = [(member, self._team_of.get(member.ref.policy)) for member in population.learning]
        return tuple(
            member.ref.policy
            for member, team in teams
            if not any(own == team and member.may_sit(i) for i, own in enumerate(self._seats))
        )

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """Draw for each seat from its team."""
        past = self.past_seats(population, random)
        live, frozen = self._of_teams(population, True), self._of_teams(population, False)
        for seat, members in enumerate(live):
            if not members and not frozen[seat]:
                raise ConfigError(f"the team {self._seats[seat]!r} has nobody left for seat {seat}")
        return draw_apart(population, "teams", past, live, frozen, random)

    def _of_teams(self, population: Population, live: bool) -> list[tuple[Member, ...]]:
        """By seat, who of its team may take it."""
        for_seat = population.live_for_seat if live else population.past_for_seat

        def find(seat: int, team: str) -> Callable[[], tuple[Member, ...]]:
            return lambda: tuple(
                member for member in for_seat(seat) if self._team_of.get(member.ref.policy) == team
            )

        return [
            population.view(("team", live, seat), find(seat, team))
            for seat, team in enumerate(self._seats)
        ]


GROUPS = 20
"""Groups that are drawn before whoever may takes the seats."""


def _draw_anybody(
    matchmaker: Matchmaker, population: Population, random: np.random.Generator
) -> Seating:
    """Whoever may take the seats, live policies or the past as these are drawn."""
    past, seats = matchmaker.past_seats(population, random), range(matchmaker.num_seats)
    live = [population.live_for_seat(seat) for seat in seats]
    frozen = [population.past_for_seat(seat) for seat in seats]
    return draw_apart(population, "anybody", past, live, frozen, random)


def _with_one_live(seats: Seating, population: Population, random: np.random.Generator) -> Seating:
    """A seating with a live policy on one of its seats, where there is one that may take any."""
    able = [seat for seat in range(len(seats)) if population.live_for_seat(seat)]
    if not able:
        return seats
    seat = able[int(random.integers(len(able)))]
    members = population.live_for_seat(seat)
    live = members[int(random.integers(len(members)))].ref
    return (*seats[:seat], live, *seats[seat + 1 :])


def _without_noise(
    shares: Mapping[str, float], drawn: int, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Shares that were counted, with the same number for those that chance alone sets apart.

    Args:
        shares: by policy.
        drawn: matches in which they were counted.
        sizes: by policy, over how many policies its share was averaged.
    """
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
