"""The timeline: recorded spans of every process, for a trace viewer.

Every role (an actor or a learner) writes its newest spans into shared memory, where they outlive
it. The coordinator makes the file from all spans at the end. All processes use the machine's
monotonic clock, so their spans line up.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from remuda.system.memory.shared import SharedArrays

CAPACITY = 2**18  # number of spans kept for each role; older ones are overwritten
_SPAN = struct.Struct("=qdd")
_SIZE, _pack = _SPAN.size, _SPAN.pack_into


class Span(IntEnum):
    """Activities of a role."""

    PLAY = 0  # the environment's own work in a turn
    INFER = 1
    WRITE = 2
    WEIGHTS = 3  # loading snapshots
    WAIT = 4
    SAMPLE = 5
    UPDATE = 6
    PUBLISH = 7
    CHECKPOINT = 8


class Timeline:
    """The newest spans of one role, written only by that role, in any of its processes."""

    def __init__(self) -> None:
        self._shared = SharedArrays(
            {"spans": ((CAPACITY * _SPAN.size,), np.uint8), "count": ((1,), np.int64)}
        )
        self._attach()

    def _attach(self) -> None:
        self._bytes = self._shared["spans"].data
        self._count = self._shared["count"].data
        self._next = int(self._shared["count"][0])

    def add(self, what: Span, start: float, end: float) -> None:
        """Record a span; times are of `time.perf_counter`. Cheap enough for the hot path."""
        count = self._next
        _pack(self._bytes, count % CAPACITY * _SIZE, what, start, end)
        self._next = self._count[0] = count + 1

    def spans(self) -> Iterator[tuple[Span, float, float]]:
        """Yield the newest `CAPACITY` spans, oldest first."""
        count = int(self._count[0])
        for i in range(max(count - CAPACITY, 0), count):
            what, start, end = _SPAN.unpack_from(self._bytes, i % CAPACITY * _SPAN.size)
            yield Span(what), start, end

    def __getstate__(self) -> dict[str, Any]:
        return {"_shared": self._shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._attach()


class Spans:
    """The spans of a role on another node, converted to this node's clock."""

    def __init__(self, spans: Iterable[tuple[Span, float, float]], later: float) -> None:
        """Convert spans; `later` is how many seconds this node's clock is ahead of the other's."""
        self._spans = [(Span(what), start + later, end + later) for what, start, end in spans]

    def spans(self) -> Iterator[tuple[Span, float, float]]:
        """Return all spans, oldest first."""
        return iter(self._spans)


def write_trace(path: Path, timelines: Mapping[str, Timeline | Spans]) -> int:
    """Write the spans of all roles as Chrome trace events, for Perfetto; return their number."""
    count = 0
    kept = {role: list(timeline.spans()) for role, timeline in timelines.items()}
    begin = min((spans[0][1] for spans in kept.values() if spans), default=0.0)
    with path.open("w") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        lines = []
        for row, (role, spans) in enumerate(kept.items()):
            name = {"name": role}
            lines.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": row, "args": name})
            count += len(spans)
            for what, start, end in spans:
                event = {"name": what.name.lower(), "ph": "X", "pid": 1, "tid": row}
                times = {
                    "ts": round((start - begin) * 1e6, 3),
                    "dur": round((end - start) * 1e6, 3),
                }
                lines.append(event | times)
        file.write(",\n".join(json.dumps(line) for line in lines))
        file.write("\n]}\n")
    return count
