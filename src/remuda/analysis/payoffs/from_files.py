"""Read payoffs written by other programs: tables (CSV) and arrays (NPZ)."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from remuda.analysis.payoffs.payoffs import Payoffs, exact, from_sums
from remuda.analysis.payoffs.sums import add_up
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


def read_file(path: Path) -> Payoffs:
    """Read payoffs from a table (`.csv`) or from arrays (`.npz`).

    A table of payoffs is treated as exact. It is a symmetric game if rows and columns have the same
    names. The same holds for the array `matrix` of an NPZ file. The uncertainty of a list of
    matches is estimated from its returns. An NPZ file may also contain names (`rows` and `columns`,
    or `names`), standard errors of the means (`errors` [n, m]) and numbers of matches (`counts`).
    """
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    if path.suffix == ".csv":
        return _read_csv(path)
    if path.suffix == ".npz":
        return _read_npz(path)
    raise UsageError(f"{path}: payoffs are read from .csv and .npz files, and from runs")


def read_table(path: Path) -> list[list[str]]:
    """Read the lines of a table (CSV), without empty ones; at least one."""
    try:
        text = io.StringIO(opening.read_file(path).decode("utf-8-sig"), newline="")
        lines = [[_clean(word) for word in line] for line in csv.reader(text) if any(line)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as a table: {error}") from None
    return lines or [[]]


def _read_csv(path: Path) -> Payoffs:
    lines = read_table(path)
    if len(lines) < 2:
        raise UsageError(f"{path} has no line of numbers; it must be {KINDS}")
    if set(MATCHES) <= set(lines[0]):
        return _of_matches(path, lines)
    lacking = [column for column in MATCHES if column not in lines[0]]
    if len(lacking) < len(MATCHES) - 1:
        raise UsageError(
            f"{path}: a list of matches needs the columns {', '.join(MATCHES)}; its first line "
            f"lacks {', '.join(lacking)}"
        )
    columns = lines[0][1:]
    rows = [line[0] for line in lines[1:]]
    matrix = np.array(
        [_numbers(path, number, line[1:], len(columns)) for number, line in enumerate(lines[1:], 2)]
    )
    return _of_matrix(path, rows, columns, matrix)


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


def _of_matches(path: Path, lines: Sequence[Sequence[str]]) -> Payoffs:
    at = [lines[0].index(column) for column in MATCHES]
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(lines[0]):
            raise UsageError(
                f"{path}, line {number}: {len(line)} values for {len(lines[0])} columns"
            )
    seats = [(line[at[0]], line[at[1]]) for line in lines[1:]]
    returns = np.array(
        [
            _numbers(path, number, (line[at[2]], line[at[3]]), 2)
            for number, line in enumerate(lines[1:], 2)
        ]
    )
    for wrong, what in (
        (~np.isfinite(returns), "is not a number"),
        (np.abs(returns) > LARGEST, f"is larger than {LARGEST:g}; give returns in a larger unit"),
    ):
        if wrong.any():
            raise UsageError(f"{path}, line {int(wrong.any(1).argmax()) + 2}: a return {what}")
    names = list(dict.fromkeys(name for pair in seats for name in pair))
    place = {name: number for number, name in enumerate(names)}
    places = np.array([[place[name] for name in pair] for pair in seats])
    sums = np.zeros((6, len(names), len(names)))
    add_up(places, returns, np.arange(2), True, False, sums)
    return from_sums(names, sums, True, len(places))


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
