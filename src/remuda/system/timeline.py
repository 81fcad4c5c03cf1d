"""The timeline: recorded spans of every process, for a trace viewer.

Every role (an actor or a learner) writes its newest spans into shared memory, where they outlive
it. The coordinator makes the file from all spans at the end. All processes use the machine's
monotonic clock, so their spans line up.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
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


TimedSpan = tuple[Span, float, float]  # with its start and end, of `time.perf_counter`


class Timeline:
    """The newest spans of one role, written only by that role, in any of its processes."""

    def __init__(self, _shared: SharedArrays | None = None) -> None:
        self._shared = _shared or SharedArrays(
            {"spans": ((CAPACITY * _SPAN.size,), np.uint8), "count": ((1,), np.int64)}
        )
        self._bytes = self._shared["spans"].data
        self._count = self._shared["count"].data
        self._next = int(self._shared["count"][0])

    def add(self, what: Span, start: float, end: float) -> None:
        """Record a span; times are of `time.perf_counter`. Cheap enough for the hot path."""
        count = self._next
        _pack(self._bytes, count % CAPACITY * _SIZE, what, start, end)
        self._next = self._count[0] = count + 1

    def spans(self) -> Iterator[TimedSpan]:
        """Yield the newest `CAPACITY` spans, oldest first."""
        count = int(self._count[0])
        for i in range(max(count - CAPACITY, 0), count):
            what, start, end = _SPAN.unpack_from(self._bytes, i % CAPACITY * _SPAN.size)
            yield Span(what), start, end

    def __reduce__(self) -> tuple[Any, ...]:
        return Timeline, (self._shared,)


def write_trace(path: Path, spans_of: Mapping[str, Sequence[TimedSpan]]) -> int:
    """Write the spans of all roles as Chrome trace events, for Perfetto; return their number."""
    begin = min((spans[0][1] for spans in spans_of.values() if spans), default=0.0)
    events: list[dict[str, object]] = []
    for row, (role, spans) in enumerate(spans_of.items()):
        name = {"name": role}
        events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": row, "args": name})
        for what, start, end in spans:
            event: dict[str, object] = {"name": what.name.lower(), "ph": "X", "pid": 1, "tid": row}
            event["ts"] = round((start - begin) * 1e6, 3)
            event["dur"] = round((end - start) * 1e6, 3)
            events.append(event)
    lines = ",\n".join(map(json.dumps, events))
    path.write_text(f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n')
    return len(events) - len(spans_of)
