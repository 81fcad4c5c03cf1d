"""An empirical game with roles from a ledger of matches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role
from remuda.analysis.payoffs.from_ledger import FORMER, Adjust, LedgerReader, keys_of
from remuda.analysis.payoffs.profile_sums import ProfileSums
from remuda.errors import UsageError
from remuda.population.ledger.records import PolicyRef
from remuda.types import Array, Integers, Numbers


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


def read_game(
    path: Path,
    groups: Sequence[SeatGroup],
    *,
    keep: Callable[[PolicyRef], bool] | None = None,
    adjust: Adjust | None = None,
) -> EmpiricalGame:
    """Return the game that a ledger's matches sample; each group of seats is a role.

    Matches of other members, or in which a seat took no part, are left out. If a birth replaced a
    policy, earlier results of its slot are ignored.

    `adjust`: maps the returns [M, seats], with the records [M] of their matches, to those that
    count, such as `shared_returns` or `won`.
    """
    reader = LedgerReader.open(path)
    keys = [_keys_in(reader, group, keep) for group in groups]
    roles = tuple(
        Role(group.name, tuple(str(reader.ref(key)) for key in own), len(group.seats))
        for group, own in zip(groups, keys, strict=True)
    )
    for role in roles:
        if not role.strategies:
            raise UsageError(f"{path}: no policy is left to analyse in the role {role.name}")
    seats = [seat for group in groups for seat in group.seats]
    role_of_seat = [number for number, group in enumerate(groups) for _ in group.seats]
    sums = ProfileSums(roles, role_of_seat)
    for matches in reader.pieces(present=True):
        of_members = np.where(matches["version"] == FORMER, -1, keys_of(matches))[:, seats]
        chosen = np.stack(
            [_places(of_members[:, i], keys[r]) for i, r in enumerate(role_of_seat)], 1
        )
        returns = matches["returns"].astype(np.float64)
        returns = returns if adjust is None else adjust(returns, matches)
        sums.add(chosen, returns[:, seats])
    return sums.game()


def _keys_in(
    reader: LedgerReader, group: SeatGroup, keep: Callable[[PolicyRef], bool] | None
) -> Integers:
    """Return the keys of the members that played a group's seats: live ones, then copies."""
    found: Integers = np.zeros(0, np.int64)
    for matches in reader.pieces(present=True):
        took_part = ~np.isnan(matches["returns"]) & (matches["version"] != FORMER)
        own: Array = keys_of(matches)[:, group.seats]
        found = np.union1d(found, own[took_part[:, group.seats]])
    refs = [reader.ref(key) for key in found]
    kept = [i for i, ref in enumerate(refs) if keep is None or keep(ref)]
    return found[sorted(kept, key=lambda i: refs[i].is_frozen)]


def _places(members: Integers, keys: Integers) -> Integers:
    """Return the index in `keys` [K] of each member's key; -1: not among them."""
    order = np.argsort(keys)
    found = order[np.searchsorted(keys, members, sorter=order).clip(max=len(keys) - 1)]
    return np.where(keys[found] == members, found, -1)


def won(returns: Numbers, sides: Sequence[int]) -> Numbers:
    """Return the share of opponents with a lower return, a draw as half: [M, seats].

    `sides`: the team number of each seat; -1: a scripted seat, which is no opponent.
    """
    of_seat = np.array(sides)
    is_opponent = (of_seat[:, None] != of_seat) & (of_seat[:, None] >= 0) & (of_seat >= 0)
    better = 0.5 + 0.5 * np.sign(returns[:, :, None] - returns[:, None, :])
    known = is_opponent & ~np.isnan(better)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Numbers = np.where(known, better, 0.0).sum(2) / known.sum(2)
    return np.where(np.isnan(returns), np.nan, found)
