"""A child of the coordinator: the process of a role, and what became of those before it."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remuda.checkpoint.opening import open_stream
from remuda.envs.worker_status import WorkerStatus
from remuda.forkserver.activity import Activity, ProcessId
from remuda.forkserver.process import Process
from remuda.memory.waiting import Wakeup
from remuda.runtime.control import Control
from remuda.runtime.role_loop import RoleLoop
from remuda.runtime.silence import Silence
from remuda.timeline import Timeline
from remuda.types import Role

LOGGED = re.compile(r"^\d+-\d\d-\d\d [\d:,]+ [A-Z]+ [^:]*: ")
"""What a line of a log begins with (`LOG_FORMAT` in forkserver/logs.py), before its words."""
AT_THE_END = 2**16
"""Bytes at the end of a log in which its last line is looked for."""
EVERY = 1.0
"""Seconds between two measurements of a role's processor time."""


@dataclass(frozen=True)
class Place:
    """What a role brings along besides itself."""

    role: Role
    wakeup: Wakeup
    loop: RoleLoop
    timeline: Timeline | None = None
    workers: WorkerStatus | None = None
    """What the processes do that step its copies; None: there are none."""


@dataclass
class ProcessorTime:
    """How much of the processors a role had, measured now and then from outside."""

    used: float = 0.0
    """Seconds of processor time, its workers' with it..."""
    watched: float = 0.0
    """...in so many seconds that the process was seen to run."""
    _last: tuple[int, float] | None = None
    """Process id and time of the last measurement."""
    _had: dict[ProcessId, float] = field(default_factory=dict)
    """Processor time that each process had had then."""

    @property
    def share(self) -> float | None:
        """Processors that it had on average; None: it was not measured yet."""
        return self.used / self.watched if self.watched else None

    def measure(self, pid: int | None, workers: Sequence[ProcessId] = ()) -> None:
        """Measure a process that runs, unless that was done a moment ago."""
        now = time.monotonic()
        if pid is None or (self._last and self._last[0] == pid and now < self._last[1] + EVERY):
            return
        seen = {process: Activity.of(*process) for process in ((pid, 0), *workers)}
        had = {process: activity.cpu for process, activity in seen.items() if activity}
        if (pid, 0) not in had:
            return
        if self._last is not None and self._last[0] == pid:
            self.watched += now - self._last[1]
            self.used += sum(had[each] - self._had[each] for each in had.keys() & self._had.keys())
        self._last, self._had = (pid, now), had


@dataclass
class Child:
    """The process of a role, and what became of those before it."""

    index: int
    place: Place
    log: Path
    process: Process | None = None
    silence: Silence = field(default_factory=Silence)
    lost: int = 0
    """Processes in a row that died with the fork server before they had begun."""
    was_ready: bool = False
    """Whether any process of this role ever got ready."""
    due: float = 0.0
    """Without a process: when the next one is spawned."""
    deaths: deque[float] = field(default_factory=deque)
    """When processes died, within the window that the budget is for."""
    restarts: int = 0
    problem: str = ""
    processor: ProcessorTime = field(default_factory=ProcessorTime)
    """Over all of its processes, while they ran."""

    @property
    def name(self) -> str:
        """The role's name."""
        return self.place.role.name

    def reset(self, control: Control) -> None:
        """Begin anew; it has no process now."""
        control.reset(self.index)
        if self.place.workers is not None:
            self.place.workers.reset()

    def hear(self, control: Control, passed: float, pid: int | None) -> float:
        """Take a look; returns the seconds of silence, of it and of the workers it waits for."""
        sign, workers = control.heartbeat(self.index), self.place.workers
        if workers is None:
            return self.silence.hear(sign, passed, pid)
        return self.silence.hear((sign, workers.signs()), passed, pid, workers.waited_for())

    def measure(self) -> None:
        """Measure what processor time it and its workers have, now and then."""
        workers = self.place.workers
        pid = self.process.pid if self.process is not None else None
        self.processor.measure(pid, () if workers is None else workers.processes())

    def is_compiling(self, control: Control) -> bool:
        """Whether it, or a worker that it waits for, compiles a function just now."""
        workers = self.place.workers
        return control.compiling(self.index) or (workers is not None and workers.is_compiling())

    def compiled(self, control: Control) -> int:
        """Functions that it and its workers have compiled so far, or began to."""
        workers = self.place.workers
        return control.compiled(self.index) + (workers.compiled() if workers is not None else 0)


def last_line(path: Path) -> str:
    """The words of the last line of a log that says anything; a log may be long."""
    try:
        with open_stream(path) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - AT_THE_END, 0))
            words = file.read(AT_THE_END).decode(errors="replace")
    except OSError:
        return "its log cannot be read"
    lines = [line for line in words.splitlines() if line.strip()]
    return LOGGED.sub("", lines[-1].strip()) if lines else "its log is empty"
