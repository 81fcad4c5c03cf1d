"""Read the processor time of another process, and whether it is runnable."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

PROC = Path("/proc")
# fields of /proc/PID/stat after the name: user and system time, and the start time
CPU, STARTED = slice(11, 13), 19

ProcessId = tuple[int, int]  # id and start time (`started`); time 0 matches any process of that id


@dataclass(frozen=True)
class Activity:
    """The activity of a process at one moment."""

    cpu: float  # seconds of processor time so far
    runnable: bool  # whether it computes or waits for a processor

    @staticmethod
    def of(pid: int, start_time: int = 0) -> Activity | None:
        """Return the activity over all threads of a process; None if it has ended."""
        if start_time not in (0, started(pid)):
            return None
        try:
            return _from_proc(pid) if PROC.is_dir() else _from_psutil(pid)
        except (OSError, psutil.Error):
            return None


def started(pid: int) -> int:
    """Return a process's start time in system-dependent units; 0 if it has ended."""
    try:
        if PROC.is_dir():
            return int(_stat(PROC / str(pid) / "stat")[STARTED])
        return int(psutil.Process(pid).create_time() * 1000.0)
    except (OSError, psutil.Error):
        return 0


def _from_proc(pid: int) -> Activity:
    cpu = sum(map(int, _stat(PROC / str(pid) / "stat")[CPU])) / os.sysconf("SC_CLK_TCK")
    states = {_stat(task / "stat")[0] for task in (PROC / str(pid) / "task").iterdir()}
    return Activity(cpu, "R" in states)


def _from_psutil(pid: int) -> Activity:
    process = psutil.Process(pid)
    times = process.cpu_times()
    return Activity(times.user + times.system, process.status() == psutil.STATUS_RUNNING)


def _stat(path: Path) -> list[str]:
    """Return the fields after the process name, which may contain any character."""
    return path.read_text().rpartition(")")[2].split()
