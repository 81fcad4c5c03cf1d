"""The main function of a child process, which hosts one role."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from remuda.errors import CommandError, RemudaError
from remuda.policies import parallel_parts
from remuda.runtime.control import DONE, FAILED, RUNNING, Control
from remuda.runtime.role_loop import RoleContext, RoleLoop, restore
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.compiling import tell_compiling
from remuda.system.processes.child import EXCEPTION, REFUSED, ignore_held_signals
from remuda.system.rng import seed_libraries
from remuda.system.timeline import Timeline
from remuda.system.user_errors import where_raised
from remuda.types import Role


@dataclass(frozen=True)
class Hosting:
    """Settings of a child process, in addition to its role."""

    index: int
    nice: int
    loop: RoleLoop
    checkpoints: Checkpoints
    restore: bool  # resume the role from the newest checkpoint, if there is one
    timeline: Timeline | None
    starts: int = 0  # earlier processes of this role; each draws different random numbers
    # torch threads, and parts of a minibatch computed in parallel (`policies.parallel_parts`)
    threads: tuple[int, int] = (1, 1)


def host(role: Role, control: Control, hosting: Hosting) -> None:
    """Run a role until it is done or must stop; the entry point of every child."""
    ignore_held_signals()
    log = logging.getLogger(role.name)
    log.info("process %d starts", os.getpid())
    tell_compiling(lambda compiling: control.tell_compiling(hosting.index, compiling))
    try:
        with threads(hosting.threads[0]), parallel_parts.parts_at_once(hosting.threads[1]):
            seed_libraries(getattr(role, "seed", 0), role.name, hosting.starts)
            worker = role.build()
            if hosting.restore and restore(worker, hosting.checkpoints):
                log.info("resumes from the newest checkpoint")
            with contextlib.suppress(OSError):
                os.nice(hosting.nice)  # not earlier: others wait until this role is ready
            log.info("ready")
            context = RoleContext(hosting.index, control, hosting.checkpoints, hosting.timeline)
            control.enter(hosting.index, RUNNING)
            while not (control.may_go or control.stopped):
                control.beat(hosting.index)
                context.sleep_until(lambda: control.may_go)
            hosting.loop(worker, context)
            worker.finish()
        control.enter(hosting.index, DONE)
        log.info("finished")
    except RemudaError as error:
        log.error("%s", error)
        _fail(control, hosting, REFUSED if isinstance(error, CommandError) else EXCEPTION)
    except Exception as error:
        log.exception("ended by an exception")
        location = where_raised(error)
        if location:  # last, because the coordinator reads the log's last line
            log.error("%s", location)
        _fail(control, hosting)


def _fail(control: Control, hosting: Hosting, code: int = EXCEPTION) -> None:
    """Mark the role as failed, and exit; the coordinator sees the mark even if the exit hangs."""
    control.enter(hosting.index, FAILED)
    sys.exit(code)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Set torch's number of threads; more would compete for cores and change the order of sums."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    with contextlib.suppress(RuntimeError):  # only the first call in a process may set it
        torch.set_num_interop_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
