"""The inside of a child process: it hosts one role, and ends when the coordinator does."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import numpy as np

from remuda.errors import RemudaError
from remuda.memory.shared import SharedArrays
from remuda.memory.waiting import Wakeup
from remuda.types import Role

STARTING, RUNNING, DONE = 0, 1, 2
BEAT = 1.0
"""Seconds after which a waiting role looks up, if only to show that it lives."""


class Control:
    """What the coordinator and its children tell each other, in shared memory.

    The coordinator writes `stop`; each child writes its own entry of `state` and `heartbeat`.
    """

    def __init__(self, num_roles: int, wakeups: tuple[Wakeup, ...]) -> None:
        self._shared = SharedArrays(
            {
                "stop": ((1,), np.int64),
                "state": ((num_roles,), np.int64),
                "heartbeat": ((num_roles,), np.float64),
            }
        )
        self._wakeups = wakeups

    def stop(self) -> None:
        """Ask every role to finish, and wake those that sleep."""
        self._shared["stop"][0] = 1
        for wakeup in self._wakeups:
            wakeup.ring()

    def stopped(self) -> bool:
        """Whether the roles are asked to finish."""
        return bool(self._shared["stop"][0])

    def state(self, role: int) -> int:
        """STARTING, RUNNING or DONE."""
        return int(self._shared["state"][role])

    def enter(self, role: int, state: int) -> None:
        """For a child: the state it is in now."""
        self._shared["state"][role] = state
        self.beat(role)

    def beat(self, role: int) -> None:
        """For a child: a sign of life."""
        self._shared["heartbeat"][role] = time.monotonic()

    def silence(self, role: int) -> float:
        """Seconds since a role's last sign of life."""
        return time.monotonic() - float(self._shared["heartbeat"][role])


class Lifeline:
    """A pipe whose other end the coordinator alone holds: when it closes, that process is gone."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def close(self) -> None:
        """For the coordinator: let go."""
        os.close(self._read)
        os.close(self._write)

    def __reduce__(self) -> tuple[Any, ...]:
        return _hold, (DupFd(self._read),)


def _hold(read: Any) -> int:
    descriptor: int = read.detach()
    return descriptor


@dataclass(frozen=True)
class Hosting:
    """What a child process is told besides its role."""

    index: int
    log: Path
    nice: int


def host(role: Role, control: Control, lifeline: int, hosting: Hosting) -> None:
    """Run a role until it is done or asked to stop. The main function of every child."""
    _die_with_the_coordinator(lifeline)
    # The terminal sends Ctrl-C to every process at once; stopping is the coordinator's to order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _log_to(hosting.log)
    log = logging.getLogger(role.name)
    log.info("process %d starts", os.getpid())
    try:
        with contextlib.suppress(OSError):
            os.nice(hosting.nice)
        _one_thread()
        worker = role.build()
        log.info("ready")
        control.enter(hosting.index, RUNNING)
        while not worker.done and not control.stopped():
            control.beat(hosting.index)
            if not worker.work():
                worker.wait(BEAT, control.stopped)
        worker.finish()
        control.enter(hosting.index, DONE)
        log.info("finished")
    except RemudaError as error:
        log.error("%s", error)
        sys.exit(1)
    except BaseException:
        log.exception("ended by an error")
        sys.exit(1)


def _die_with_the_coordinator(lifeline: int) -> None:
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    parent = os.getppid()

    def watch() -> None:
        os.read(lifeline, 1)  # returns only when the other end is closed
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _log_to(path: Path) -> None:
    """Send all output of this process, of native code too, to its log."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _one_thread() -> None:
    """One torch thread a process: with all cores in each, processes fight and may hang."""
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(RuntimeError):  # only the first call in a process may set it
        torch.set_num_interop_threads(1)
