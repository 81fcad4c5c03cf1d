"""Write metrics to a file of JSON lines, which is authoritative, and to TensorBoard's file."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from remuda.checkpoint.opening import APPEND, open_file
from remuda.coordinator.frozen import FrozenTexts
from remuda.coordinator.metrics import Record
from remuda.coordinator.metrics_events import EventEncoder, frame, openings
from remuda.coordinator.pieces import Pieces, Work, encode, joined
from remuda.coordinator.run_directory import RunDirectory

log = logging.getLogger(__name__)


class MetricsLog:
    """Appends records, in pieces; a full disk loses only the records that do not fit.

    A record of many policies is encoded over several ticks (`work`), and the last piece writes it:
    first its line, then its event. If the process dies before, that record is lost, but everything
    in the files is complete.
    """

    def __init__(
        self, run: RunDirectory, say: Callable[[str], None], resumed_at: int | None
    ) -> None:
        self._run, self._say = run, say
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._events = run.tensorboard / name
        self._resumed_at = resumed_at
        self._encoder = EventEncoder()
        self._failing = False
        self.failed = ""  # why the last records are missing; empty: they are there
        self.work = Pieces()

    def begin(self, record: Record, frozen: FrozenTexts | None = None) -> None:
        """Begin to append a record to both, after completing the previous one."""
        self.work.finish()
        texts = (len(frozen), frozen.text()) if frozen and not record.is_whole else None
        self.work.begin(self._writing(record, texts))

    def write(self, record: Record) -> None:
        """Append a record to both."""
        self.begin(record)
        self.work.finish()

    def _writing(self, record: Record, frozen: tuple[int, str] | None) -> Work:
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event(wall_time=time.time(), step=record.turns)
        policies: list[str] = []
        members: list[str] = []
        yield from encode(record.policies, policies)
        yield from encode(record.members, members)
        rest = {n: v for n, v in vars(record).items() if n not in ("policies", "members")}
        if frozen is not None:
            rest["frozen"], text = frozen
            members.append(text)
        nested = joined(policies=policies, members=members)
        if not self._append(self._run.metrics, f"{json.dumps(rest)[:-1]}, {nested}}}\n".encode()):
            return
        events: list[bytes] = []
        yield from self._encoder.encode(record, event, events)
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
            if not self._failing:  # training is worth more than its log
                self._say(
                    f"cannot write metrics into {self._run.path}: {error.strerror}; "
                    "training continues without them"
                )
                log.warning("cannot write metrics: %s", error)
            self._failing = True
            return False
        return True


def _append(path: Path, data: bytes) -> None:
    """Write all of `data` at the end of a file, or leave the file unchanged."""
    with FileIO(open_file(path, APPEND), "a+") as file:
        before = file.seek(0, os.SEEK_END)
        try:
            if file.write(data) != len(data):
                raise OSError(28, "No space left on device")
        except OSError:
            file.truncate(before)
            raise
