"""The coordinator's record of a role's process: restarts, processor time, silence."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remuda.envs.workers.process import WorkerStatus
from remuda.runtime.control import Control
from remuda.runtime.host import RoleLoop
from remuda.system.checkpoint.opening import open_stream
from remuda.system.memory.waiting import Wakeup
from remuda.system.processes import logs
from remuda.system.processes.activity import Activity, ProcessId
from remuda.system.processes.process import Process
from remuda.system.timeline import Timeline
from remuda.types import Role

MOST = 1.0  # maximum seconds that count between two checks: the watcher caused any longer gap
LOOK = 1.0  # seconds of silence after which the process's activity is considered


class AwakeClock:
    """A clock that counts only the time during which the watching process was awake."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def passed(self) -> float:
        now = time.monotonic()
        passed, self._last = min(now - self._last, MOST), now
        return passed


class Silence:
    """Seconds without a heartbeat, counting only time that the role and its watcher could use.

    A heartbeat may also be old because a laptop slept, or because a role got no processor time.

    1. If the process sleeps or is stopped, all time counts.
    2. If the process is runnable, only the processor time that it used counts.
    3. If the process waits for environment workers, rules 1 and 2 apply to each worker, and only
       the longest time counts. The times of workers that take turns on a processor therefore do
       not add up. A worker that has answered no longer counts.
    """

    def __init__(self) -> None:
        self._sign: object = None
        self._own = 0.0
        # silence of each worker since the role started to wait for it
        self._workers: dict[ProcessId, float] = {}
        self._before: dict[ProcessId, Activity | None] = {}

    @property
    def seconds(self) -> float:
        return self._own + max(self._workers.values(), default=0.0)

    def hear(
        self, sign: object, passed: float, pid: int | None, workers: Sequence[ProcessId] = ()
    ) -> float:
        """Check for a heartbeat (a changed `sign`); return the seconds of silence."""
        if sign != self._sign:
            self._sign, self._own, self._workers, self._before = sign, 0.0, {}, {}
            return 0.0
        if self.seconds < LOOK or pid is None:
            self._own += passed
            return self.seconds
        itself = pid, 0
        now = {process: Activity.of(*process) for process in (itself, *workers)}
        silent = {process: self._silent(process, now, passed) for process in now}
        own = now[itself]
        waits = bool(workers) and own is not None and not own.runnable
        self._workers = {
            worker: self._workers.get(worker, 0.0) + (silent[worker] if waits else 0.0)
            for worker in workers
        }
        if not waits:
            self._own += silent[itself]
        self._before = now
        return self.seconds

    def _silent(
        self, process: ProcessId, now: dict[ProcessId, Activity | None], passed: float
    ) -> float:
        """Return how many of the passed seconds count for this process."""
        activity, before = now[process], self._before.get(process)
        if activity is None or not activity.runnable:
            return passed
        had = activity.cpu - before.cpu if before is not None else 0.0
        return min(passed, max(had, 0.0))


# prefix of a log line (`LOG_FORMAT` in system/processes/logs.py)
LOGGED = re.compile(r"^\d+-\d\d-\d\d [\d:,]+ [A-Z]+ [^:]*: ")
EVERY = 1.0  # seconds between two measurements of a role's processor time


@dataclass(frozen=True)
class RoleSetup:
    """A role with its wake-up, loop, timeline and environment workers."""

    role: Role
    wakeup: Wakeup
    loop: RoleLoop
    timeline: Timeline | None = None
    workers: WorkerStatus | None = None


@dataclass
class ProcessorTime:
    """The processor time of a role, measured from outside."""

    used: float = 0.0  # seconds of processor time, including environment workers
    watched: float = 0.0  # seconds over which `used` was measured
    _last: tuple[int, float] | None = None  # process id and time of the last measurement
    _had: dict[ProcessId, float] = field(default_factory=dict)  # each process's `cpu` at that time

    @property
    def share(self) -> float | None:
        """Processors used on average; None before the first measurement."""
        return self.used / self.watched if self.watched else None

    def measure(self, pid: int | None, workers: Sequence[ProcessId] = ()) -> None:
        """Measure a running process, at most once in `EVERY` seconds."""
        now = time.monotonic()
        if pid is None or (self._last and self._last[0] == pid and now < self._last[1] + EVERY):
            return
        activities = {process: Activity.of(*process) for process in ((pid, 0), *workers)}
        had = {process: activity.cpu for process, activity in activities.items() if activity}
        if (pid, 0) not in had:
            return
        if self._last is not None and self._last[0] == pid:
            self.watched += now - self._last[1]
            self.used += sum(had[each] - self._had[each] for each in had.keys() & self._had.keys())
        self._last, self._had = (pid, now), had


@dataclass
class Child:
    """The process of a role, with its deaths and restarts."""

    index: int
    setup: RoleSetup
    log: Path
    process: Process | None = None
    silence: Silence = field(default_factory=Silence)
    lost: int = 0  # consecutive processes that were lost with the fork server before they started
    was_ready: bool = False  # True once any process of this role was ready
    due: float = 0.0  # when to spawn the next process; 0 if none is due
    # times of the deaths within the window of the restart budget
    deaths: deque[float] = field(default_factory=deque)
    restarts: int = 0
    problem: str = ""
    processor: ProcessorTime = field(default_factory=ProcessorTime)

    @property
    def name(self) -> str:
        return self.setup.role.name

    def reset(self, control: Control) -> None:
        control.reset(self.index)
        if self.setup.workers is not None:
            self.setup.workers.reset()

    def hear(self, control: Control, passed: float, pid: int | None) -> float:
        """Return the seconds of silence of the role and of the workers it waits for."""
        sign, workers = control.heartbeat(self.index), self.setup.workers
        if workers is None:
            return self.silence.hear(sign, passed, pid)
        return self.silence.hear((sign, workers.signs()), passed, pid, workers.waited_for())

    def measure(self) -> None:
        workers = self.setup.workers
        pid = self.process.pid if self.process is not None else None
        self.processor.measure(pid, () if workers is None else workers.processes())

    def is_compiling(self, control: Control) -> bool:
        workers = self.setup.workers
        return control.compiling(self.index) or (workers is not None and workers.is_compiling())

    def compiled(self, control: Control) -> int:
        """Count the functions that the process and its workers have started to compile."""
        workers = self.setup.workers
        return control.compiled(self.index) + (workers.compiled() if workers is not None else 0)


def last_line(path: Path) -> str:
    """Return the last line of a log without its prefix."""
    try:
        with open_stream(path) as file:
            line = logs.last_line(file.fileno())
    except OSError:
        return "its log cannot be read"
    return LOGGED.sub("", line) if line else "its log is empty"
