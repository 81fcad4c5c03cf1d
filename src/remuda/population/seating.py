"""Who sits where in one match: draws of members for seats, none of them twice where that can be.

Where every seat has a member of its own, all seatings that seat no member twice are equally likely.
The first draws take each seat by itself, and one is kept in which no member sits twice: among
hundreds of them they hardly ever fail, and nothing has to be found out about any. Where they fail,
seatings are counted and drawn in proportion. Both are exactly uniform, so it does not matter which
of them found a seating. What is drawn from a random generator follows from who may sit where alone,
never from what is remembered, so that a resumed run repeats an uninterrupted one.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from remuda.population.counting import COUNTS, Choices
from remuda.population.records import Member, PolicyRef, Population

Seating = tuple[PolicyRef, ...]
"""By seat: who sits there."""
Who = TypeVar("Who", bound=Hashable)
Group = tuple[Sequence[Who], list[int]]
"""Who may take some seats, and which seats these are."""

DRAWS = 8
"""Seatings that are drawn seat by seat before any are counted."""
WORTH = 0.05
"""They are not tried where fewer of them than this share can be without repetition."""
EXCHANGES = 20
"""For each seat, those that are tried to mix a seating."""


class Seatings(Generic[Who]):
    """The seatings of some seats that seat no member twice, to draw from.

    What it guarantees:

    1. Where there are any, one of them is drawn, and all are equally likely, as long as draws seat
       by seat find one, or they can be counted in `COUNTED` steps: always, but for many seats that
       are each kept to others.
    2. Where they cannot be, a seating is found by augmenting paths and mixed by random exchanges,
       each as likely as the one that undoes it: all that exchanges lead to are equally likely in
       the limit.
    3. Where there are none, each seat is drawn by itself, all who may take it being equally likely.
    4. Seats that share no member with others, even by way of further seats, are drawn by
       themselves, so that the others seat no member twice even if there are too few for these.
    5. To make one costs nothing that grows with the number of policies.
    """

    def __init__(self, able: Sequence[Sequence[Who]]) -> None:
        """Note who may take which seat."""
        self._able = able
        self._groups = groups_of(able)
        self._parts: list[_Part[Who]] | None = None
        self._possible: bool | None = None

    @property
    def possible(self) -> bool:
        """Whether there is a seating that seats no member twice."""
        if self._possible is None:
            self._possible = len(match_up(self._able)) == len(self._able)
        return self._possible

    def draw(self, random: np.random.Generator) -> tuple[Who, ...]:
        """By seat, who sits there."""
        if len(self._groups) == 1:
            return _choose(self._able[0], len(self._able), random)
        return _draw_apart(self._able, self._groups, random) or self.draw_counted(random)

    def draw_counted(self, random: np.random.Generator) -> tuple[Who, ...]:
        """Likewise, where to draw seat by seat is known to be in vain."""
        if self._parts is None:
            self._parts = [_Part(self._able, groups) for groups in connected(self._groups)]
        seated: dict[int, Who] = {}
        for part in self._parts:
            seated |= zip(part.seats, part.draw(random), strict=True)
        return tuple(seated[seat] for seat in range(len(seated)))


class _Part(Generic[Who]):
    """Seats that hang together: they share no member with others, and cannot be taken apart."""

    def __init__(self, able: Sequence[Sequence[Who]], groups: Sequence[Group[Who]]) -> None:
        self.seats = [seat for _, seats in groups for seat in seats]
        self._able = [able[seat] for seat in self.seats]
        place = {seat: i for i, seat in enumerate(self.seats)}
        self._groups = [(members, [place[seat] for seat in seats]) for members, seats in groups]
        if len(groups) == 1:
            return
        may_take: dict[Who, list[int]] = {}
        for group, (members, _) in enumerate(self._groups):
            for who in members:
                may_take.setdefault(who, []).append(group)
        kinds: dict[tuple[int, ...], list[Who]] = {}
        for who, taken in may_take.items():
            kinds.setdefault(tuple(taken), []).append(who)
        self._kinds = [(taken, kinds[taken]) for taken in sorted(kinds)]
        self._sizes = tuple(len(seats) for _, seats in self._groups)
        self._shape = tuple((taken, len(members)) for taken, members in self._kinds)

    def draw(self, random: np.random.Generator) -> tuple[Who, ...]:
        """By seat of these, who sits there."""
        if len(self._groups) == 1:
            return _choose(self._able[0], len(self._able), random)
        seating = _draw_apart(self._able, self._groups, random)
        if seating:
            return seating
        choices = COUNTS.choices(self._sizes, self._shape)
        if choices:
            return self._draw_kinds(choices, random)
        if choices is None:
            seated = match_up(self._able, random)
            if len(seated) == len(self._able):
                return self._exchanged(list(seated.values()), random)
        drawn = random.integers([len(members) for members in self._able]).tolist()
        return tuple(members[i] for members, i in zip(self._able, drawn, strict=True))

    def _draw_kinds(self, choices: Choices, random: np.random.Generator) -> tuple[Who, ...]:
        """How many of each kind sit in each group, then which of them on which seats."""
        group_of = {seat: g for g, (_, seats) in enumerate(self._groups) for seat in seats}
        seats_of: list[list[int]] = [[] for _ in self._sizes]
        for seat in random.permutation(len(self._able)).tolist():
            seats_of[group_of[seat]].append(seat)
        seated: dict[int, Who] = {}
        left, drawn = self._sizes, random.random(len(self._kinds)).tolist()
        for kind, (groups, members) in enumerate(self._kinds):
            cumulative, rests = choices[kind][left]
            rest = rests[bisect(cumulative, drawn[kind])]
            count = sum(left) - sum(rest)
            if count:
                order = random.choice(len(members), count, replace=False).tolist()
                for group in groups:
                    for _ in range(left[group] - rest[group]):
                        seated[seats_of[group].pop()] = members[order.pop()]
            left = rest
        return tuple(seated[seat] for seat in range(len(seated)))

    def _exchanged(self, seating: list[Who], random: np.random.Generator) -> tuple[Who, ...]:
        """A seating after many exchanges of two seats, or with one who had no seat."""
        may_sit = [set(members) for members in self._able]
        seat_of = {who: seat for seat, who in enumerate(seating)}
        seats = random.integers(len(seating), size=EXCHANGES * len(seating)).tolist()
        for seat, drawn in zip(seats, random.random(len(seats)).tolist(), strict=True):
            able, old = self._able[seat], seating[seat]
            new = able[int(drawn * len(able))]
            other = seat_of.get(new)
            if other is None:
                del seat_of[old]
            elif old in may_sit[other]:  # its own seat too, where nothing changes
                seating[other], seat_of[old] = old, other
            else:
                continue
            seating[seat], seat_of[new] = new, seat
        return tuple(seating)


def draw_apart(
    population: Population,
    name: Hashable,
    past: Sequence[bool],
    live: Sequence[Sequence[Member]],
    frozen: Sequence[Sequence[Member]],
    random: np.random.Generator,
) -> Seating:
    """Live policies on some seats and frozen copies on the others, each drawn by `Seatings`.

    Where too few of one kind may take the seats that are theirs, those seats go to the other kind
    that must, so that no member sits twice, and no seats besides.
    """
    kinds = [bool(frozen[s]) and (past[s] or not live[s]) for s in range(len(past))]
    seating = _draw_both(population, name, kinds, live, frozen, random)
    if len(set(seating)) == len(past) or not any(frozen):
        return seating
    mended = few_changes(kinds, live, frozen, random)
    if mended == kinds:
        return seating
    return _draw_both(population, name, mended, live, frozen, random)


def _draw_both(
    population: Population,
    name: Hashable,
    past: Sequence[bool],
    live: Sequence[Sequence[Member]],
    frozen: Sequence[Sequence[Member]],
    random: np.random.Generator,
) -> Seating:
    """Live policies on some seats, and frozen copies on the others."""
    seating: dict[int, PolicyRef] = {}
    for is_past, members in ((False, live), (True, frozen)):
        seats = tuple(seat for seat, each in enumerate(past) if each == is_past)
        if seats:
            drawn = draw_different(population, (name, is_past, seats), members, seats, random)
            seating |= zip(seats, drawn, strict=True)
    return tuple(seating[seat] for seat in range(len(seating)))


def few_changes(
    past: Sequence[bool],
    live: Sequence[Sequence[Who]],
    frozen: Sequence[Sequence[Who]],
    random: np.random.Generator,
) -> list[bool]:
    """Which seats the past takes so that none need sit twice: as told, but for those that clash.

    As many seats as possible are matched with their own kind, in an order drawn at random. Each of
    the others takes one of the other kind who is free, or makes others move along. Who is matched
    stays so, hence there are never fewer live policies than before. A seat for which no member
    is left stays as it is.
    """
    own = [frozen[seat] if is_past else live[seat] for seat, is_past in enumerate(past)]
    other = [live[seat] if is_past else frozen[seat] for seat, is_past in enumerate(past)]
    seated = match_up(own, random)
    if len(seated) < len(past):
        seated = match_up(own, random, other, seated)
    kept = [seat not in seated or seated[seat] in own[seat] for seat in range(len(past))]
    return [is_past == is_kept for is_past, is_kept in zip(past, kept, strict=True)]


def draw_different(
    population: Population,
    key: object,
    members: Sequence[Sequence[Member]],
    seats: Sequence[int],
    random: np.random.Generator,
) -> Seating:
    """One for each of these seats, as `Seatings` draws."""
    found = population.view(key, lambda: Seatings([members[seat] for seat in seats]))
    return tuple(member.ref for member in found.draw(random))


def seat_all(group: Sequence[Member], num_seats: int, random: np.random.Generator) -> Seating:
    """A group on the seats, in any order that their restrictions allow; empty: there is none.

    Some orders are drawn and the first that is allowed is taken, which is exactly uniform; where
    none of them is, those that are allowed are drawn by `Seatings`.
    """
    group = [group[i % len(group)] for i in range(num_seats)]
    if all(member.seats is None for member in group):
        return tuple(group[i].ref for i in random.permutation(num_seats).tolist())
    places = range(num_seats)  # of the group: where it is too small, some are in it twice
    able = [[i for i in places if group[i].may_sit(seat)] for seat in range(num_seats)]
    orders = np.tile(np.arange(num_seats), (DRAWS, 1))
    for order in random.permuted(orders, axis=1, out=orders).tolist():
        if all(group[i].may_sit(seat) for seat, i in enumerate(order)):
            return tuple(group[i].ref for i in order)
    seatings = Seatings(able)
    if not seatings.possible:
        return ()
    return tuple(group[i].ref for i in seatings.draw_counted(random))


def match_up(
    able: Sequence[Sequence[Who]],
    random: np.random.Generator | None = None,
    besides: Sequence[Sequence[Who]] | None = None,
    seated: Mapping[int, Who] | None = None,
) -> dict[int, Who]:
    """Seat as many as possible, none twice: by seat, who sits there; in order.

    It is found by augmenting paths: all who sit stay seated, perhaps elsewhere.
    """
    count, seated = len(able), seated or {}

    def some_of(members: Sequence[Who]) -> Sequence[Who]:
        """As many as there are seats are enough: one of them is always free."""
        if random is None or not members:
            return members[:count]
        first, length = int(random.integers(len(members))), len(members)
        return [members[i - length] for i in range(first, first + min(count, length))]

    asks = [[*some_of(members)] for members in able]
    others = [[*some_of(members)] for members in besides] if besides else [[]] * count
    seat_of = {who: seat for seat, who in seated.items()}

    def find(seat: int, may_take: Iterable[Who], asked: set[Who]) -> bool:
        for who in may_take:
            if who not in asked:
                asked.add(who)
                held = seat_of.get(who)
                if held is None or find(held, (*asks[held], *others[held]), asked):
                    seat_of[who] = seat
                    return True
        return False

    empty = [seat for seat in range(count) if seat not in seated]
    for i in range(len(empty)) if random is None else random.permutation(len(empty)).tolist():
        find(empty[i], (*others[empty[i]], *asks[empty[i]]), set())
    found = {seat: who for who, seat in seat_of.items()}
    return {seat: found[seat] for seat in sorted(found)}


def groups_of(able: Sequence[Sequence[Who]]) -> list[Group[Who]]:
    """Seats that the same may take, together."""
    groups: list[Group[Who]] = []
    for seat, members in enumerate(able):
        for others, seats in groups:
            if members is others or members == others:
                seats.append(seat)
                break
        else:
            groups.append((members, [seat]))
    return groups


def connected(groups: Sequence[Group[Who]]) -> list[list[Group[Who]]]:
    """The groups that share a member, together, also by way of others."""
    parts: list[tuple[set[Who], list[Group[Who]]]] = []
    for group in groups:
        members, together = set(group[0]), [group]
        apart = []
        for part in parts:
            if part[0].isdisjoint(members):
                apart.append(part)
            else:
                members, together = members | part[0], [*part[1], *together]
        parts = [*apart, (members, together)]
    return [together for _, together in parts]


def _choose(members: Sequence[Who], count: int, random: np.random.Generator) -> tuple[Who, ...]:
    """So many of those who may all take the same seats; twice only if there are too few."""
    chosen = random.choice(len(members), count, replace=len(members) < count)
    return tuple(members[i] for i in chosen.tolist())


def _draw_apart(
    able: Sequence[Sequence[Who]], groups: Sequence[Group[Who]], random: np.random.Generator
) -> tuple[Who, ...]:
    """The first of some draws seat by seat that seats no member twice; empty: none of them does.

    All draws are equally likely, so are those that are kept.
    """
    share = 1.0  # of the draws, that can be without repetition at most
    for members, seats in groups:
        share *= math.perm(len(members), len(seats)) / len(members) ** len(seats)
    if share < WORTH:
        return ()
    lengths = [len(members) for members in able]
    for drawn in random.integers(lengths, size=(DRAWS, len(able))).tolist():
        seating = tuple(members[i] for members, i in zip(able, drawn, strict=True))
        if len(set(seating)) == len(seating):
            return seating
    return ()
