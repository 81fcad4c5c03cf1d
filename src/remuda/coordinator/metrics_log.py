"""Write metrics to a file of JSON lines, which is authoritative, and to TensorBoard's file."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from remuda.coordinator.bounded_work import ROWS, FrozenTexts, Pieces, Work, encode_record
from remuda.runs.metrics import Record, groups
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.opening import APPEND, open_file
from remuda.system.kernels import njit
from remuda.types import Array

COST = 2 / 3  # time to encode a number for TensorBoard, relative to a value in JSON


def encode_event(record: Record, event: Any, found: list[bytes]) -> Work:
    """Encode a record as one TensorBoard event, in pieces."""
    all_groups = list(groups(record))
    for start in range(0, len(all_groups), ROWS):
        part = all_groups[start : start + ROWS]
        add_values(event.summary.value, part)
        yield int(COST * sum(len(named) for _, named in part)) + 1
    found.append(event.SerializeToString())


def add_values(values: Any, part: Iterable[tuple[str, Mapping[str, float | None]]]) -> None:
    for group, named in part:
        for name, number in named.items():
            if number is not None:
                values.add(tag=f"{group}/{name}", simple_value=number)


def frame(events: Iterable[bytes]) -> bytes:
    """Frame events as TensorFlow records; TensorBoard's writer takes a hundred times as long."""
    parts = []
    for data in events:
        for part in (len(data).to_bytes(8, "little"), data):
            parts += [part, masked_checksum(part).to_bytes(4, "little")]
    return b"".join(parts)


def openings(resumed_at: int | None) -> list[bytes]:
    """Return the events at the start of a new file."""
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    events = [Event(wall_time=time.time(), file_version="brain.Event:2")]
    if resumed_at is not None:
        restart = SessionLog(status=SessionLog.START)
        events.append(Event(wall_time=time.time(), step=resumed_at + 1, session_log=restart))
    return [event.SerializeToString() for event in events]


def masked_checksum(data: bytes) -> int:
    """Return CRC-32C (Castagnoli), masked as in TensorFlow's records."""
    found = _checksum(np.frombuffer(data, np.uint8), CASTAGNOLI) ^ 0xFFFFFFFF
    return ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF


@njit(cache=True)
def _checksum(data: Array, table: Array) -> int:
    found = np.uint32(0xFFFFFFFF)
    for byte in data:
        found = table[(found ^ byte) & np.uint32(0xFF)] ^ (found >> np.uint32(8))
    return int(found)


CASTAGNOLI = np.arange(256, dtype=np.uint32)  # the checksum's table
for _ in range(8):
    shifted = CASTAGNOLI >> np.uint32(1)
    CASTAGNOLI = np.where(CASTAGNOLI & np.uint32(1), np.uint32(0x82F63B78) ^ shifted, shifted)

log = logging.getLogger(__name__)


class MetricsLog:
    """The writer of metrics, in pieces (`work`); the last pieces write the line, then the event.

    A full disk loses only the records that do not fit.
    """

    def __init__(
        self, run: RunDirectory, say: Callable[[str], None], resumed_at: int | None
    ) -> None:
        self._run, self._say = run, say
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._events = run.tensorboard / name
        self._resumed_at = resumed_at
        self._failing = False
        self.failed = ""  # why the last records are missing; empty if none is
        self.work = Pieces()

    def begin(self, record: Record, frozen: FrozenTexts | None = None) -> None:
        """Start to append a record to both files, after completing the previous one."""
        self.work.finish()
        texts = (len(frozen), frozen.text()) if frozen and not record.is_whole else None
        self.work.begin(self._writing(record, texts))

    def _writing(self, record: Record, frozen: tuple[int, str] | None) -> Work:
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event(wall_time=time.time(), step=record.turns)
        lines: list[str] = []
        more, text = ({}, "") if frozen is None else ({"frozen": frozen[0]}, frozen[1])
        yield from encode_record(record, more, text, lines)
        if not self._append(self._run.metrics, f"{lines[0]}\n".encode()):
            return
        events: list[bytes] = []
        yield from encode_event(record, event, events)
        if not self._events.exists():
            events = openings(self._resumed_at) + events
        self._failing = not self._append(self._events, frame(events))

    def _append(self, path: Path, data: bytes) -> bool:
        """Append to a file; False if that failed, which is reported once."""
        try:
            _append(path, data)
            self.failed = ""
        except OSError as error:
            self.failed = f"the last metrics could not be written: {error.strerror}"
            if not self._failing:  # a lost log must not end training
                self._say(
                    f"cannot write metrics into {self._run.path}: {error.strerror}; "
                    "training continues without them"
                )
                log.warning("cannot write metrics: %s", error)
            self._failing = True
            return False
        return True


def _append(path: Path, data: bytes) -> None:
    """Append all of `data` to a file, or leave the file unchanged."""
    with FileIO(open_file(path, APPEND), "a+") as file:
        before = file.seek(0, os.SEEK_END)
        try:
            if file.write(data) != len(data):
                raise OSError(28, "No space left on device")
        except OSError:
            file.truncate(before)
            raise
