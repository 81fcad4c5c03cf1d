"""Write metrics to a file of JSON lines, which is authoritative, and to TensorBoard's file.

A TensorBoard event has all numbers of a record: ten thousand for 256 policies. As protobuf objects
they would take four times as long as JSON. This module therefore encodes a number as four bytes
after the cached bytes of its tag.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from io import FileIO
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np

from remuda.coordinator.bounded_work import ROWS, Pieces, Work, encode, joined
from remuda.coordinator.frozen_json import FrozenTexts
from remuda.runs.metrics import Record, groups
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.opening import APPEND, open_file
from remuda.system.kernels import njit
from remuda.types import Array

CHEAPER = 4  # encoding a number takes 1 / CHEAPER of the time of a value in JSON


class EventEncoder:
    """An encoder of records as events, which caches the bytes of every tag."""

    def __init__(self) -> None:
        self._tags: dict[tuple[str, tuple[str, ...]], list[bytes]] = {}
        self._known = 0  # number of cached tags; a new tag takes as long as a value in JSON

    def encode(self, record: Record, event: Any, found: list[bytes]) -> Work:
        """Encode a record as one event, in pieces."""
        values: list[bytes] = []
        all_groups = list(groups(record))
        for start in range(0, len(all_groups), ROWS):
            part = all_groups[start : start + ROWS]
            known = self._known
            values.append(self.values(part))
            numbers = sum(len(named) for _, named in part)
            yield max(numbers // CHEAPER, self._known - known)
        summary = b"".join(values)
        found.append(event.SerializeToString() + SUMMARY + _varint(len(summary)) + summary)

    def values(self, part: Iterable[tuple[str, Mapping[str, float | None]]]) -> bytes:
        """Return the bytes of `Summary.value` as in protobuf, for all numbers that are not None."""
        tags: list[bytes] = []
        numbers: list[float | None] = []
        for group, named in part:
            tags += self._tags_of(group, tuple(named))
            numbers += named.values()
        there = [number is not None for number in numbers]
        with np.errstate(over="ignore"):  # too large numbers become infinite, as in protobuf
            floats = np.array(list(compress(numbers, there)), np.float64).astype("<f4")
        pairs = zip(compress(tags, there), floats.view("V4").tolist(), strict=True)
        return b"".join(chain.from_iterable(pairs))

    def _tags_of(self, group: str, names: tuple[str, ...]) -> list[bytes]:
        found = self._tags.get((group, names))
        if found is None:
            found = self._tags[group, names] = [_opened(f"{group}/{name}") for name in names]
            self._known += len(found)
        return found


# Bytes of the protocol-buffer encoding: field number and wire type.
SUMMARY = b"\x2a"  # Event.summary = 5, with a length
VALUE = b"\x0a"  # Summary.value = 1, with a length
TAG = b"\x0a"  # Summary.Value.tag = 1, with a length
SIMPLE_VALUE = b"\x15"  # Summary.Value.simple_value = 2, four bytes


def _opened(tag: str) -> bytes:
    name = tag.encode()
    content = TAG + _varint(len(name)) + name + SIMPLE_VALUE
    return VALUE + _varint(len(content) + 4) + content


def _varint(number: int) -> bytes:
    """Return a length in the protocol-buffer encoding: seven bits per byte, the lowest first."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


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


def _castagnoli() -> Array:
    """Return the checksum's table: [256]."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0x82F63B78) ^ (table >> 1), table >> 1)
    return table.astype(np.uint32)


CASTAGNOLI = _castagnoli()


log = logging.getLogger(__name__)


class MetricsLog:
    """The writer of metrics, in pieces; a full disk loses only the records that do not fit.

    A record of many policies is encoded over several ticks (`work`). The last piece writes its line
    and then its event. If the process dies first, that record is lost, and the files contain only
    complete records.
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
        self.failed = ""  # why the last records are missing; empty if none is
        self.work = Pieces()

    def begin(self, record: Record, frozen: FrozenTexts | None = None) -> None:
        """Start to append a record to both files, after completing the previous one."""
        self.work.finish()
        texts = (len(frozen), frozen.text()) if frozen and not record.is_whole else None
        self.work.begin(self._writing(record, texts))

    def write(self, record: Record) -> None:
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
