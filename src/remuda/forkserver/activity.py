"""What a process does at a moment, as seen from another."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

PROC = Path("/proc")
CPU, STARTED = slice(11, 13), 19
"""Fields of /proc/PID/stat after the name: time of the user's and the system's, and the start."""

ProcessId = tuple[int, int]
"""A process: its id, and when it started, by `started`; 0: whichever has that id."""


@dataclass(frozen=True)
class Activity:
    """What a process does at a moment."""

    cpu: float
    """Seconds of processor time that it has had so far."""
    runnable: bool
    """Whether it computes, or would if it were given a processor."""

    @staticmethod
    def of(pid: int, started: int = 0) -> Activity | None:
        """Of a process, all of its threads together; None if it is gone.

        Args:
            pid: its id.
            started: what `started` told of it, so that another with its id is not taken for it; 0:
                whichever has that id.
        """
        try:
            return _from_proc(pid, started) if PROC.is_dir() else _from_psutil(pid, started)
        except (OSError, psutil.Error):
            return None


def started(pid: int) -> int:
    """When a process started, in a unit of the system's; 0 if it is gone.

    Its id and this belong to one process and no other.
    """
    try:
        if PROC.is_dir():
            return int(_stat(PROC / str(pid) / "stat")[STARTED])
        return _milliseconds(psutil.Process(pid))
    except (OSError, psutil.Error):
        return 0


def _from_proc(pid: int, began: int) -> Activity | None:
    fields = _stat(PROC / str(pid) / "stat")
    if began not in (0, int(fields[STARTED])):
        return None
    cpu = sum(map(int, fields[CPU])) / os.sysconf("SC_CLK_TCK")
    states = {_stat(task / "stat")[0] for task in (PROC / str(pid) / "task").iterdir()}
    return Activity(cpu, "R" in states)


def _from_psutil(pid: int, began: int) -> Activity | None:
    process = psutil.Process(pid)
    if began not in (0, _milliseconds(process)):
        return None
    times = process.cpu_times()
    return Activity(times.user + times.system, process.status() == psutil.STATUS_RUNNING)


def _milliseconds(process: psutil.Process) -> int:
    return int(process.create_time() * 1000.0)


def _stat(path: Path) -> list[str]:
    """The fields after the name, which may hold anything."""
    return path.read_text().rpartition(")")[2].split()
