"""How the seats of matches form a game: their teams, their roles and the returns that count."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from remuda.errors import UsageError
from remuda.population.ledger.ratings import sides_of
from remuda.types import Integers

if TYPE_CHECKING:
    from remuda.population.roster import Roster
    from remuda.population.run_spec import RunSpec


@dataclass(frozen=True)
class SeatGroup:
    """Interchangeable seats of an environment, which are one role of a game."""

    name: str
    seats: tuple[int, ...]


def grouped_seats(
    able: Mapping[int, Collection[str]], agents: Sequence[str], teams: Sequence[str]
) -> tuple[SeatGroup, ...]:
    """Group seats that the same policies may take; empty: a policy may take seats of two groups.

    A group is named after its team if it has all seats of that team, or else after its agents.

    `able`: the policies that may take each seat; `agents`, `teams`: names by seat, "": no team.
    """
    by_policies: dict[frozenset[str], list[int]] = {}
    for seat, policies in able.items():
        by_policies.setdefault(frozenset(policies), []).append(seat)
    if sum(map(len, by_policies)) > len({name for each in by_policies for name in each}):
        return ()
    groups = []
    for seats in by_policies.values():
        name = " and ".join(agents[seat] for seat in seats)
        team = teams[seats[0]] if teams else ""
        if team and seats == [seat for seat, own in enumerate(teams) if own == team]:
            name = team
        groups.append(SeatGroup("players" if len(by_policies) == 1 else name, tuple(seats)))
    return tuple(groups)


@dataclass(frozen=True)
class LedgerSeats:
    """The seats of the matches in a ledger: their teams, and the roles that they form."""

    sides: tuple[int, ...] = ()  # team numbers by seat; -1: a scripted seat, which has no opponents
    rated: tuple[int, ...] = ()  # team numbers by seat, including scripted seats
    groups: tuple[SeatGroup, ...] = ()
    """Seats by role: several roles have different policies, and a single role has three
    interchangeable seats or more. Empty: a game of two interchangeable seats or teams."""
    untrained: tuple[int, ...] = ()  # seats that no policy that learns may take
    shares: Mapping[str, float] = field(default_factory=dict)
    """The weight of the team's mean in a policy's returns; empty: each seat's own return counts."""

    @property
    def opponents(self) -> tuple[int, ...]:
        """The side of each seat, whose opponents are on other sides; -1: it has no opponents.

        Several roles are sides; one role's seats are on the sides of their teams.
        """
        if len(self.groups) < 2:
            return self.sides
        numbers = {seat: number for number, group in enumerate(self.groups) for seat in group.seats}
        return tuple(numbers.get(seat, -1) for seat in range(len(self.sides)))

    @staticmethod
    def of(spec: RunSpec) -> LedgerSeats:
        """Return the seats of a run, as its configuration and its environment define them."""
        roster, sides = spec.roster, tuple(spec.sides)
        return LedgerSeats(
            sides,
            tuple(sides_of(roster.teams, len(spec.agents)).tolist()),
            _groups_of(roster, sides),
            tuple(seat for seat in roster.dealt_seats if roster.fixed_on(seat)),
            {name: spec.config.policy_of(name).share_rewards for name in roster.policies}
            if any(roster.teams)
            else {},
        )


def _groups_of(roster: Roster, sides: Sequence[int]) -> tuple[SeatGroup, ...]:
    """Group the seats by the policies that may take them.

    Seats are not grouped if a policy may take seats of several groups, or if the same policies play
    for several teams: then they are pooled.
    """
    members = (*roster.policies, *roster.scripted, *roster.imported)
    able = {
        seat: frozenset(name for name in members if seat in roster.seats_of(name))
        for seat in roster.dealt_seats
    }
    teams = ["" if seat in roster.taken else team for seat, team in enumerate(roster.teams)]
    groups = grouped_seats(able, roster.agents, teams)
    return groups if len(groups) != 1 else one_role(roster.dealt_seats, sides)


def one_role(seats: Sequence[int], sides: Sequence[int]) -> tuple[SeatGroup, ...]:
    """Return the role of interchangeable seats; empty: fewer than three seats, or teams."""
    if len(seats) < 3 or len({sides[seat] for seat in seats}) < len(seats):
        return ()
    return (SeatGroup("players", tuple(seats)),)


def check_sides(sides: Sequence[int], seats: int) -> Integers:
    """Return the number of each seat's side: [seats]; without `sides`, each has its own."""
    if sides and len(sides) != seats:
        raise UsageError(f"sides has {len(sides)} entries, but there are {seats} seats")
    return np.array(sides or range(seats), np.int64)
