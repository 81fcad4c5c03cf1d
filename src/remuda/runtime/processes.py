"""Every role in a process of its own: the schedule `async`."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from remuda.errors import RoleDiedError
from remuda.memory.waiting import Wakeup
from remuda.runtime.host import DONE, STARTING, Control, Hosting, Lifeline, host
from remuda.types import Role

log = logging.getLogger(__name__)

ACTOR = 0
"""The actor's place among the roles; the learners follow."""


class ProcessRuntime:
    """Spawns a process per role, watches them, and stops them.

    What it guarantees:

    1. Processes start by spawn; what crosses is recipes and shared memory.
    2. No child outlives the coordinator, by whatever signal it dies.
    3. A child that ends before its work is done stops the run with its name and its log.
    4. `stop` leaves no child behind: who does not finish within its limit is killed.
    """

    def __init__(
        self,
        actor: Role,
        learners: Sequence[Role],
        wakeups: tuple[Wakeup, ...],
        logs: Path,
        *,
        nice: int,
        start_limit: float,
        stop_limit: float,
    ) -> None:
        self._roles = (actor, *learners)
        self._control = Control(len(self._roles), wakeups)
        self._lifeline = Lifeline()
        self._logs, self._nice = logs, nice
        self._start_limit, self._stop_limit = start_limit, stop_limit
        self._children: dict[int, SpawnProcess] = {}

    def start(self, stopped: Callable[[], bool]) -> None:
        """Spawn every role and return when all of them are ready; the actor comes last.

        So no turn is played before there is somebody to learn from it.
        """
        learners = range(1, len(self._roles))
        for index in learners:
            self._spawn(index)
        self._await_ready(learners, stopped)
        if not stopped():
            self._spawn(0)
            self._await_ready((0,), stopped)

    def run_for(self, seconds: float) -> bool:
        """Watch for about so long; True when everything is played."""
        return self._watch(seconds)

    def stop(self) -> None:
        """Ask all to finish, wait for them, and kill who does not."""
        self._control.stop()
        limit = time.monotonic() + self._stop_limit
        for child in self._children.values():
            child.join(max(limit - time.monotonic(), 0.0))
            if child.is_alive():
                log.warning("%s did not stop within %.0f s: killed", child.name, self._stop_limit)
                child.kill()
                child.join(self._stop_limit)
            child.close()
        self._children = {}
        self._lifeline.close()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids, by role."""
        return {c.name: c.pid for c in self._children.values() if c.pid is not None}

    def _spawn(self, index: int) -> None:
        role = self._roles[index]
        hosting = Hosting(index, self._log_of(role), self._nice if index else 0)
        child = multiprocessing.get_context("spawn").Process(
            target=host,
            args=(role, self._control, self._lifeline, hosting),
            name=role.name,
            daemon=True,
        )
        child.start()
        self._children[index] = child

    def _await_ready(self, indices: Iterable[int], stopped: Callable[[], bool]) -> None:
        limit = time.monotonic() + self._start_limit
        while not stopped():
            late = [self._roles[i].name for i in indices if self._control.state(i) == STARTING]
            if not late:
                return
            if time.monotonic() > limit:
                raise RoleDiedError(
                    f"{', '.join(late)} did not start within {self._start_limit:.0f} s; see the "
                    f"logs in {self._logs}, or raise run.start_limit"
                )
            self._watch(0.05)

    def _watch(self, seconds: float) -> bool:
        """Sleep until a child ends, or for so long; True when the actor has played everything."""
        wait([child.sentinel for child in self._children.values()], seconds)
        over = False
        for index, child in self._children.items():
            if child.exitcode is None:
                continue
            if self._control.state(index) != DONE or child.exitcode != 0:
                raise RoleDiedError(self._obituary(self._roles[index], child.exitcode))
            over |= index == ACTOR
        return over

    def _obituary(self, role: Role, exitcode: int) -> str:
        path = self._log_of(role)
        if exitcode < 0:
            how = f"was killed by {signal.Signals(-exitcode).name}"
        else:
            how = f"ended with exit code {exitcode}: {_last_line(path)}"
        return f"the process {role.name} {how}; the run stops here. Its log is {path}"

    def _log_of(self, role: Role) -> Path:
        return self._logs / f"{role.name}.log"


def _last_line(path: Path) -> str:
    try:
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "its log cannot be read"
    return lines[-1].strip() if lines else "its log is empty"
