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
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from remuda.errors import ConfigError
from remuda.population.ledger import Ledger
from remuda.population.records import RATING, Match, Member, PolicyRef, Population
from remuda.population.rounds import Order, Rounds
from remuda.population.seating import (
    Group,
    Seating,
    Seatings,
    draw_apart,
    draw_different,
    groups_of,
    seat_all,
)
from remuda.types import Array, Bools, Integers, State

By = list[tuple[Member, ...]]
"""By seat, who may take it."""
Able = tuple[By, By, list[Group[tuple[Member, ...]]]]
"""Those that learn; the frozen copies; and together the seats for which both are the same."""
PAST = 0.5
"""The share of the other seats that frozen copies take, unless told otherwise."""
DRAWN = 4096
"""Matches that are drawn to find out who is seated how often."""


class Matchmaker(ABC):
    """Proposes matches."""

    exchangeable: ClassVar[bool] = False
    """Whether policies that may take the same seats are dealt alike before they have played."""

    def __init__(self, num_seats: int) -> None:
        """Match for a game of so many seats."""
        self.num_seats = num_seats
        self.name = type(self).__name__
        """For messages; once it is configured, as the configuration names it."""
        self.past_share = PAST
        """Of the seats besides the one that is sure to be a live policy's, those that frozen copies
        take, 0 to 1."""
        self._teams: tuple[str, ...] = ("",) * num_seats
        """By seat, the team whose policies alone may take it; an empty name: all."""
        self._proposed = 0

    def propose(
        self, population: Population, ledger: Ledger, count: int, random: np.random.Generator
    ) -> list[Match]:
        """So many matches, numbered on from those before.

        Raises:
            ConfigError: nobody may take a seat.
        """
        for seat in range(self.num_seats):
            if not (population.live_for_seat(seat) or population.past_for_seat(seat)):
                raise ConfigError(f"no policy of the population may take seat {seat}")
        matches = []
        for _ in range(count):
            seats = self.seat(population, ledger, random)
            if population.learning and all(ref.is_frozen for ref in seats):
                seats = self._with_one_live(seats, population, random)
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

    def able(self, population: Population) -> Able:
        """Who may take which seat."""

        def find() -> Able:
            seats = range(self.num_seats)
            live = [self.live_for(population, seat) for seat in seats]
            past = [self.past_for(population, seat) for seat in seats]
            return live, past, groups_of([(live[seat], past[seat]) for seat in seats])

        return population.view(("able", self.name, self._teams), find)

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
        self._rounds = Rounds((), num_seats)
        self._order = Order(0, 1, 0)

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """The next of the cycle that policies may take, with the past on its seats."""
        seating = self._next(population, random)
        past = [s for s, is_past in enumerate(self.past_seats(population, random)) if is_past]
        if not past:
            return seating
        able = [population.past_for_seat(seat) for seat in range(self.num_seats)]
        drawn = draw_different(population, ("stand in", *past), able, past, random)
        # Where too few copies may take these seats, the live policy takes its turn after all.
        first = {ref: i for i, ref in reversed([*enumerate(drawn)])}
        instead = {past[i]: ref for ref, i in first.items()}
        return tuple(instead.get(seat, ref) for seat, ref in enumerate(seating))

    def _next(self, population: Population, random: np.random.Generator) -> Seating:
        """The next combination of live policies."""
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
            self._order = Order.draw(self._rounds.count, random)
        return tuple(members[i] for i in self._rounds.seating(self._order.next()))

    def never_dealt(self, population: Population) -> tuple[str, ...]:
        """Those that no turn of a combination lets sit.

        Args:
            population: before its first match.
        """
        learning = population.learning
        if len(learning) < self.num_seats or all(member.seats is None for member in learning):
            return ()
        dealt = Rounds([member.seats for member in learning], self.num_seats).dealt()
        return tuple(member.ref.policy for i, member in enumerate(learning) if i not in dealt)

    def state(self) -> State:
        """Where it is in its cycle too."""
        members = [[ref.policy, ref.version] for ref in self._members]
        return {**super().state(), "order": self._order.plain(), "members": members}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        super().restore(state)
        self._order = Order(*state["order"])
        self._members = [PolicyRef(*ref) for ref in state["members"]]


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
        learns: Bools = population.view(
            "learns", lambda: np.array([member.learns for member in members])
        )
        live = learns[order]
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
        is_past = self._other_past_seats(place, population, random)
        places = population.places
        weights = self._weigh(1.0 - ledger.win_rates_at(learner.place, places))
        left = np.ones(len(places), np.bool_)  # who has no seat yet
        left[np.searchsorted(places, learner.place)] = False
        drawn = self._draw_at_once(place, is_past, population, weights, left, random)
        if not drawn:
            drawn = self._draw_in_turn(place, is_past, population, weights, left, random)
        members = population.members
        drawn = [*drawn[:place], -1, *drawn[place:]]
        return tuple(
            learner.ref if seat == place else members[drawn[seat]].ref
            for seat in range(self.num_seats)
        )

    def _draw_at_once(
        self,
        place: int,
        is_past: Sequence[bool],
        population: Population,
        weights: Array,
        left: Bools,
        random: np.random.Generator,
    ) -> list[int]:
        """All opponents where every seat is for all, and there are enough: by seat, their rows.

        Numbers with the exponential distribution, each divided by the weight, put opponents into an
        order as if they were drawn one after another (Efraimidis and Spirakis 2006, "Weighted
        random sampling with a reservoir", in logarithms). Empty: it cannot be done so.
        """
        members = population.members
        if not population.view("all free", lambda: all(m.seats is None for m in members)):
            return []
        others = [past for seat, past in enumerate(is_past) if seat != place]
        drawn: dict[bool, list[int]] = {}
        for past in (False, True):
            count = others.count(past)
            if not count:
                continue
            rows = self._rows(population, place, "past" if past else "live")
            rows = rows[left[rows]]
            chances = weights[rows]
            if len(rows) < count or not (chances > 0.0).all():
                return []
            keys = random.standard_exponential(len(rows)) / chances
            first = np.argpartition(keys, count - 1)[:count]
            drawn[past] = rows[first[np.argsort(keys[first])]].tolist()[::-1]
        return [drawn[past].pop() for past in others]

    def _draw_in_turn(
        self,
        place: int,
        is_past: Sequence[bool],
        population: Population,
        weights: Array,
        left: Bools,
        random: np.random.Generator,
    ) -> list[int]:
        """The opponents, one seat after another: by seat, their rows among the members."""
        drawn = []
        for seat in range(self.num_seats):
            if seat == place:
                continue
            rows = self._rows(population, seat, "past" if is_past[seat] else "live")
            if is_past[seat] and not len(rows):
                rows = self._rows(population, seat, "live")
            able = rows[left[rows]]
            if not len(able):  # fewer of these than seats; or fewer policies: they sit twice
                rows = self._rows(population, seat, "all")
                able = rows[left[rows]]
                able = able if len(able) else rows
            sums = weights[able].cumsum()
            if sums[-1] > 0.0:
                i = int(np.searchsorted(sums, random.random() * sums[-1], side="right"))
                i = min(i, len(able) - 1)
            else:
                i = int(random.integers(len(able)))
            drawn.append(int(able[i]))
            left[able[i]] = False
        return drawn

    def _rows(self, population: Population, seat: int, name: str) -> Integers:
        """Who may take a seat, as numbers into the members."""

        def find() -> Integers:
            by_name = {"live": population.live_for_seat, "past": population.past_for_seat}
            members = by_name.get(name, population.for_seat)(seat)
            return np.searchsorted(population.places, population.places_of(members))

        return population.view(("rows", name, population.kind_of_seat(seat)), find)

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
        self._teams = tuple(seats)
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
            if not any(own == team and member.may_sit(i) for i, own in enumerate(self._teams))
        )

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:  # noqa: ARG002
        """Draw for each seat from its team."""
        live, past, _ = self.able(population)
        for seat, team in enumerate(self._teams):
            if not live[seat] and not past[seat]:
                raise ConfigError(f"the team {team!r} has nobody left for seat {seat}")
        return _draw_anybody(self, population, random)

    def live_for(self, population: Population, seat: int) -> tuple[Member, ...]:
        """Those of its team that learn and may take a seat."""
        return self._of_team(population, seat, "live", population.live_for_seat(seat))

    def past_for(self, population: Population, seat: int) -> tuple[Member, ...]:
        """The frozen copies of its team that may take a seat."""
        return self._of_team(population, seat, "past", population.past_for_seat(seat))

    def _of_team(
        self, population: Population, seat: int, name: str, members: tuple[Member, ...]
    ) -> tuple[Member, ...]:
        """Those of a seat's team."""
        team, of = self._teams[seat], self._team_of
        return population.view(
            ("team", name, team, population.kind_of_seat(seat)),
            lambda: tuple(member for member in members if of.get(member.ref.policy) == team),
        )


GROUPS = 20
"""Groups that are drawn before whoever may takes the seats."""


def _draw_anybody(
    matchmaker: Matchmaker, population: Population, random: np.random.Generator
) -> Seating:
    """Whoever may take the seats, live policies or the past as these are drawn."""
    past = matchmaker.past_seats(population, random)
    live, frozen, _ = matchmaker.able(population)
    return draw_apart(
        population, ("anybody", matchmaker.name, matchmaker._teams), past, live, frozen, random
    )


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
