"""How long a role has been silent, in time that it could have used while the supervisor was awake.

A laptop that slept, a stopped group of processes, and a machine that gives a role no processor all
leave old signs of life, though no role hangs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from remuda.forkserver.activity import Activity, ProcessId

MOST = 1.0  # seconds that count at most between two looks: for longer, the watcher itself was away
LOOK = 1.0  # seconds of silence after which the process's own activity is considered


class AwakeClock:
    """Counts the time during which the watching process was awake."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def passed(self) -> float:
        now = time.monotonic()
        passed, self._last = min(now - self._last, MOST), now
        return passed


class Silence:
    """Seconds that a role has been silent; belongs to the process that watches it.

    1. A process that sleeps or is stopped is silent for as long as that lasts.
    2. A process that is runnable is silent for the processor time that it used without a sign of
       life.
    3. A process that sleeps until workers have answered is silent as long as the worker that is
       silent longest by 1 or 2, each by its own time. A worker that has answered is forgotten, and
       many that take turns on a processor do not add up.
    """

    def __init__(self) -> None:
        self._sign: object = None
        self._own = 0.0
        # since each worker that it waits for is waited for
        self._workers: dict[ProcessId, float] = {}
        self._before: dict[ProcessId, Activity | None] = {}

    @property
    def seconds(self) -> float:
        return self._own + max(self._workers.values(), default=0.0)

    def hear(
        self, sign: object, passed: float, pid: int | None, workers: Sequence[ProcessId] = ()
    ) -> float:
        """Take a look; return the seconds of silence."""
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
