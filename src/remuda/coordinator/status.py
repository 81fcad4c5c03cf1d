"""The status of a run for anybody who asks while it goes on: `status.json`, every second."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from remuda.checkpoint.plain import NUMBER, Kinds, checked, checked_all, kinds_of
from remuda.checkpoint.state import write_whole
from remuda.coordinator.metrics import MemberRecord, PolicyRecord, Record
from remuda.errors import RunDirectoryError
from remuda.publish.snapshot import PublishedWeights
from remuda.types import RoleStatus

INTERVAL = 1.0
"""Seconds between two writings."""
ERRORS = 20
"""The newest errors that are kept."""


STATUS: Kinds = {
    "time": NUMBER,
    "coordinator": int,
    "schedule": str,
    "ended": str,
    "seconds": NUMBER,
    "turns": int,
    "agent_steps_per_second": NUMBER,
    "roles": list,
    "policies": dict,
    "members": dict,
    "errors": list,
}
"""What a status holds at least."""


class StatusFile:
    """Writes the status of a run; a full disk costs the status, not the run."""

    def __init__(self, path: Path, published: PublishedWeights, schedule: str) -> None:
        self._path, self._published, self._schedule = path, published, schedule
        self._errors: deque[dict[str, Any]] = deque(maxlen=ERRORS)
        self._written = 0.0
        self._frozen: dict[str, MemberRecord] = {}
        """The frozen copies as they stood in the last record that held all of them."""

    def note(self, message: str) -> None:
        """Keep a message among the last errors."""
        self._errors.append({"time": time.time(), "message": message})

    def remember(self, record: Record) -> None:
        """Take note of all frozen copies, where they stand in this record."""
        if record.is_whole:
            self._frozen = {name: m for name, m in record.members.items() if not m.learns}

    def write(self, record: Record, roles: Iterable[RoleStatus], ended: str = "") -> None:
        """Write the status, if it is time or the run has ended."""
        now = time.monotonic()
        if now - self._written < INTERVAL and not ended:
            return
        self._written = now
        all_members = record.members if record.is_whole else self._frozen | record.members
        members = {name: vars(member) for name, member in all_members.items()}
        policies = {
            name: vars(policy) | {"slot": self._published.active(name)}
            for name, policy in record.playing.items()
        }
        status = record.plain() | {
            "members": members,
            "time": time.time(),
            "coordinator": os.getpid(),
            "schedule": self._schedule,
            "ended": ended,
            "roles": [asdict(role) for role in roles],
            "policies": policies,
            "errors": list(self._errors),
        }
        with contextlib.suppress(OSError):
            write_whole(self._path, json.dumps(status).encode(), sync=False)


def read_status(path: Path) -> dict[str, Any]:
    """The newest status in a file.

    Raises:
        RunDirectoryError: there is none.
    """
    try:
        data = path.read_bytes()
    except OSError:
        raise RunDirectoryError(f"{path} is missing: the run has not begun") from None
    try:
        return _checked(json.loads(data))
    except ValueError as error:
        raise RunDirectoryError(f"{path} is damaged: {error}") from None


def _checked(data: object) -> dict[str, Any]:
    """A status with everything in it that is shown; a `ValueError` where it has not."""
    status = checked(data, STATUS)
    for role in status["roles"]:
        _completed(checked(role, {}), RoleStatus)
    for policy in checked_all(status["policies"], {"slot": int}).values():
        _completed(policy, PolicyRecord)
    for member in checked_all(status["members"], {}).values():
        _completed(member, MemberRecord)
    for error in status["errors"]:
        checked(error, {"time": NUMBER, "message": str})
    return status


def _completed(data: dict[str, Any], record: type) -> None:
    """Check what should be a record; what an older version did not write is as by default."""
    for field in fields(record):
        if field.default is not MISSING:
            data.setdefault(field.name, field.default)
        elif field.default_factory is not MISSING:
            data.setdefault(field.name, field.default_factory())
    checked(data, kinds_of(record))
