"""Draw members for the seats of one match, without repetition if possible.

Up to `DRAWS` draws fill each seat independently. The first draw without repetition is used, so all
such seatings are equally likely. If there is none, which happens if members are few, a maximum
matching of seats and members is computed, and mixed by random exchanges. Draws depend only on the
members and the generator, so a resumed run is reproducible.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.random import Generator

from remuda.errors import ConfigError
from remuda.population.ledger.records import Member, PolicyRef, Population

Seating = tuple[PolicyRef, ...]
Who = TypeVar("Who", bound=Hashable)
Group = tuple[Sequence[Who], list[int]]  # members, and the seats that they may take

DRAWS = 8  # seatings drawn seat by seat before a matching is computed
EXCHANGES = 20  # random exchanges per seat to mix a matching


class Seatings(Generic[Who]):
    """The set of seatings that seat no member twice, to draw from.

    Guarantees:

    1. As many different members as possible are seated.
    2. All seatings without repetition are equally likely if a draw seat by seat finds one. In
       crowded matches a matching is mixed by random exchanges, each as likely as its reverse.
    3. The cost of creating an instance does not grow with the number of policies.
    """

    def __init__(self, able: Sequence[Sequence[Who]]) -> None:
        """Draw from `able`, the members that may take each seat."""
        self._able = able
        self._alike = all(members is able[0] or members == able[0] for members in able)
        self._possible: bool | None = None
        self._sets: list[set[Who]] = []

    @property
    def possible(self) -> bool:
        if self._possible is None:
            self._possible = len(match_up(self._able)) == len(self._able)
        return self._possible

    def draw(self, rng: Generator) -> tuple[Who, ...]:
        able = self._able
        if self._alike:
            few = len(able[0]) < len(able)
            chosen = rng.choice(len(able[0]), len(able), replace=few)
            return tuple(able[0][i] for i in chosen.tolist())
        lengths = [len(members) for members in able]
        for drawn in rng.integers(lengths, size=(DRAWS, len(able))).tolist():
            seating = tuple(members[i] for members, i in zip(able, drawn, strict=True))
            if len(set(seating)) == len(seating):
                return seating
        return self.draw_crowded(rng)

    def draw_crowded(self, rng: Generator) -> tuple[Who, ...]:
        """Match as many seats as possible and mix them; draw the remaining seats independently."""
        able, seated = self._able, match_up(self._able, rng)
        self._sets = self._sets or [set(members) for members in able]
        matched = list(seated)
        seat_of = {member: seat for seat, member in seated.items()}
        numbers = rng.integers(len(matched), size=EXCHANGES * len(matched)).tolist()
        for number, drawn in zip(numbers, rng.random(len(numbers)).tolist(), strict=True):
            seat = matched[number]
            old, new = seated[seat], able[seat][int(drawn * len(able[seat]))]
            other = seat_of.get(new)
            if other is None:
                del seat_of[old]
            elif old in self._sets[other]:  # `other` may equal `seat`: nothing changes
                seated[other], seat_of[old] = old, other
            else:
                continue
            seated[seat], seat_of[new] = new, seat
        rest = rng.integers([len(members) for members in able]).tolist()
        return tuple(seated.get(seat, able[seat][rest[seat]]) for seat in range(len(able)))


def draw_apart(
    population: Population,
    name: Hashable,
    past: Sequence[bool],
    live: Sequence[Sequence[Member]],
    frozen: Sequence[Sequence[Member]],
    rng: Generator,
) -> Seating:
    """Draw live policies for some seats and frozen members for the others.

    If there are too few of one kind, as few seats as possible go to the other kind, so that no
    member sits twice.
    """
    kinds = [bool(frozen[s]) and (past[s] or not live[s]) for s in range(len(past))]
    seating = _draw_both(population, name, kinds, live, frozen, rng)
    if len(set(seating)) == len(past) or not any(frozen):
        return seating
    mended = few_changes(kinds, live, frozen, rng)
    if mended == kinds:
        return seating
    return _draw_both(population, name, mended, live, frozen, rng)


def _draw_both(
    population: Population,
    name: Hashable,
    past: Sequence[bool],
    live: Sequence[Sequence[Member]],
    frozen: Sequence[Sequence[Member]],
    rng: Generator,
) -> Seating:
    seating: dict[int, PolicyRef] = {}
    for is_past, members in ((False, live), (True, frozen)):
        seats = tuple(seat for seat, each in enumerate(past) if each == is_past)
        if seats:
            drawn = draw_different(population, (name, is_past, seats), members, seats, rng)
            seating |= zip(seats, drawn, strict=True)
    return tuple(seating[seat] for seat in range(len(seating)))


def few_changes(
    past: Sequence[bool],
    live: Sequence[Sequence[Who]],
    frozen: Sequence[Sequence[Who]],
    rng: Generator,
) -> list[bool]:
    """Change the choice of seats for frozen members as little as possible, to avoid repetition.

    As many seats as possible are matched with their own kind, in random order. Each remaining seat
    gets a free member of the other kind, if necessary by moving other members. The number of live
    policies never decreases. A seat without a free member stays unchanged.
    """
    own = [frozen[seat] if is_past else live[seat] for seat, is_past in enumerate(past)]
    other = [live[seat] if is_past else frozen[seat] for seat, is_past in enumerate(past)]
    seated = match_up(own, rng)
    if len(seated) < len(past):
        seated = match_up(own, rng, other, seated)
    kept = [seat not in seated or seated[seat] in own[seat] for seat in range(len(past))]
    return [is_past == is_kept for is_past, is_kept in zip(past, kept, strict=True)]


def draw_different(
    population: Population,
    key: object,
    members: Sequence[Sequence[Member]],
    seats: Sequence[int],
    rng: Generator,
) -> Seating:
    """Draw a member for each of these seats from cached `Seatings`."""
    found = population.view(key, lambda: Seatings([members[seat] for seat in seats]))
    return tuple(member.ref for member in found.draw(rng))


def seat_all(group: Sequence[Member], num_seats: int, rng: Generator) -> Seating:
    """Seat a group in a random allowed order; an empty tuple if no order is allowed."""
    group = [group[i % len(group)] for i in range(num_seats)]
    if all(member.seats is None for member in group):
        return tuple(group[i].ref for i in rng.permutation(num_seats).tolist())
    numbers = range(num_seats)  # indices into the group; a small group repeats some members
    able = [[i for i in numbers if group[i].may_sit(seat)] for seat in range(num_seats)]
    orders = np.tile(np.arange(num_seats), (DRAWS, 1))
    for order in rng.permuted(orders, axis=1, out=orders).tolist():
        if all(group[i].may_sit(seat) for seat, i in enumerate(order)):
            return tuple(group[i].ref for i in order)
    seatings = Seatings(able)
    if not seatings.possible:
        return ()
    return tuple(group[i].ref for i in seatings.draw_crowded(rng))


def match_up(
    able: Sequence[Sequence[Who]],
    rng: Generator | None = None,
    besides: Sequence[Sequence[Who]] | None = None,
    seated: Mapping[int, Who] | None = None,
) -> dict[int, Who]:
    """Return a maximum matching: the member of each matched seat, by the seat's number.

    Seats that are not in `seated` try the members of `besides` first, then those of `able`.
    """
    count, seated = len(able), seated or {}

    def some_of(members: Sequence[Who]) -> Sequence[Who]:
        """Return at most `count` members, which are enough: one of them is always free."""
        if rng is None or not members:
            return members[:count]
        first, length = int(rng.integers(len(members))), len(members)
        return [members[i - length] for i in range(first, first + min(count, length))]

    candidates = [[*some_of(members)] for members in able]
    others = [[*some_of(members)] for members in besides] if besides else [[]] * count
    seat_of = {member: seat for seat, member in seated.items()}

    def find(seat: int, may_take: Iterable[Who], tried: set[Who]) -> bool:
        for member in may_take:
            if member not in tried:
                tried.add(member)
                held = seat_of.get(member)
                if held is None or find(held, (*candidates[held], *others[held]), tried):
                    seat_of[member] = seat
                    return True
        return False

    empty = [seat for seat in range(count) if seat not in seated]
    for i in range(len(empty)) if rng is None else rng.permutation(len(empty)).tolist():
        find(empty[i], (*others[empty[i]], *candidates[empty[i]]), set())
    found = {seat: member for member, seat in seat_of.items()}
    return {seat: found[seat] for seat in sorted(found)}


def groups_of(able: Sequence[Sequence[Who]]) -> list[Group[Who]]:
    groups: list[Group[Who]] = []
    for seat, members in enumerate(able):
        for others, seats in groups:
            if members is others or members == others:
                seats.append(seat)
                break
        else:
            groups.append((members, [seat]))
    return groups


def check_seating(
    population: Population,
    seats: Sequence[PolicyRef],
    matchmaker: str,
    agents: Sequence[str],
    once: bool = False,
) -> None:
    """Refuse a match that cannot be played, or that gives a policy a seat that it may not take.

    The matchmaker may be a user's, so every match is checked, which takes a microsecond.
    """
    if len(seats) != len(agents):
        raise ConfigError(
            f"the matchmaker {matchmaker} deals {len(seats)} seats, but the game has "
            f"{len(agents)}; let its `seat` return one PolicyRef for each"
        )
    if once and len(set(seats)) < len(seats):
        raise ConfigError(
            f"the matchmaker {matchmaker} deals {', '.join(map(str, seats))}, one of them twice, "
            "but its class sets `seats_differ`; leave that out, or deal each policy a single seat"
        )
    for seat, ref in enumerate(seats):
        if ref not in population:
            there = population.members
            known = ", ".join(str(member.ref) for member in there[:8])
            known += f" and {len(there) - 8} more" if len(there) > 8 else ""
            raise ConfigError(
                f"the matchmaker {matchmaker} deals {agents[seat]} to {ref}, which is not in the "
                f"population; there are {known}"
            )
        member = population[ref]
        if not member.may_sit(seat):
            kept = ", ".join(agents[each] for each in sorted(member.seats or ()))
            name = ref.policy
            mend = "let its `seat` call Member.may_sit"
            if matchmaker == "fixed":
                mend = "list population.policies in the order of the agents"
            raise ConfigError(
                f"the matchmaker {matchmaker} deals {ref} the seat of {agents[seat]}, but "
                f"population.seats.{name} restricts it to {kept}; {mend}, leave "
                f"population.seats.{name} out, or use another population.matchmaker"
            )
