"""The curves of runs: metrics files, read on as they grow, by columns, thinned for the screen."""

from __future__ import annotations

import json
import math
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.checkpoint.opening import open_stream
from remuda.coordinator.records import AXES, SHOWN_OF_MEMBER, SHOWN_OF_RUN

Numbers = npt.NDArray[np.float64]

PIECE = 1 << 20
"""Bytes that are read at once."""
PATIENCE = 0.25
"""Seconds that a question waits for what was not read yet; then it is answered by what was."""
SEAM = 512
"""Bytes before those that are not read yet, by which a file is known again."""
MOST = 3_000_000
"""Numbers of one run that are kept; of longer ones every second record is forgotten, and so on."""
MOST_OF_ALL = 8_000_000
"""Numbers that are kept of all runs; those that nobody asked for longest are forgotten first."""
POINTS = 400
"""Of a curve on the screen."""
MEAN_RETURN = "mean_return"
"""The mean over all policies of their `mean_return`, as a column of its own."""


class RunCurves:
    """The records of one metrics file, by columns; it is read on where it was left."""

    def __init__(self, path: Path) -> None:
        """Begin before the first record."""
        self._path = path
        self._lock = threading.Lock()
        self._columns: dict[str, array[float]] = {}
        self._forget()

    def _forget(self) -> None:
        self._columns.clear()
        self._at, self._rows, self._lines, self._step = 0, 0, 0, 1
        self._file: tuple[int, int] | None = None
        self._seam = b""
        """The last bytes before what is not read yet."""
        self.damaged = 0
        """Lines that are no records."""
        self.complete = False
        """Whether all was read that there was at the last look."""

    @property
    def every(self) -> int:
        """Of so many records one is kept."""
        return self._step

    @property
    def read_bytes(self) -> int:
        """Of the file: curves are the same as long as this is."""
        return self._at

    @property
    def size(self) -> int:
        """How many numbers are kept."""
        return self._rows * len(self._columns)

    def read_on(self, seconds: float = PATIENCE) -> None:
        """Read what is new, for so long at most; a file that began anew is read anew."""
        until = time.monotonic() + seconds
        with self._lock:
            try:
                with open_stream(self._path) as file:
                    self._check(file.fileno())
                    file.seek(self._at)
                    self.complete = False
                    while time.monotonic() < until:
                        if not self._take(file.read(PIECE), file):
                            self.complete = True
                            break
            except OSError:
                self._forget()
                self.complete = True

    def _check(self, descriptor: int) -> None:
        """Begin anew where another file stands there, or it became shorter: a run went back."""
        import os

        status = os.fstat(descriptor)
        file = status.st_dev, status.st_ino
        # The number of a file is given to another when it is gone: what was read must still be so.
        size = min(self._at, SEAM)
        seam = os.pread(descriptor, size, self._at - size)
        if (self._file is not None and self._file != file) or seam != self._seam[-size or None :]:
            self._forget()
        self._file = file

    def _take(self, data: bytes, file: Any) -> bool:
        """Take the whole lines of a piece; False: there are none."""
        end = data.rfind(b"\n") + 1
        while not end and len(data) and len(data) % PIECE == 0:  # a line of many policies
            more = file.read(PIECE)
            if not more:
                return False
            data += more
            end = data.rfind(b"\n") + 1
        if not end:
            return False
        for line in data[:end].splitlines():
            self._add(line)
        self._at += end
        self._seam = (self._seam + data[:end])[-SEAM:]
        file.seek(self._at)
        return True

    def _add(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            row = dict(numbers_of(record))
        except (ValueError, RecursionError, AttributeError):
            self.damaged += 1
            return
        if not row:
            self.damaged += 1
            return
        self._lines += 1
        if self._lines % self._step:
            return
        for name in row:
            if name not in self._columns:
                self._columns[name] = array("d", [math.nan]) * self._rows
        for name, column in self._columns.items():
            column.append(row.get(name, math.nan))
        self._rows += 1
        if self.size > MOST and self._rows > 2 * POINTS:
            self._columns = {name: column[1::2] for name, column in self._columns.items()}
            self._rows, self._step = self._rows // 2, self._step * 2

    def names(self) -> list[str]:
        """All columns there are."""
        with self._lock:
            return [name for name in self._columns if name not in AXES.values()]

    def column(self, name: str) -> Numbers | None:
        """[rows] of it; None: there is none."""
        with self._lock:
            return self._column(name)

    def _column(self, name: str) -> Numbers | None:
        if name == MEAN_RETURN:
            every = [c for n, c in self._columns.items() if _is_return(n)]
            return _mean(np.array(every, np.float64)) if every else None
        found = self._columns.get(name)
        return None if found is None else np.array(found, np.float64)

    def both(self, axis: str, name: str) -> tuple[Numbers, Numbers]:
        """A column over an axis, where both are known: two of [points]."""
        with self._lock:  # at once: rows may be forgotten between the two
            x, y = self._column(axis), self._column(name)
        if x is None or y is None:
            return np.zeros(0), np.zeros(0)
        known = np.isfinite(x) & np.isfinite(y)
        return x[known], y[known]


class Curves:
    """Those of several runs; those that were asked for longest ago are forgotten."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._runs: OrderedDict[Path, RunCurves] = OrderedDict()

    def of(self, path: Path) -> RunCurves:
        """Those in a metrics file, read on as far as there was time."""
        with self._lock:
            found = self._runs.pop(path, None) or RunCurves(path)
            self._runs[path] = found
        found.read_on()
        with self._lock:
            while (
                len(self._runs) > 1 and sum(run.size for run in self._runs.values()) > MOST_OF_ALL
            ):
                self._runs.popitem(last=False)
        return found


def numbers_of(record: Any) -> Iterator[tuple[str, float]]:
    """The numbers in a line of `metrics.jsonl`, by the names of `remuda.Run.metrics`.

    They are not validated, which takes many times as long; what is no number is passed over.

    Raises:
        AttributeError: it is no record.
    """
    for name, axis in AXES.items():
        yield from _number(axis, record.get(name))
    for name in SHOWN_OF_RUN:
        yield from _number(f"run/{name}", record.get(name))
    for group, key in (("actor", "shares"), ("game", "facts"), ("population", "population")):
        for name, value in (record.get(key) or {}).items():
            yield from _number(f"{group}/{name}", value)
    for member, values in (record.get("members") or {}).items():
        if values.get("learns"):
            for name in SHOWN_OF_MEMBER:
                yield from _number(f"{member}/{name}", values.get(name))
            for name, value in (values.get("hyperparameters") or {}).items():
                yield from _number(f"{member}/hyperparameters/{name}", value)
    for policy, values in (record.get("policies") or {}).items():
        for name, value in values.items():
            yield from _number(f"{policy}/{name}", value)


def _is_return(name: str) -> bool:
    """Whether a column is the return of a policy, and not what a game calls so."""
    group, _, column = name.rpartition("/")
    return column == MEAN_RETURN and group not in ("run", "actor", "game", "population")


def _number(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, int | float):
        with_bounds = float(value) if abs(value) < 1e300 else math.nan
        yield name, with_bounds


def _mean(values: Numbers) -> Numbers:
    """[rows]: the mean over columns [columns, rows] of what is known; NaN where nothing is."""
    known = np.isfinite(values)
    count = known.sum(0)
    total = np.where(known, values, 0.0).sum(0)
    means: Numbers = np.where(count > 0, total / np.maximum(count, 1), math.nan)
    return means


def thinned(x: Numbers, y: Numbers, points: int = POINTS) -> Mapping[str, list[float]]:
    """A curve of at most so many points: of each stretch the mean, the least and the greatest.

    Stretches are of as many records each; `x` is where the stretch ends.
    """
    if len(x) <= points:
        values = rounded(y)
        return {"x": rounded(x), "y": values}
    edges = np.linspace(0, len(x), points + 1).astype(int)
    begins = edges[:-1]
    counts = np.diff(edges)
    return {
        "x": rounded(x[edges[1:] - 1]),
        "y": rounded(np.add.reduceat(y, begins) / counts),
        "low": rounded(np.minimum.reduceat(y, begins)),
        "high": rounded(np.maximum.reduceat(y, begins)),
    }


def band(curves: list[tuple[Numbers, Numbers]], points: int = POINTS) -> Mapping[str, list[Any]]:
    """The mean of several curves with its standard error, where all of them are known.

    Between its points a curve is straight. The standard error is the sample standard deviation over
    the curves by the square root of their number.

    Args:
        curves: x and y of each.
        points: of the mean.
    """
    curves = [(x, y) for x, y in curves if len(x)]
    if not curves:
        return {"x": [], "y": []}
    if len(curves) == 1:
        return thinned(*curves[0], points)
    low, high = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if high < low:
        return {"x": [], "y": []}
    longest = max(len(x) for x, _ in curves)
    grid = np.linspace(low, high, min(points, max(longest, 2)))
    values = np.array([np.interp(grid, x, y) for x, y in curves])
    mean = values.mean(0)
    error = values.std(0, ddof=1) / math.sqrt(len(curves))
    return {
        "x": rounded(grid),
        "y": rounded(mean),
        "low": rounded(mean - error),
        "high": rounded(mean + error),
    }


def rounded(values: Numbers) -> list[float]:
    """As many digits as a screen shows; what is no number is None."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]  # type: ignore[misc]
