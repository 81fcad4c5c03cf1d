"""Where metrics are kept: a file of JSON lines, which is the truth, and TensorBoard's own file."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from remuda.coordinator.metrics import Record, scalars
from remuda.coordinator.run_directory import RunDirectory
from remuda.types import Array

log = logging.getLogger(__name__)


class MetricsLog:
    """Appends records; a full disk costs the records that do not fit, and nothing else."""

    def __init__(
        self, run: RunDirectory, say: Callable[[str], None], resumed_at: int | None
    ) -> None:
        self._run, self._say = run, say
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._events = run.tensorboard / name
        self._resumed_at = resumed_at
        self._failing = False

    def write(self, record: Record) -> None:
        """Append a record to both."""
        try:
            _append(self._run.metrics, (record.to_json() + "\n").encode())
            _append(self._events, self._encode(record))
            self._failing = False
        except OSError as error:
            if not self._failing:  # say it once; training is worth more than its log
                self._say(
                    f"cannot write metrics into {self._run.path}: {error.strerror}; "
                    "training goes on without them"
                )
                log.warning("cannot write metrics: %s", error)
            self._failing = True

    def _encode(self, record: Record) -> bytes:
        """A record as TensorBoard's events, after what a new file begins with.

        Its usual writer does this in a thread, which a full disk kills with a traceback.
        """
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        events = []
        if not self._events.exists():
            events.append(Event(file_version="brain.Event:2"))
            if self._resumed_at is not None:  # hides what was written after the checkpoint
                restart = SessionLog(status=SessionLog.START)
                events.append(Event(step=self._resumed_at + 1, session_log=restart))
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(record)]
        events.append(Event(step=record.turns, summary=Summary(value=values)))
        return _frame(events)


def _frame(events: Iterable[Any]) -> bytes:
    """Events as records of TensorFlow: a length and the data, each followed by a checksum.

    TensorBoard's own writer takes a hundred times as long for the checksums.
    """
    parts = []
    for event in events:
        event.wall_time = time.time()
        data = event.SerializeToString()
        for part in (len(data).to_bytes(8, "little"), data):
            parts += [part, masked_checksum(part).to_bytes(4, "little")]
    return b"".join(parts)


def masked_checksum(data: bytes) -> int:
    """CRC-32C (Castagnoli), masked as TensorFlow's records have it."""
    found = _checksum(np.frombuffer(data, np.uint8), CASTAGNOLI) ^ 0xFFFFFFFF
    return ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF


@njit(cache=True)
def _checksum(data: Array, table: Array) -> int:
    found = np.uint32(0xFFFFFFFF)
    for byte in data:
        found = table[(found ^ byte) & np.uint32(0xFF)] ^ (found >> np.uint32(8))
    return int(found)


def _castagnoli() -> Array:
    """What each byte does to the checksum: [256]."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0x82F63B78) ^ (table >> 1), table >> 1)
    return table.astype(np.uint32)


CASTAGNOLI = _castagnoli()


def _append(path: Path, data: bytes) -> None:
    """Write all of `data` at the end of a file, or leave the file as it was."""
    with path.open("ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            if file.write(data) != len(data):
                raise OSError(28, "No space left on device")
        except OSError:
            file.truncate(before)
            raise
