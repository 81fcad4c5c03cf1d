"""The inside of a child process: it hosts one role, and ends when the coordinator does."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remuda.checkpoint.store import Checkpoints
from remuda.errors import RemudaError
from remuda.memory.lifeline import die_with_parent
from remuda.runtime.control import DONE, RUNNING, Control
from remuda.runtime.pace import Desk, Pace, restore
from remuda.timeline import Timeline
from remuda.types import Role

EXCEPTION = 70
"""Exit code of a process that ended by an exception, which its log tells."""
HELD_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that are the coordinator's to act on, and that children ignore."""
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True)
class Hosting:
    """What a child process is told besides its role."""

    index: int
    log: Path
    nice: int
    pace: Pace
    checkpoints: Checkpoints
    restore: bool
    """Whether the role goes on from the newest checkpoint, if there is one."""
    timeline: Timeline | None
    threads: int = 1


def host(role: Role, control: Control, lifeline: int, hosting: Hosting) -> None:
    """Run a role until it is done or asked to stop. The main function of every child."""
    die_with_parent(lifeline)
    # The terminal sends Ctrl-C to every process at once; stopping is the coordinator's to order.
    for number in HELD_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)
    _log_to(hosting.log)
    log = logging.getLogger(role.name)
    log.info("process %d starts", os.getpid())
    try:
        with contextlib.suppress(OSError):
            os.nice(hosting.nice)
        with threads(hosting.threads):
            worker = role.build()
            if hosting.restore and restore(worker, hosting.checkpoints.newest):
                log.info("goes on from the newest checkpoint")
            log.info("ready")
            desk = Desk(hosting.index, control, hosting.checkpoints, hosting.timeline)
            control.enter(hosting.index, RUNNING)
            while not (control.may_go or control.stopped):
                control.beat(hosting.index)
                desk.sleep_until(lambda: control.may_go)
            hosting.pace.run(worker, desk)
            worker.finish()
        control.enter(hosting.index, DONE)
        log.info("finished")
    except RemudaError as error:
        log.error("%s", error)
        sys.exit(EXCEPTION)
    except Exception:
        log.exception("ended by an exception")
        sys.exit(EXCEPTION)


def _log_to(path: Path) -> None:
    """Send all output of this process, of native code too, to its log."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """So many torch threads in this process: with all cores in each, processes fight and may hang.

    With one, sums come out the same in every schedule.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    with contextlib.suppress(RuntimeError):  # only the first call in a process may set it
        torch.set_num_interop_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
