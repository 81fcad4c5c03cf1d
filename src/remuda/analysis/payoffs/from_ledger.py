"""Empirical games from a ledger of matches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.payoffs.counted_returns import Adjust, sharing, won
from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.ledger_reader import FORMER, KEY, LedgerReader, keys_of, places_of
from remuda.analysis.payoffs.ledger_seats import LedgerSeats, SeatGroup, check_sides
from remuda.analysis.payoffs.payoffs import Payoffs, from_sums
from remuda.analysis.payoffs.profile_sums import ProfileSums, TooLargeError
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.errors import UsageError
from remuda.population.ledger.records import PolicyRef
from remuda.types import Array, Integers, Numbers

LISTED = 64  # more policies than this have too many line-ups
Keep = Callable[[PolicyRef], bool]


def read_payoffs(
    path: Path,
    *,
    symmetric: bool = True,
    sides: Sequence[int] = (),
    wins: bool = False,
    keep: Keep | None = None,
    most: int | None = None,
    adjust: Adjust | None = None,
) -> Payoffs:
    """Return the payoffs between the members of a population, from its ledger.

    Each pair of seats that took part in a match counts as one meeting of their members. A live
    policy is one member, whichever version acted, and so is each frozen copy. Live members come
    first, then copies, by policy and version. If a birth replaced a policy, earlier results of its
    slot are ignored.

    - `symmetric`: pool the seats; otherwise the earlier seat of a meeting is the first role.
    - `sides`: the team number of each seat. Teammates do not meet, and a seat with side -1 meets no
      other. Empty: all meet.
    - `wins`: count wins as 1, losses as 0 and draws as 0.5, instead of returns.
    - `most`: maximum number of members: the live ones, then the newest copies. None: all; memory
      grows with the square of their number.
    - `adjust`: maps the returns [M, seats], with the records [M] of their matches, to those that
      count, such as `shared_returns`.
    """
    if most is not None and most < 1:
        raise UsageError(f"most: there must be at least one policy; this is {most}")
    reader = LedgerReader.open(path)
    of_seat = check_sides(sides, reader.seats)
    members = _members(reader)
    if not len(members):
        raise UsageError(f"{path} has no finished match")
    keys = _chosen(reader, members, keep, most)
    if not len(keys):
        raise UsageError(f"{path}: no policy is left to analyse")
    sums, number = np.zeros((ROWS, len(keys), len(keys))), 0
    for matches, played in _pieces(reader):
        places = np.where(of_seat < 0, -1, places_of(played, keys))
        returns = matches["returns"].astype(np.float64)
        returns = returns if adjust is None else adjust(returns, matches)
        add_up(places, returns, of_seat, symmetric, wins, sums)
        number += _number_of_matches(np.where(np.isnan(returns), -1, places), of_seat)
    return from_sums([str(reader.ref(key)) for key in keys], sums, symmetric, number)


def read_line_ups(
    path: Path,
    groups: Sequence[SeatGroup],
    *,
    keep: Keep | None = None,
    adjust: Adjust | None = None,
) -> EmpiricalGame:
    """Return the game by line-up that a ledger's matches sample; each group of seats is a role.

    Matches of other members, or in which a seat took no part, are left out. `keep` and `adjust` are
    those of `read_payoffs`.
    """
    reader = LedgerReader.open(path)
    keys = [_chosen(reader, _members(reader, group.seats), keep) for group in groups]
    roles = tuple(
        Role(group.name, tuple(str(reader.ref(key)) for key in own), len(group.seats))
        for group, own in zip(groups, keys, strict=True)
    )
    for role in roles:
        if not role.strategies:
            raise UsageError(
                f"{path}: no policy is left to analyse in the role {role.name}; each role needs one"
            )
    seats = [seat for group in groups for seat in group.seats]
    role_of_seat = [number for number, group in enumerate(groups) for _ in group.seats]
    sums = ProfileSums(roles, role_of_seat)
    for matches, played in _pieces(reader):
        chosen = [
            places_of(played[:, seat], keys[role])
            for seat, role in zip(seats, role_of_seat, strict=True)
        ]
        returns = matches["returns"].astype(np.float64)
        returns = returns if adjust is None else adjust(returns, matches)
        sums.add(np.stack(chosen, 1), returns[:, seats])
    return sums.game()


def read_game(
    path: Path,
    seats: LedgerSeats,
    *,
    symmetric: bool = True,
    wins: bool = False,
    keep: Keep | None = None,
    most: int | None = None,
) -> EmpiricalGame:
    """Return the game of a population, by meeting and by line-up, from its ledger.

    Returns are shared as the policies learn from them (`sharing`). Line-ups are not counted of two
    interchangeable seats, nor if there are too many of them. The other arguments are those of
    `read_payoffs`.
    """
    shared = sharing(LedgerReader.open(path).policies, seats.rated, seats.shares)
    adjust, sides, several = shared, seats.opponents, len(seats.groups) > 1
    if wins:
        # if there are opposing teams, a seat of the same team is no opponent, whatever its role
        teams = set(seats.sides) - {-1}
        if several and 1 < len(teams) < sum(side >= 0 for side in seats.sides):
            sides = seats.sides

        def adjust(returns: Numbers, matches: Array) -> Numbers:
            return won(shared(returns, matches), sides)

    payoffs = read_payoffs(
        path,
        symmetric=symmetric or several,
        sides=sides,
        wins=wins,
        keep=keep,
        most=most,
        adjust=shared,
    )
    if several:
        payoffs = with_team_mates(payoffs, path, seats.sides, adjust)
    if not seats.groups or len(payoffs.names) > LISTED:
        return game_of_meetings(payoffs)

    def listed(ref: PolicyRef) -> bool:
        return str(ref) in payoffs.names

    try:
        game = read_line_ups(path, seats.groups, keep=listed, adjust=adjust)
    except TooLargeError as error:
        return game_of_meetings(payoffs, error.roles)
    return replace(game, meetings=payoffs)


def with_team_mates(
    payoffs: Payoffs, path: Path, sides: Sequence[int], adjust: Adjust | None = None
) -> Payoffs:
    """Fill cells of policies that never met with their mean returns as team-mates, from a ledger.

    `payoffs`: symmetric, by meeting, from the same ledger; `sides`: the team number of each seat,
    -1: a scripted seat; `adjust`: as for `read_payoffs`.
    """
    payoffs.check_symmetric("team-mates")

    def listed(ref: PolicyRef) -> bool:
        return str(ref) in payoffs.names

    means, counts = payoffs.means.copy(), payoffs.counts.copy()
    covariances = payoffs.covariances.copy()
    meetings, every = payoffs.met.copy(), slice(None)
    for side in sorted(set(sides) - {-1}):
        seats = [seat if each == side else -1 for seat, each in enumerate(sides)]
        if sum(seat >= 0 for seat in seats) < 2:
            continue
        team = read_payoffs(path, sides=seats, keep=listed, adjust=adjust)
        places = [payoffs.names.index(name) for name in team.names]
        index: tuple[Any, ...] = np.ix_(places, places)
        new = (counts[index] == 0) & (team.counts > 0)
        for whole, own in ((counts, team.counts), (meetings, team.met)):
            whole[index] = np.where(new, own, whole[index])
        means[(every, *index)] = np.where(new, team.means, means[(every, *index)])
        cells = (every, every, *index)
        covariances[cells] = np.where(new, team.covariances, covariances[cells])
    return replace(payoffs, means=means, covariances=covariances, counts=counts, meetings=meetings)


def _number_of_matches(places: Integers, sides: Integers) -> int:
    """Return the number of matches [M, seats] with selected members on two different sides."""
    present = places >= 0
    lowest = np.where(present, sides, sides.max() + 1).min(1)
    highest = np.where(present, sides, sides.min() - 1).max(1)
    return int((lowest < highest).sum())


def _pieces(reader: LedgerReader) -> Iterator[tuple[Array, Integers]]:
    """Yield matches [M] with the keys of their members [M, seats]; -1: replaced by a birth."""
    for matches in reader.pieces(present=True):
        yield matches, np.where(matches["version"] == FORMER, -1, keys_of(matches))


def _members(reader: LedgerReader, seats: Sequence[int] | None = None) -> Integers:
    """Return [N] the sorted keys of all members that took part in a match, on these seats."""
    live = np.zeros(len(reader.policies), np.bool_)
    frozen: Integers = np.zeros(0, np.int64)
    own = slice(None) if seats is None else list(seats)
    for matches, played in _pieces(reader):
        keys = np.where(np.isnan(matches["returns"]), -1, played)[:, own]
        # Most entries belong to the few live policies: mark those, and sort only the copies.
        is_live = keys % KEY == 0
        live[keys[is_live] // KEY] = True
        is_frozen = ~is_live & (keys >= 0)
        if is_frozen.any():
            frozen = np.union1d(frozen, keys[is_frozen])
    return np.union1d(np.flatnonzero(live) * KEY, frozen)


def _chosen(
    reader: LedgerReader,
    keys: Integers,
    keep: Keep | None,
    most: int | None = None,
) -> Integers:
    """Return the keys of the selected members, of sorted `keys`: live ones, then copies."""
    refs = [reader.ref(key) for key in keys]
    places = [place for place, ref in enumerate(refs) if keep is None or keep(ref)]
    live = [place for place in places if not refs[place].is_frozen]
    frozen = [place for place in places if refs[place].is_frozen]
    if most is not None:
        live = live[:most]
        newest = sorted(frozen, key=lambda place: -refs[place].version)
        frozen = sorted(newest[: most - len(live)])
    return keys[[*live, *frozen]]
