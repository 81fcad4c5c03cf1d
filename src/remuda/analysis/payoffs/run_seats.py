"""How the seats of a run form a game: its teams, its roles and the returns that count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from remuda.analysis.payoffs.game_from_ledger import SeatGroup, grouped_seats
from remuda.population.ledger.ratings import sides_of
from remuda.population.roster import Roster
from remuda.population.run_spec import RunSpec


@dataclass(frozen=True)
class RunSeats:
    """The seats of a run's matches."""

    sides: tuple[int, ...]  # team numbers by seat; -1: a scripted seat, which has no opponents
    rated: tuple[int, ...]  # team numbers by seat, including scripted seats
    groups: tuple[SeatGroup, ...] = ()
    """Seats by role: several roles have different policies, and a single role has three
    interchangeable seats or more. Empty: a game of two interchangeable seats or teams."""
    untrained: tuple[int, ...] = ()  # seats that no policy that learns may take
    shares: Mapping[str, float] = field(default_factory=dict)
    """The weight of the team's mean in a policy's returns; empty: each seat's own return counts."""

    @staticmethod
    def of(spec: RunSpec) -> RunSeats:
        """Return the seats of a run, as its configuration and its environment define them."""
        roster, sides = spec.roster, tuple(spec.sides)
        return RunSeats(
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


def group_numbers(groups: Sequence[SeatGroup], sides: Sequence[int]) -> tuple[int, ...]:
    """Return the number of each seat's group; -1: a scripted seat."""
    numbers = {seat: number for number, group in enumerate(groups) for seat in group.seats}
    return tuple(numbers.get(seat, -1) for seat in range(len(sides)))
