"""The timeline of a run: the spans of its trace, thinned for the screen."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.checkpoint.opening import read_json
from remuda.errors import RunDirectoryError

LARGEST = 256 * 2**20
"""Bytes of the largest trace that is shown; Perfetto shows larger ones."""
MOST = 3000
"""Spans on the screen; of more, the longest."""


@dataclass(frozen=True)
class Spans:
    """The spans of one trace."""

    roles: tuple[str, ...]
    """A row for each."""
    kinds: tuple[str, ...]
    """The activities of roles."""
    spans: npt.NDArray[np.float64]
    """[S, 4]: row, kind, begin and end in seconds."""

    def window(self, begin: float | None, end: float | None) -> dict[str, Any]:
        """Return the spans between two times in seconds."""
        begins, ends = self.spans[:, 2], self.spans[:, 3]
        last = float(ends.max(initial=0.0))
        low, high = begin or 0.0, last if end is None else end
        chosen = np.flatnonzero((begins < high) & (ends > low))
        left_out = max(len(chosen) - MOST, 0)
        if left_out:
            longest = np.argpartition((begins - ends)[chosen], MOST)[:MOST]
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


class SpanCache:
    """A cache of the last trace; they are large."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[Path, int, int] | None = None
        self._trace: Spans | None = None

    def of(self, path: Path) -> Spans:
        """Return the trace in a file."""
        try:
            status = os.stat(path)
        except OSError as error:
            raise RunDirectoryError(f"cannot read {path.name}: {error.strerror}") from None
        key = path, status.st_mtime_ns, status.st_size
        with self._lock:
            if self._key != key or self._trace is None:
                self._trace, self._key = _read_trace(path, status.st_size), key
            return self._trace


def _read_trace(path: Path, size: int) -> Spans:
    """Read a file of Chrome's trace events."""
    if size > LARGEST:
        raise RunDirectoryError(
            f"{path.name} has {size / 2**20:.0f} MiB, and up to {LARGEST / 2**20:.0f} MiB are "
            "shown here; open it in Perfetto"
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
        raise RunDirectoryError(f"{path.name} is no trace, or it is still being written") from None
