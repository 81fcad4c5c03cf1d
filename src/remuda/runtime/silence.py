"""How long a role has been silent, in time that it could have used and somebody was there to hear.

A laptop that slept, a whole group of processes that was stopped, and a machine that gives a role no
processor all make for old signs of life, and none of them is a role that hangs.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

PROC = Path("/proc")
MOST = 1.0
"""Seconds that count at most between two looks: for longer, the watcher itself was away."""
LOOK = 1.0
"""Seconds of silence after which it matters what the process does meanwhile."""


class AwakeClock:
    """Counts the time that the process which watches was itself awake."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def passed(self) -> float:
        """Seconds since this was asked last, as far as they count."""
        now = time.monotonic()
        passed, self._last = min(now - self._last, MOST), now
        return passed


@dataclass(frozen=True)
class Activity:
    """What a process does at a moment."""

    cpu: float
    """Seconds of processor time that it has had so far."""
    runnable: bool
    """Whether it computes, or would if it were given a processor."""

    @staticmethod
    def of(pid: int) -> Activity | None:
        """Of a process, all of its threads together; None if it is gone."""
        try:
            if PROC.is_dir():
                return _from_proc(pid)
            process = psutil.Process(pid)
            times = process.cpu_times()
            return Activity(times.user + times.system, process.status() == psutil.STATUS_RUNNING)
        except (OSError, psutil.Error):
            return None


class Silence:
    """Seconds that a role has been silent; belongs to the one who watches it.

    A process that sleeps or is stopped is silent for as long as that lasts. One that would compute
    is silent for the processor time that it was given and used without a sign of life.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sign: float | None = None
        self._before: Activity | None = None

    def hear(self, sign: float, passed: float, pid: int | None) -> float:
        """Take a look; returns the seconds of silence.

        Args:
            sign: its last sign of life; any other than the last time ends the silence.
            passed: seconds since the last look, as far as they count.
            pid: its process.
        """
        if sign != self._sign:
            self._sign, self.seconds, self._before = sign, 0.0, None
            return 0.0
        if self.seconds < LOOK or pid is None:
            self.seconds += passed
            return self.seconds
        now, before = Activity.of(pid), self._before
        if now is not None and now.runnable:
            had = now.cpu - before.cpu if before is not None else 0.0
            passed = min(passed, max(had, 0.0))
        self._before = now
        self.seconds += passed
        return self.seconds


def _from_proc(pid: int) -> Activity:
    fields = _stat(PROC / str(pid) / "stat")
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    states = {_stat(task / "stat")[0] for task in (PROC / str(pid) / "task").iterdir()}
    return Activity(cpu, "R" in states)


def _stat(path: Path) -> list[str]:
    """The fields after the name, which may hold anything."""
    return path.read_text().rpartition(")")[2].split()
