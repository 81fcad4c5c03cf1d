"""Who sits where in one match: draws of policies for seats, nobody twice where that can be.

Where every seat has somebody of its own, all seatings that seat nobody twice are equally likely.
They are counted once for those who may take the seats, and drawn in proportion: no draw is in vain.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Generic, TypeVar

import numpy as np

from remuda.population.records import Member, PolicyRef, Population

Seating = tuple[PolicyRef, ...]
"""By seat: who sits there."""
Who = TypeVar("Who", bound=Hashable)
Counts = tuple[int, ...]
Kinds = tuple[tuple[tuple[int, ...], int], ...]
"""Of each kind: the groups of seats that it may take, and how many there are of it."""

COUNTED = 20_000
"""Steps of counting before seatings are drawn by exchanges instead: tens of milliseconds, once."""
EXCHANGES = 20
"""For each seat, those that are tried to mix a seating."""


class Seatings(Generic[Who]):
    """The seatings of some seats that seat nobody twice, to draw from.

    What it guarantees:

    1. Where there are any, one of them is drawn, and all are equally likely, as long as they can be
       counted in `COUNTED` steps: always, but for many seats that are each kept to others.
    2. Where they cannot be, a seating is found by augmenting paths and mixed by random exchanges,
       each as likely as the one that undoes it: all that exchanges lead to are equally likely in
       the limit.
    3. Where there are none, each seat is drawn by itself, all who may take it being equally likely.
    4. A group of seats that shares nobody with others is drawn by itself, so that the others seat
       nobody twice even if there are too few for this one.
    """

    def __init__(self, able: Sequence[Sequence[Who]]) -> None:
        """Look through who may take which seat.

        Args:
            able: by seat, who may take it; nobody twice.
        """
        self._able = able
        groups: list[tuple[Sequence[Who], list[int]]] = []
        for seat, members in enumerate(able):
            for others, seats in groups:
                if members is others or members == others:
                    seats.append(seat)
                    break
            else:
                groups.append((members, [seat]))
        self._groups = groups
        self._apart = len(groups) == 1 or _are_apart([members for members, _ in groups])
        if self._apart:
            self.possible = all(len(members) >= len(seats) for members, seats in groups)
            """Whether there is a seating that seats nobody twice."""
            return
        may_take: dict[Who, list[int]] = {}
        for group, (members, _) in enumerate(groups):
            for who in members:
                may_take.setdefault(who, []).append(group)
        kinds: dict[tuple[int, ...], list[Who]] = {}
        for who, taken in may_take.items():
            kinds.setdefault(tuple(taken), []).append(who)
        self._kinds = [(taken, kinds[taken]) for taken in sorted(kinds)]
        self._sizes = tuple(len(seats) for _, seats in groups)
        self._group_of = [0] * len(able)
        for group, (_, seats) in enumerate(groups):
            for seat in seats:
                self._group_of[seat] = group
        shape = tuple((taken, len(members)) for taken, members in self._kinds)
        self._choices = count_seatings(self._sizes, shape)
        if self._choices is None:
            self._may_sit = [set(members) for members in able]
            self.possible = bool(match_up(able, np.random.default_rng(0)))
        else:
            self.possible = bool(self._choices)

    def draw(self, random: np.random.Generator) -> tuple[Who, ...]:
        """By seat, who sits there."""
        if self._apart:
            return self._draw_groups(random)
        if not self.possible:
            drawn = random.integers([len(members) for members in self._able]).tolist()
            return tuple(members[i] for members, i in zip(self._able, drawn, strict=True))
        if self._choices is None:
            return self._exchanged(list(match_up(self._able, random)), random)
        return self._draw_kinds(self._choices, random)

    def _draw_groups(self, random: np.random.Generator) -> tuple[Who, ...]:
        """Seats that the same may take, and nobody else: these are drawn by themselves."""
        seated: dict[int, Who] = {}
        for members, seats in self._groups:
            twice = len(members) < len(seats)
            chosen = random.choice(len(members), len(seats), replace=twice)
            seated |= {seat: members[i] for seat, i in zip(seats, chosen, strict=True)}
        return tuple(seated[seat] for seat in range(len(seated)))

    def _draw_kinds(self, choices: Choices, random: np.random.Generator) -> tuple[Who, ...]:
        """How many of each kind sit in each group, then which of them on which seats."""
        seats_of: list[list[int]] = [[] for _ in self._sizes]
        for seat in random.permutation(len(self._able)).tolist():
            seats_of[self._group_of[seat]].append(seat)
        seated: dict[int, Who] = {}
        left, drawn = self._sizes, random.random(len(self._kinds)).tolist()
        for kind, (groups, members) in enumerate(self._kinds):
            cumulative, taken, rest = choices[kind][left]
            i = bisect(cumulative, drawn[kind])
            count = sum(taken[i])
            if count:
                order = random.choice(len(members), count, replace=False).tolist()
                for group, number in zip(groups, taken[i], strict=True):
                    for _ in range(number):
                        seated[seats_of[group].pop()] = members[order.pop()]
            left = rest[i]
        return tuple(seated[seat] for seat in range(len(seated)))

    def _exchanged(self, seating: list[Who], random: np.random.Generator) -> tuple[Who, ...]:
        """A seating after many exchanges of two seats, or with somebody who had none."""
        seat_of = {who: seat for seat, who in enumerate(seating)}
        seats = random.integers(len(seating), size=EXCHANGES * len(seating)).tolist()
        for seat, drawn in zip(seats, random.random(len(seats)).tolist(), strict=True):
            able, old = self._able[seat], seating[seat]
            new = able[int(drawn * len(able))]
            other = seat_of.get(new)
            if other is None:
                del seat_of[old]
            elif old in self._may_sit[other]:  # his own seat too, where nothing changes
                seating[other], seat_of[old] = old, other
            else:
                continue
            seating[seat], seat_of[new] = new, seat
        return tuple(seating)


Choices = list[dict[Counts, tuple[list[float], list[Counts], list[Counts]]]]
"""By kind, and by the seats of each group that are left to it and the kinds after it: cumulative
probabilities, the seats that it takes of its groups, and what is left then."""


@lru_cache(maxsize=512)
def count_seatings(sizes: Counts, kinds: Kinds) -> Choices | None:
    """Count the seatings that seat nobody twice, by how many of each kind sit in each group.

    Args:
        sizes: seats of each group.
        kinds: in order.

    Returns:
        With which probabilities a kind takes how many seats, if all seatings are equally likely;
        empty: there are none. None: they are too many to count.
    """
    last = {group: kind for kind, (groups, _) in enumerate(kinds) for group in groups}
    steps, states = 0, {sizes}
    paths: list[dict[Counts, list[tuple[Counts, Counts, int]]]] = []
    for kind, (groups, members) in enumerate(kinds):
        found: dict[Counts, list[tuple[Counts, Counts, int]]] = {}
        for left in states:
            found[left] = []
            # Whoever is the last that may take a group takes all that is left of it.
            ranges = [range(left[g] if last[g] == kind else 0, left[g] + 1) for g in groups]
            for taken in product(*ranges):
                steps += 1
                if steps > COUNTED:
                    return None
                count = sum(taken)
                if count > members:
                    continue
                rest = list(left)
                ways = math.perm(members, count)
                for group, number in zip(groups, taken, strict=True):
                    ways *= math.comb(left[group], number)
                    rest[group] -= number
                found[left].append((taken, tuple(rest), ways))
        states = {rest for options in found.values() for _, rest, _ in options}
        paths.append(found)
    none_left = (0,) * len(sizes)
    ways_after: dict[Counts, int] = {none_left: 1} if none_left in states else {}
    choices: Choices = []
    for found in reversed(paths):
        ways_now: dict[Counts, int] = {}
        chosen: dict[Counts, tuple[list[float], list[Counts], list[Counts]]] = {}
        for left, options in found.items():
            able = [(t, r, w * ways_after[r]) for t, r, w in options if r in ways_after]
            if not able:
                continue
            total, sums = 0, []
            for _, _, ways in able:
                total += ways
                sums.append(total)
            ways_now[left] = total
            cumulative = [each / total for each in sums]
            chosen[left] = cumulative, [t for t, _, _ in able], [r for _, r, _ in able]
        ways_after = ways_now
        choices.insert(0, chosen)
    return choices if sizes in ways_after else []


def draw_apart(
    population: Population,
    name: str,
    past: Sequence[bool],
    live: Sequence[Sequence[Member]],
    frozen: Sequence[Sequence[Member]],
    random: np.random.Generator,
) -> Seating:
    """Live policies on some seats and frozen copies on the others, each drawn by `Seatings`.

    Args:
        population: whose members they are.
        name: of these views of it, for what is found out once for all matches.
        past: by seat, whether a frozen copy is to take it.
        live: by seat, who may take it of those that learn; where there is nobody, a frozen copy.
        frozen: by seat, who may take it of the frozen copies; likewise.
        random: to draw from.
    """
    chosen = [bool(frozen[s]) and (past[s] or not live[s]) for s in range(len(past))]
    seating: dict[int, PolicyRef] = {}
    for is_past, members in ((False, live), (True, frozen)):
        seats = tuple(seat for seat, each in enumerate(chosen) if each == is_past)
        if seats:
            drawn = draw_different(population, (name, is_past, seats), members, seats, random)
            seating |= zip(seats, drawn, strict=True)
    if len(set(seating.values())) == len(past):
        return _in_order(seating)
    # Perhaps they need not sit twice if all may mix.
    mixed = population.view(
        (name, "mixed"), lambda: Seatings([(*live[s], *frozen[s]) for s in range(len(past))])
    )
    return refs_of(mixed.draw(random)) if mixed.possible else _in_order(seating)


def draw_different(
    population: Population,
    key: object,
    members: Sequence[Sequence[Member]],
    seats: Sequence[int],
    random: np.random.Generator,
) -> Seating:
    """One for each of these seats, as `Seatings` draws.

    Args:
        population: whose members they are.
        key: of what is found out about them, until somebody comes or goes.
        members: by seat of the game, who may take it.
        seats: those to be taken.
        random: to draw from.
    """
    found = population.view(key, lambda: Seatings([members[seat] for seat in seats]))
    return refs_of(found.draw(random))


def refs_of(members: Sequence[Member]) -> Seating:
    """Their references."""
    return tuple(member.ref for member in members)


def _in_order(seating: Mapping[int, PolicyRef]) -> Seating:
    return tuple(seating[seat] for seat in range(len(seating)))


def _are_apart(groups: Sequence[Sequence[Hashable]]) -> bool:
    """Whether nobody is in two of these groups."""
    members = {who for group in groups for who in group}
    return len(members) == sum(len(group) for group in groups)


def match_up(able: Sequence[Sequence[Who]], random: np.random.Generator) -> tuple[Who, ...]:
    """Some seating without repetition, by augmenting paths; empty: there is none."""
    seat_of: dict[Who, int] = {}

    def seat(number: int, asked: set[Who]) -> bool:
        for i in random.permutation(len(able[number])):
            who = able[number][i]
            if who not in asked:
                asked.add(who)
                if who not in seat_of or seat(seat_of[who], asked):
                    seat_of[who] = number
                    return True
        return False

    if not all(seat(number, set()) for number in range(len(able))):
        return ()
    seated = {number: who for who, number in seat_of.items()}
    return tuple(seated[number] for number in range(len(able)))


def seat_all(group: Sequence[Member], num_seats: int, random: np.random.Generator) -> Seating:
    """A group on the seats, in any order that their restrictions allow; empty: there is none."""
    group = [group[i % len(group)] for i in range(num_seats)]
    if all(member.seats is None for member in group):
        return tuple(group[i].ref for i in random.permutation(num_seats).tolist())
    places = range(num_seats)  # of the group: where it is too small, some are in it twice
    able = [[i for i in places if group[i].may_sit(seat)] for seat in range(num_seats)]
    seatings = Seatings(able)
    return tuple(group[i].ref for i in seatings.draw(random)) if seatings.possible else ()
