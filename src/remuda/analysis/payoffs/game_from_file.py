"""An empirical game with roles from a list of matches in a file (CSV), with columns by seat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role
from remuda.analysis.payoffs.from_files import LARGEST, read_table
from remuda.analysis.payoffs.game_from_ledger import SeatGroup, grouped_seats
from remuda.analysis.payoffs.payoffs import Payoffs, from_sums
from remuda.analysis.payoffs.profile_sums import game_of_matches
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.errors import UsageError
from remuda.types import Numbers

POLICY, RETURN = "/policy", "/return"


@dataclass(frozen=True)
class GameOfMatches:
    """The payoffs by meeting and the game of a list of matches."""

    payoffs: Payoffs
    game: EmpiricalGame


def read_matches(path: Path) -> GameOfMatches | None:
    """Read a list of matches; None: the file's first line has no column `SEAT/policy`.

    For each seat there are the columns `SEAT/policy` and `SEAT/return`, as in the table of
    `Run.ledger`; other columns are ignored. Seats with the same policies are one role. If a policy
    plays seats with different policies, all seats are one role. A seat without a return took no
    part in the match, and need not have a policy.
    """
    if path.suffix != ".csv" or not path.is_file():
        return None
    header, *lines = read_table(path)
    seats = [column.removesuffix(POLICY) for column in header if column.endswith(POLICY)]
    if not seats:
        return None
    for seat in seats:
        if f"{seat}{RETURN}" not in header:
            raise UsageError(f"{path} has a column {seat}{POLICY}, but no column {seat}{RETURN}")
    if len(seats) < 2:
        raise UsageError(
            f"{path}: a game needs two seats, and the file has only {seats[0]}{POLICY}"
        )
    of_policy = [header.index(f"{seat}{POLICY}") for seat in seats]
    of_return = [header.index(f"{seat}{RETURN}") for seat in seats]
    rows, returns = list[list[str]](), list[list[float]]()
    for number, line in enumerate(lines, 2):
        if len(line) != len(header):
            raise UsageError(f"{path}, line {number}: {len(line)} values for {len(header)} columns")
        rows.append([line[column] for column in of_policy])
        returns.append([_number(path, number, line[column]) for column in of_return])
        for seat, name, earned in zip(seats, rows[-1], returns[-1], strict=True):
            if not name and not np.isnan(earned):
                raise UsageError(f"{path}, line {number}: {seat} has a return, but no policy")
    if not rows:
        raise UsageError(f"{path} has no match")
    for seat, of_seat in zip(seats, zip(*rows, strict=True), strict=True):
        if not any(of_seat):
            raise UsageError(f"{path} has no policy for {seat}; remove its columns")
    return _game(seats, rows, np.array(returns))


def _number(path: Path, line: int, word: str) -> float:
    try:
        value = float(word) if word else np.nan
    except ValueError:
        raise UsageError(f'{path}, line {line}: the return "{word}" is not a number') from None
    if np.isinf(value) or abs(value) > LARGEST:
        raise UsageError(f"{path}, line {line}: the return {word} is infinite or above {LARGEST:g}")
    return value


def _game(seats: Sequence[str], rows: Sequence[Sequence[str]], returns: Numbers) -> GameOfMatches:
    able = {
        seat: list(dict.fromkeys(row[seat] for row in rows if row[seat]))
        for seat in range(len(seats))
    }
    groups = grouped_seats(able, seats, ()) or (SeatGroup("players", tuple(able)),)
    names = list(dict.fromkeys(name for group in groups for s in group.seats for name in able[s]))
    place_of = {name: place for place, name in enumerate(names)} | {"": -1}
    places = np.array([[place_of[name] for name in row] for row in rows])
    numbers = {seat: number for number, group in enumerate(groups) for seat in group.seats}
    is_one = len(groups) == 1
    sides = np.array([seat if is_one else numbers[seat] for seat in range(len(seats))])
    sums = np.zeros((ROWS, len(names), len(names)))
    add_up(places, returns, sides, True, False, sums)
    payoffs = from_sums(names, sums, True, len(rows))
    order = [seat for group in groups for seat in group.seats]
    roles, begin = list[Role](), list[int]()
    for group in groups:
        own = [name for name in names if any(name in able[seat] for seat in group.seats)]
        roles.append(Role(group.name, tuple(own), len(group.seats)))
        begin += [names.index(own[0])] * len(group.seats)
    role_of_seat = [numbers[seat] for seat in order]
    chosen = places[:, order] - np.array(begin)  # the policies of a role are consecutive
    chosen = np.where(places[:, order] < 0, -1, chosen)
    return GameOfMatches(payoffs, game_of_matches(roles, role_of_seat, chosen, returns[:, order]))
