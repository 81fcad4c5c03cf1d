"""Draw members for the seats of one match, without repetition if possible.

Draws depend only on the members and the generator, so a resumed run is reproducible.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from numpy.random import Generator

from remuda.errors import ConfigError
from remuda.population.ledger.records import Member, PolicyRef, Population

Seating = tuple[PolicyRef, ...]
Who = TypeVar("Who", bound=Hashable)

DRAWS = 8  # seatings drawn with independent seats


def draw_different(
    able: Sequence[Sequence[Who]],
    rng: Generator,
    substitutes: Sequence[Sequence[Who]] | None = None,
) -> list[Who]:
    """Draw one of `able` for each seat, and no member twice if possible.

    The first of `DRAWS` independent seatings without repetition is returned, so all of these are
    equally likely. If there is none, which happens if members are few, seats are filled one after
    another, those with the fewest possible members first. A seat goes to a member without a seat:
    one of `able`, else one of its `substitutes`. If all of them sit, a member sits twice.
    """
    counts = [len(members) for members in able]
    for drawn in rng.integers(counts, size=(DRAWS, len(able))).tolist():
        seating = [members[i] for members, i in zip(able, drawn, strict=True)]
        if len(set(seating)) == len(seating):
            return seating
    for _ in range(4):  # until no member sits twice
        seated: dict[int, Who] = {}
        draws = rng.random(len(able)).tolist()
        for seat in sorted(rng.permutation(len(able)).tolist(), key=counts.__getitem__):
            choices = _without(able[seat], seated)
            if not choices and substitutes is not None:
                choices = _without(substitutes[seat], seated)
            choices = choices or able[seat]
            seated[seat] = choices[int(draws[seat] * len(choices))]
        seating = [seated[seat] for seat in range(len(able))]
        if len(set(seating)) == len(seating):
            break
    return seating


def _without(members: Sequence[Who], seated: Mapping[int, Who]) -> Sequence[Who]:
    taken = set(seated.values())
    return [member for member in members if member not in taken]


def seat_all(group: Sequence[Member], num_seats: int, rng: Generator) -> Seating:
    """Seat a group in a random allowed order; an empty tuple if no order is found."""
    group = [group[i % len(group)] for i in range(num_seats)]
    if all(member.seats is None for member in group):
        return tuple(group[i].ref for i in rng.permutation(num_seats).tolist())
    numbers = range(num_seats)  # indices into the group; a small group repeats some members
    able = [[i for i in numbers if group[i].may_sit(seat)] for seat in numbers]
    order = draw_different(able, rng) if all(able) else []
    return tuple(group[i].ref for i in order) if len(set(order)) == num_seats else ()


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
            members = population.members
            known = ", ".join(str(member.ref) for member in members[:8])
            known += f" and {len(members) - 8} more" if len(members) > 8 else ""
            raise ConfigError(
                f"the matchmaker {matchmaker} deals {agents[seat]} to {ref}, which is not in the "
                f"population; there are {known}"
            )
        member = population[ref]
        if not member.may_sit(seat):
            allowed = ", ".join(agents[each] for each in sorted(member.seats or ()))
            name = ref.policy
            mend = "let its `seat` call Member.may_sit"
            if matchmaker == "fixed":
                mend = "list population.policies in the order of the agents"
            raise ConfigError(
                f"the matchmaker {matchmaker} deals {ref} the seat of {agents[seat]}, but "
                f"population.seats.{name} restricts it to {allowed}; {mend}, leave "
                f"population.seats.{name} out, or use another population.matchmaker"
            )
