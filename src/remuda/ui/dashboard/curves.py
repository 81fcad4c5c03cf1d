"""Curves and timelines of runs for the browser, from files that may still grow."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.errors import RunDirectoryError
from remuda.runs.metrics import AXES, GROUPS, LOGGED, SHOWN_OF_MEMBER, SHOWN_OF_RUN
from remuda.system.checkpoint.opening import open_stream, read_json

Numbers = npt.NDArray[np.float64]

PATIENCE = 0.25  # maximum seconds per request to read new records
SEAM = 512  # bytes before the unread ones, compared to detect a replaced file
MOST = 3_000_000  # maximum numbers kept per run; then every second record is dropped
MOST_OF_ALL = 8_000_000  # maximum numbers kept of all runs; then the least recently used is dropped
POINTS = 400  # points of a curve on the screen
MEAN_RETURN = "mean_return"  # a column: the mean over all policies of their `mean_return`


class RunCurves:
    """The columns of one metrics file; each read continues where the last one ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._columns: dict[str, array[float]] = {}
        self._forget()

    def _forget(self) -> None:
        self._columns.clear()
        self._rows = self._lines = 0
        self.every = 1  # one of this many records is kept
        self.read_bytes = 0  # bytes read so far; they identify the state of the curves
        self._file: tuple[int, int] | None = None
        self._seam = b""
        self.damaged = 0  # lines that are not records
        self.complete = False  # True if the last read reached the end of the file

    @property
    def size(self) -> int:
        return self._rows * len(self._columns)

    def read_on(self, seconds: float = PATIENCE) -> None:
        """Read new records within a time limit; read a replaced file from its start."""
        until = time.monotonic() + seconds
        with self._lock:
            try:
                with open_stream(self._path) as file:
                    self._check(file.fileno())
                    file.seek(self.read_bytes)
                    self.complete = False
                    for line in file:
                        if not line.endswith(b"\n"):  # half-written
                            break
                        self._add(line)
                        self.read_bytes += len(line)
                        self._seam = (self._seam + line)[-SEAM:]
                        if time.monotonic() >= until:
                            return
                    self.complete = True
            except OSError:
                self._forget()
                self.complete = True

    def _check(self, descriptor: int) -> None:
        """Start over if the file was replaced or became shorter: the run was resumed."""
        status = os.fstat(descriptor)
        file = status.st_dev, status.st_ino
        # A new file may reuse the inode of a deleted one, so the last bytes read are compared, too.
        size = min(self.read_bytes, SEAM)
        seam = os.pread(descriptor, size, self.read_bytes - size)
        if (self._file is not None and self._file != file) or seam != self._seam[-size or None :]:
            self._forget()
        self._file = file

    def _add(self, line: bytes) -> None:
        try:
            row = dict(numbers_of(json.loads(line)))
        except (ValueError, RecursionError, AttributeError):
            row = {}
        if not row:
            self.damaged += 1
            return
        self._lines += 1
        if self._lines % self.every:
            return
        for name in row:
            if name not in self._columns:
                self._columns[name] = array("d", [math.nan]) * self._rows
        for name, column in self._columns.items():
            column.append(row.get(name, math.nan))
        self._rows += 1
        if self.size > MOST and self._rows > 2 * POINTS:
            self._columns = {name: column[1::2] for name, column in self._columns.items()}
            self._rows, self.every = self._rows // 2, self.every * 2

    def names(self) -> list[str]:
        with self._lock:
            return [name for name in self._columns if name not in AXES.values()]

    def column(self, name: str) -> Numbers | None:
        """Return a column, [rows]."""
        with self._lock:
            if name == MEAN_RETURN:
                every = [c for n, c in self._columns.items() if _is_return(n)]
                return _mean(np.array(every, np.float64)) if every else None
            found = self._columns.get(name)
            return None if found is None else np.array(found, np.float64)

    def both(self, axis: str, name: str) -> tuple[Numbers, Numbers]:
        """Return (x, y), each [points]: an axis and a column at rows that have both."""
        with self._lock:  # another thread may drop rows
            x, y = self.column(axis), self.column(name)
        if x is None or y is None:
            return np.zeros(0), np.zeros(0)
        known = np.isfinite(x) & np.isfinite(y)
        return x[known], y[known]


class Curves:
    """The curves of several runs; the least recently used are dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.runs: OrderedDict[Path, RunCurves] = OrderedDict()

    def of(self, path: Path) -> RunCurves:
        """Return the curves of a metrics file, after reading new records."""
        with self._lock:
            found = self.runs.pop(path, None) or RunCurves(path)
            self.runs[path] = found
        found.read_on()
        with self._lock:
            total = sum(run.size for run in self.runs.values())
            while len(self.runs) > 1 and total > MOST_OF_ALL:
                total -= self.runs.popitem(last=False)[1].size
        return found


def numbers_of(record: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a metrics record, named as in `remuda.Run.metrics`."""
    for name, axis in AXES.items():
        yield from _number(axis, record.get(name))
    for name in SHOWN_OF_RUN:
        yield from _number(f"run/{name}", record.get(name))
    groups = {"actor": "shares", "game": "episode_metrics"}
    groups |= {"population": "population", LOGGED: LOGGED}
    named = [(group, record.get(key) or {}) for group, key in groups.items()]
    for member, values in (record.get("members") or {}).items():
        if values.get("learns"):
            named.append((member, {name: values.get(name) for name in SHOWN_OF_MEMBER}))
            named.append((f"{member}/hyperparameters", values.get("hyperparameters") or {}))
    for group, values in (*named, *(record.get("policies") or {}).items()):
        for name, value in values.items():
            yield from _number(f"{group}/{name}", value)


def _is_return(name: str) -> bool:
    group, _, column = name.rpartition("/")
    return column == MEAN_RETURN and group not in GROUPS


def _number(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, int | float):
        yield name, float(value) if abs(value) < 1e300 else math.nan


def _mean(values: Numbers) -> Numbers:
    """Return the mean over known values, [columns, rows] to [rows]; NaN if no value is known."""
    known = np.isfinite(values)
    count = known.sum(0)
    total = np.where(known, values, 0.0).sum(0)
    means: Numbers = np.where(count > 0, total / np.maximum(count, 1), math.nan)
    return means


def thinned(x: Numbers, y: Numbers, points: int = POINTS) -> Mapping[str, list[float]]:
    """Thin a curve to the mean, minimum and maximum of equally long stretches."""
    if len(x) <= points:
        return {"x": rounded(x), "y": rounded(y)}
    edges = np.linspace(0, len(x), points + 1).astype(int)
    begins = edges[:-1]
    counts = np.diff(edges)
    return {
        "x": rounded(x[edges[1:] - 1]),
        "y": rounded(np.add.reduceat(y, begins) / counts),
        "low": rounded(np.minimum.reduceat(y, begins)),
        "high": rounded(np.maximum.reduceat(y, begins)),
    }


def band_of(
    curves: Sequence[tuple[Numbers, Numbers]], points: int
) -> tuple[Numbers, Numbers, Numbers]:
    """Return x, mean and standard error over the range that all curves cover."""
    first = max((x[0] for x, _ in curves), default=0.0)
    last = min((x[-1] for x, _ in curves), default=-1.0)
    if last < first:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    grid = np.linspace(first, last, points)
    values = np.array([np.interp(grid, *curve) for curve in curves])
    return grid, values.mean(0), values.std(0, ddof=1) / math.sqrt(len(curves))


def band(curves: list[tuple[Numbers, Numbers]]) -> Mapping[str, list[Any]]:
    """Return the mean of (x, y) curves with its standard error, as JSON data."""
    curves = [(x, y) for x, y in curves if len(x)]
    if len(curves) == 1:
        return thinned(*curves[0])
    longest = max((len(x) for x, _ in curves), default=0)
    grid, mean, error = band_of(curves, min(POINTS, max(longest, 2)))
    return {
        "x": rounded(grid),
        "y": rounded(mean),
        "low": rounded(mean - error),
        "high": rounded(mean + error),
    }


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a file changes; empty: there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_size, status.st_mtime_ns, status.st_ino


def rounded(values: Numbers) -> list[float]:
    """Round to six digits; NaN and infinity become None."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]  # type: ignore[misc]


LARGEST = 256 * 2**20  # bytes of the largest trace that is shown; Perfetto shows larger ones
MOST_SPANS = 3000  # maximum spans on the screen; the longest ones are shown


@dataclass(frozen=True)
class Spans:
    """The spans of one trace; a span is one activity of a role, with a begin and an end."""

    roles: tuple[str, ...]  # one row each
    kinds: tuple[str, ...]  # the names of activities
    spans: npt.NDArray[np.float64]  # [S, 4]: row, kind, begin and end in seconds

    def window(self, begin: float | None, end: float | None) -> dict[str, Any]:
        """Return the spans between two times in seconds."""
        begins, ends = self.spans[:, 2], self.spans[:, 3]
        last = float(ends.max(initial=0.0))
        low, high = begin or 0.0, last if end is None else end
        chosen = np.flatnonzero((begins < high) & (ends > low))
        left_out = max(len(chosen) - MOST_SPANS, 0)
        if left_out:
            longest = np.argpartition((begins - ends)[chosen], MOST_SPANS)[:MOST_SPANS]
            chosen = np.sort(chosen[longest])
        return {
            "roles": self.roles,
            "kinds": self.kinds,
            "spans": [
                [int(row), int(kind), round(start, 6), round(stop, 6)]
                for row, kind, start, stop in self.spans[chosen].tolist()
            ],
            "left_out": left_out,
            "seconds": last,
        }


_READING = threading.Lock()


def read_spans(path: Path) -> Spans:
    """Return the trace in a file."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path.name}: {error.strerror}") from None
    with _READING:
        return _read_trace(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1)  # traces are large
def _read_trace(path: Path, size: int, _modified: int) -> Spans:
    if size > LARGEST:
        raise RunDirectoryError(
            f"{path.name} has {size / 2**20:.0f} MiB, but the limit here is "
            f"{LARGEST / 2**20:.0f} MiB; open it in Perfetto"
        )
    try:
        events = read_json(path)["traceEvents"]
        names = {e["tid"]: str(e["args"]["name"]) for e in events if e["ph"] == "M"}
        rows = {tid: row for row, tid in enumerate(names)}
        found = [e for e in events if e["ph"] == "X"]
        kinds = {str(name): i for i, name in enumerate(dict.fromkeys(e["name"] for e in found))}
        spans = [(rows[e["tid"]], kinds[e["name"]], e["ts"], e["ts"] + e["dur"]) for e in found]
        array = np.array(spans, np.float64).reshape(-1, 4)
        array[:, 2:] /= 1e6
        return Spans(tuple(names.values()), tuple(kinds), array)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise RunDirectoryError(f"{path.name} is not a trace, or is still being written") from None
