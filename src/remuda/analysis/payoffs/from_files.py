"""Read empirical games written by other programs: tables (CSV) and arrays (NPZ)."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.ledger_seats import SeatGroup, grouped_seats
from remuda.analysis.payoffs.payoffs import Payoffs, exact
from remuda.analysis.payoffs.profile_sums import game_of_matches
from remuda.analysis.payoffs.sums import payoffs_of_matches
from remuda.errors import UsageError
from remuda.system.checkpoint import opening
from remuda.types import Array, Numbers

LARGEST = 1e100  # largest payoff accepted: squares of larger ones overflow
KINDS = (
    "a table of payoffs (a first line with the names of the columns, and in each line a "
    "name and its payoff against each), or a list of matches (columns row, column, "
    "row_return, column_return; or SEAT/policy and SEAT/return for each seat)"
)
MATCHES = ("row", "column", "row_return", "column_return")
POLICY, RETURN = "/policy", "/return"


def read_file(path: Path) -> EmpiricalGame:
    """Read a game from a table (`.csv`) or from arrays (`.npz`).

    A table of payoffs is treated as exact. It is a symmetric game if rows and columns have the same
    names, and otherwise one of two roles. The same holds for the array `matrix` of an NPZ file,
    which may also contain names (`rows` and `columns`, or `names`), standard errors of the means
    (`errors` [n, m]) and numbers of matches (`counts`).

    A list of matches has the columns of `MATCHES`; or, for each seat, `SEAT/policy` and
    `SEAT/return`, as in the table of `Run.ledger`. Other columns are ignored. Seats with the same
    policies are one role. If a policy plays seats with different policies, all seats are one role.
    A seat without a return took no part in the match, and need not have a policy.
    """
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    if path.suffix == ".csv":
        return _read_csv(path)
    if path.suffix == ".npz":
        return game_of_meetings(_read_npz(path))
    raise UsageError(f"{path}: payoffs are read from .csv and .npz files, and from runs")


def _read_table(path: Path) -> list[list[str]]:
    """Read the lines of a table (CSV), without empty ones; at least one."""
    try:
        text = io.StringIO(opening.read_file(path).decode("utf-8-sig"), newline="")
        lines = [[_clean(word) for word in line] for line in csv.reader(text) if any(line)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as a table: {error}") from None
    return lines or [[]]


def _read_csv(path: Path) -> EmpiricalGame:
    header, *lines = _read_table(path)
    seats = [column.removesuffix(POLICY) for column in header if column.endswith(POLICY)]
    if seats:
        return _of_seats(path, header, lines, seats)
    if not lines:
        raise UsageError(f"{path} has no line of numbers; it must be {KINDS}")
    lacking = [column for column in MATCHES if column not in header]
    if not lacking:
        return _of_matches(path, header, lines)
    if len(lacking) < len(MATCHES) - 1:
        raise UsageError(
            f"{path}: a list of matches needs the columns {', '.join(MATCHES)}; its first line "
            f"lacks {', '.join(lacking)}"
        )
    columns, rows = header[1:], [line[0] for line in lines]
    matrix = np.array(
        [_numbers(path, number, line[1:], len(columns)) for number, line in enumerate(lines, 2)]
    )
    return game_of_meetings(_of_matrix(path, rows, columns, matrix))


def _clean(word: str) -> str:
    """Return text in one line, without terminal control characters."""
    if not word.isprintable():
        word = "".join(c if c.isprintable() else " " if c.isspace() else "" for c in word)
    return word.strip()


def _numbers(path: Path, line: int, words: Sequence[str], count: int) -> list[float]:
    if len(words) != count:
        raise UsageError(f"{path}, line {line}: {len(words)} numbers for {count} columns")
    found = []
    for word in words:
        try:
            found.append(float(word) if word else np.nan)
        except ValueError:
            raise UsageError(
                f'{path}, line {line}: "{word}" is not a number; the file must be {KINDS}'
            ) from None
    return found


def _of_matches(path: Path, header: Sequence[str], lines: Sequence[Sequence[str]]) -> EmpiricalGame:
    """Return the game of matches of a row with a column."""
    at = [header.index(column) for column in MATCHES]
    for number, line in enumerate(lines, 2):
        _check_length(path, number, line, header)
    returns = np.array(
        [_numbers(path, n, (line[at[2]], line[at[3]]), 2) for n, line in enumerate(lines, 2)]
    )
    for wrong, what in (
        (~np.isfinite(returns), "is not a number"),
        (np.abs(returns) > LARGEST, f"is larger than {LARGEST:g}; give returns in a larger unit"),
    ):
        if wrong.any():
            raise UsageError(f"{path}, line {int(wrong.any(1).argmax()) + 2}: a return {what}")
    return _of_players(("rows", "columns"), [(line[at[0]], line[at[1]]) for line in lines], returns)


def _of_seats(
    path: Path, header: Sequence[str], lines: Sequence[Sequence[str]], seats: Sequence[str]
) -> EmpiricalGame:
    """Return the game of matches with columns for each seat."""
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
        _check_length(path, number, line, header)
        rows.append([line[column] for column in of_policy])
        returns.append([_return_of(path, number, line[column]) for column in of_return])
        for seat, name, earned in zip(seats, rows[-1], returns[-1], strict=True):
            if not name and not np.isnan(earned):
                raise UsageError(f"{path}, line {number}: {seat} has a return, but no policy")
    if not rows:
        raise UsageError(f"{path} has no match")
    for seat, of_seat in zip(seats, zip(*rows, strict=True), strict=True):
        if not any(of_seat):
            raise UsageError(f"{path} has no policy for {seat}; remove its columns")
    return _of_players(seats, rows, np.array(returns))


def _check_length(path: Path, number: int, line: Sequence[str], header: Sequence[str]) -> None:
    if len(line) != len(header):
        raise UsageError(f"{path}, line {number}: {len(line)} values for {len(header)} columns")


def _return_of(path: Path, line: int, word: str) -> float:
    try:
        value = float(word) if word else np.nan
    except ValueError:
        raise UsageError(f'{path}, line {line}: the return "{word}" is not a number') from None
    if np.isinf(value) or abs(value) > LARGEST:
        raise UsageError(f"{path}, line {line}: the return {word} is infinite or above {LARGEST:g}")
    return value


def _of_players(
    seats: Sequence[str], rows: Sequence[Sequence[str]], returns: Numbers
) -> EmpiricalGame:
    """Return the game of matches: policies by seat, and returns [M, seats]."""
    able = {
        seat: list(dict.fromkeys(row[seat] for row in rows if row[seat]))
        for seat in range(len(seats))
    }
    groups = grouped_seats(able, seats, ()) or (SeatGroup("players", tuple(able)),)
    numbers = {seat: number for number, group in enumerate(groups) for seat in group.seats}
    order = [seat for group in groups for seat in group.seats]
    names = list(dict.fromkeys(name for seat in order for name in able[seat]))
    place_of = {name: place for place, name in enumerate(names)} | {"": -1}
    places = np.array([[place_of[name] for name in row] for row in rows])
    sides = np.array([seat if len(groups) == 1 else numbers[seat] for seat in range(len(seats))])
    payoffs = payoffs_of_matches(names, places, returns, sides, len(rows))
    own = [dict.fromkeys(n for seat in group.seats for n in able[seat]) for group in groups]
    roles = [
        Role(group.name, tuple(each), len(group.seats))
        for group, each in zip(groups, own, strict=True)
    ]
    if len(roles) == 1 and roles[0].seats == 2:
        return game_of_meetings(payoffs, roles)
    begins = np.cumsum([0, *map(len, own)])  # the policies of a role are consecutive
    role_of_seat = [numbers[seat] for seat in order]
    chosen = places[:, order] - begins[role_of_seat]
    chosen = np.where(places[:, order] < 0, -1, chosen)
    game = game_of_matches(roles, role_of_seat, chosen, returns[:, order])
    return replace(game, meetings=payoffs)


def _read_npz(path: Path) -> Payoffs:
    try:
        with opening.open_stream(path) as file, np.load(file, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
    except (OSError, ValueError, TypeError, AttributeError, zipfile.BadZipFile, EOFError) as error:
        raise UsageError(f"{path} cannot be read as arrays: {error}") from None
    for name in ("matrix", "errors", "counts"):
        if name in arrays and (arrays[name].dtype.kind not in "biuf" or not arrays[name].size):
            raise UsageError(f"{path}: `{name}` must be numbers, and not empty")
    if "matrix" not in arrays or arrays["matrix"].ndim != 2:
        raise UsageError(f"{path} has no array `matrix` [n, m] of payoffs; it has {list(arrays)}")
    matrix = arrays["matrix"].astype(np.float64)
    rows, columns = (
        _names(path, arrays, what, size)
        for what, size in zip(("rows", "columns"), matrix.shape, strict=True)
    )
    if "errors" not in arrays:
        return _of_matrix(path, rows, columns, matrix)
    return _with_errors(path, rows, columns, matrix, arrays)


def _names(path: Path, arrays: dict[str, Array], what: str, size: int) -> list[str]:
    found = arrays.get(what, arrays.get("names"))
    names = (
        [str(place) for place in range(size)] if found is None else [_clean(str(n)) for n in found]
    )
    if len(names) != size:
        raise UsageError(f"{path}: there are {len(names)} names for {size} {what}")
    return names


def _of_matrix(path: Path, rows: Sequence[str], columns: Sequence[str], matrix: Numbers) -> Payoffs:
    _check(path, matrix)
    if sorted(rows) != sorted(columns):
        return exact(matrix, names=(rows, columns))
    order = [columns.index(name) for name in rows]
    matrix = matrix[:, order]
    return exact(matrix, matrix.T, names=(rows, rows), symmetric=True)


def _with_errors(
    path: Path,
    rows: Sequence[str],
    columns: Sequence[str],
    matrix: Numbers,
    arrays: dict[str, Array],
) -> Payoffs:
    """Return means with standard errors, for a symmetric or zero-sum game."""
    counts = arrays.get("counts")
    if counts is None or counts.shape != matrix.shape or arrays["errors"].shape != matrix.shape:
        raise UsageError(
            f"{path}: `errors` and `counts` must both be present, with shape {matrix.shape}"
        )
    if (counts < 2).any() or not (np.abs(arrays["errors"]) <= LARGEST).all():
        raise UsageError(f"{path}: `counts` must be at least 2, and `errors` at most {LARGEST:g}")
    _check(path, matrix)
    variances = arrays["errors"].astype(np.float64) ** 2 * counts
    if list(rows) != list(columns):
        raise UsageError(
            f"{path}: with `errors`, rows and columns must be the same policies (`names`); "
            "for two roles with different policies, give a list of matches or only "
            "`matrix`"
        )
    scale = float(np.abs(matrix).max()) + 1e-12
    zero_sum = bool(np.ptp(matrix + matrix.T) <= 1e-6 * scale)
    shared = -np.sqrt(variances * variances.T) if zero_sum else np.zeros_like(variances)
    covariances = np.array([[variances, shared], [shared, variances.T]])
    means = np.stack([matrix, matrix.T])
    return Payoffs((tuple(rows),) * 2, means, covariances, counts.astype(np.int64), True)


def _check(path: Path, matrix: Numbers) -> None:
    for wrong, what in (
        (~np.isfinite(matrix), "is missing or not a number"),
        (np.abs(matrix) > LARGEST, f"is larger than {LARGEST:g}; give payoffs in a larger unit"),
    ):
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise UsageError(f"{path}: the payoff in row {row + 1}, column {column + 1} {what}")
