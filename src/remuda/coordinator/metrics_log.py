"""Where metrics are kept: a file of JSON lines, which is the truth, and TensorBoard's own file."""

from __future__ import annotations

import io
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from remuda.coordinator.metrics import Record, scalars
from remuda.coordinator.run_directory import RunDirectory

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
    from tensorboard.summary.writer.record_writer import RecordWriter

    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    for event in events:
        event.wall_time = time.time()
        writer.write(event.SerializeToString())
    return buffer.getvalue()


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
