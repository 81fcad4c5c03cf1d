"""What each process of a run did when, from its trace: spans, thinned for the screen."""

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
"""Bytes of a trace that is shown; a larger one is for Perfetto."""
MOST = 3000
"""Spans on the screen; shorter ones are left out where there are more."""


@dataclass(frozen=True)
class Trace:
    """The spans of one trace.

    Attributes:
        roles: by row.
        kinds: what a role can be busy with.
        row, kind: [S] numbers of these.
        start, duration: [S] microseconds.
    """

    roles: tuple[str, ...]
    kinds: tuple[str, ...]
    row: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int32]
    start: npt.NDArray[np.float64]
    duration: npt.NDArray[np.float64]

    def window(self, begin: float | None, end: float | None) -> dict[str, Any]:
        """The spans between two times in seconds, the longest ones where there are many."""
        last = float((self.start + self.duration).max()) if len(self.start) else 0.0
        low = 0.0 if begin is None else begin * 1e6
        high = last if end is None else end * 1e6
        chosen = np.flatnonzero((self.start < high) & (self.start + self.duration > low))
        left_out = max(len(chosen) - MOST, 0)
        if left_out:
            longest = np.argpartition(-self.duration[chosen], MOST)[:MOST]
            chosen = np.sort(chosen[longest])
        spans = [
            [row, kind, round(start / 1e6, 6), round((start + duration) / 1e6, 6)]
            for row, kind, start, duration in zip(
                self.row[chosen].tolist(),
                self.kind[chosen].tolist(),
                self.start[chosen].tolist(),
                self.duration[chosen].tolist(),
                strict=True,
            )
        ]
        return {
            "roles": self.roles,
            "kinds": self.kinds,
            "spans": spans,
            "left_out": left_out,
            "seconds": last / 1e6,
        }


class Traces:
    """The trace that was asked for last; one is enough, and they are large."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._of: tuple[Path, int, int] | None = None
        self._trace: Trace | None = None

    def of(self, path: Path) -> Trace:
        """The trace in a file.

        Raises:
            RunDirectoryError: it is no trace, or too large to be shown.
        """
        try:
            status = os.stat(path)
        except OSError as error:
            raise RunDirectoryError(f"cannot read {path.name}: {error.strerror}") from None
        asked = path, status.st_mtime_ns, status.st_size
        with self._lock:
            if self._of != asked or self._trace is None:
                self._trace, self._of = read_trace(path, status.st_size), asked
            return self._trace


def read_trace(path: Path, size: int) -> Trace:
    """The spans in a file of Chrome's trace events.

    Raises:
        RunDirectoryError: it is no trace, or too large to be shown.
    """
    if size > LARGEST:
        raise RunDirectoryError(
            f"{path.name} has {size / 2**20:.0f} MiB, and up to {LARGEST / 2**20:.0f} MiB are "
            "shown here; open it in Perfetto"
        )
    try:
        events = read_json(path)["traceEvents"]
        names = {e["tid"]: str(e["args"]["name"]) for e in events if e["ph"] == "M"}
        spans = [(e["tid"], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
        rows = {tid: row for row, tid in enumerate(names)}
        kinds = {str(name): i for i, name in enumerate(dict.fromkeys(s[1] for s in spans))}
        return Trace(
            tuple(names.values()),
            tuple(kinds),
            np.array([rows[span[0]] for span in spans], np.int32),
            np.array([kinds[span[1]] for span in spans], np.int32),
            np.array([span[2] for span in spans], np.float64),
            np.array([span[3] for span in spans], np.float64),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise RunDirectoryError(f"{path.name} is no trace, or it is still being written") from None
