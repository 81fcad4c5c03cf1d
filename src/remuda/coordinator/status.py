"""The status of a run for other processes: `status.json`, written every second."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from remuda.coordinator.bounded_work import FrozenTexts, Pieces, Work, encode_record
from remuda.publish.weight_store import WeightStore
from remuda.runs.metrics import MemberRecord, PolicyRecord, Record
from remuda.system.checkpoint.opening import (
    NUMBER,
    Kinds,
    checked,
    checked_all,
    kinds_of,
    read_checked,
)
from remuda.system.checkpoint.state import write_whole
from remuda.types import RoleStatus

INTERVAL = 1.0
"""Minimum seconds between two writes. With hundreds of policies the interval is longer, because a
tick encodes a bounded number of values (`remuda.coordinator.bounded_work`)."""


STATUS: Kinds = {
    **dict.fromkeys(("time", "seconds", "agent_steps_per_second"), NUMBER),
    **dict.fromkeys(("coordinator", "turns"), int),
    **dict.fromkeys(("schedule", "ended"), str),
    **dict.fromkeys(("roles", "errors"), list),
    **dict.fromkeys(("policies", "members"), dict),
}


class StatusFile:
    """The writer of a run's status, in pieces (`work`); a full disk does not end the run."""

    def __init__(
        self, path: Path, published: WeightStore, schedule: str, frozen: FrozenTexts | None = None
    ) -> None:
        self._path, self._published, self._schedule = path, published, schedule
        self._frozen = frozen
        self._errors: deque[dict[str, Any]] = deque(maxlen=20)
        self._returns: dict[str, float] = {}
        self._begun = 0.0
        self.work = Pieces()

    def note(self, message: str) -> None:
        self._errors.append({"time": time.time(), "message": message})

    def note_returns(self, record: Record) -> None:
        """Store returns, since in slow environments most intervals have no finished episode."""
        for name, policy in record.playing.items():
            if policy.mean_return is not None:
                self._returns[name] = policy.mean_return

    @property
    def is_due(self) -> bool:
        """True if it is time for the next status, and the previous one is written."""
        return time.monotonic() - self._begun >= INTERVAL and not self.work.busy

    def begin(self, record: Record, roles: Iterable[RoleStatus], ended: str = "") -> None:
        """Start to write a status, dropping an unwritten one."""
        self._begun = time.monotonic()
        self.note_returns(record)
        self.work.begin(self._writing(record, roles, ended))

    def write(self, record: Record, roles: Iterable[RoleStatus], ended: str) -> None:
        self.begin(record, roles, ended)
        self.work.finish()

    def _writing(self, record: Record, roles: Iterable[RoleStatus], ended: str) -> Work:
        playing, texts = record.playing, list[str]()
        more = {
            "time": time.time(),
            "coordinator": os.getpid(),
            "schedule": self._schedule,
            "ended": ended,
            "roles": [asdict(role) for role in roles],
            "errors": list(self._errors),
        }
        slots = {name: self._published.active(name) for name in playing}
        returns = {name: self._returns.get(name) for name in playing}
        frozen = self._frozen.text() if self._frozen and not record.is_whole else ""
        yield from encode_record(
            record, more, frozen, texts, playing, slot=slots, mean_return=returns
        )
        with contextlib.suppress(OSError):
            write_whole(self._path, texts[0].encode(), sync=False)


def read_status(path: Path) -> dict[str, Any]:
    return read_checked(path, _checked, "the run has not started")


def _checked(data: object) -> dict[str, Any]:
    status = checked(data, STATUS)
    for role in status["roles"]:
        checked(role, kinds_of(RoleStatus))
    for policy in checked_all(status["policies"], {"slot": int}).values():
        checked(policy, kinds_of(PolicyRecord))
    for member in checked_all(status["members"], {}).values():
        checked(member, kinds_of(MemberRecord))
    for error in status["errors"]:
        checked(error, {"time": NUMBER, "message": str})
    return status
