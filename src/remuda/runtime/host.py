"""The process of a role: it builds a worker, and drives it in parallel or in turns with others.

The loops use workers only through `remuda.types.Worker`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from remuda.errors import CommandError, RemudaError
from remuda.policies import parallel_parts
from remuda.runtime.control import DONE, FAILED, RUNNING, Control
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.compiling import tell_compiling
from remuda.system.processes.child import EXCEPTION, REFUSED, ignore_held_signals
from remuda.system.rng import seed_libraries
from remuda.system.timeline import Span, Timeline
from remuda.system.user_errors import where_raised
from remuda.types import Role, Worker

log = logging.getLogger(__name__)

BEAT = 1.0  # maximum seconds between the heartbeats of a waiting role


class RoleContext:
    """The context of a loop: its role's number, the shared control memory, the checkpoints."""

    def __init__(
        self, index: int, control: Control, checkpoints: Checkpoints, timeline: Timeline | None
    ) -> None:
        self.index, self.control = index, control
        self._checkpoints, self._timeline = checkpoints, timeline
        self._saved = control.save  # earlier requests are not for this process

    def save_due(self) -> bool:
        return self.control.save > self._saved

    def interrupted(self) -> bool:
        """Return whether a sleeping worker should wake up."""
        return self.control.stopped or self.save_due()

    def save(self, worker: Worker) -> None:
        """Write this role's part of the requested checkpoint, or report a disk error."""
        start = time.perf_counter()
        number = self.control.save
        failed = False
        try:
            for part in worker.parts:
                self._checkpoints.write(number, part, worker.state(part))
        except OSError as error:
            failed = True
            log.error("cannot write checkpoint %d: %s", number, error)
        self._saved = number
        self.control.tell_saved(self.index, number, failed)
        self.trace(Span.CHECKPOINT, start)

    def sleep(self, wait: Callable[[float, Callable[[], bool]], object]) -> None:
        """Call `wait(timeout, interrupted)` with a timeout of `BEAT` seconds."""
        start = time.perf_counter()
        wait(BEAT, self.interrupted)
        self.trace(Span.WAIT, start)

    def sleep_until(self, condition: Callable[[], bool]) -> None:
        """Sleep until `condition` holds or an interruption, for at most `BEAT` seconds."""
        wakeup = self.control.wakeups[self.index]
        self.sleep(lambda t, interrupted: wakeup.wait(lambda: interrupted() or condition(), t))

    def trace(self, what: Span, start: float) -> None:
        if self._timeline is not None:
            self._timeline.add(what, start, time.perf_counter())


RoleLoop = Callable[[Worker, RoleContext], None]
"""A loop that drives a worker until the coordinator stops it."""


def run_async(worker: Worker, context: RoleContext) -> None:
    """Work whenever possible, sleep when there is nothing to do: the loop of `async`."""
    control = context.control
    while not control.stopped:
        control.beat(context.index)
        if context.save_due():
            context.save(worker)
        if worker.done:
            control.enter(context.index, DONE)
            context.sleep_until(lambda: False)
        elif not worker.work():
            context.sleep(worker.wait)


def run_lockstep_actor(worker: Worker, context: RoleContext) -> None:
    """Play a turn, then wait until every learner has trained: the actor's loop in `lockstep`.

    A checkpoint belongs to one turn: the learners save before they report that turn as trained, and
    the actor waits until the checkpoint is settled. Learners that die are restarted and then report
    the turn. The actor never waits longer than `BEAT` seconds at a time.
    """
    control, had_room = context.control, True
    while not control.stopped:
        control.beat(context.index)
        if not control.all_trained():
            _wait_for(context, control.all_trained)
        elif context.save_due():
            _save_in_lockstep(worker, context)
        elif worker.done:
            control.enter(context.index, DONE)
            context.sleep_until(lambda: False)
        elif worker.work():
            had_room = True
            control.end_turn(control.save_after)
        elif had_room:
            # The rings may be full after a restart: learners train in an empty turn.
            had_room = False
            control.end_turn(control.save_after)
        else:
            raise RemudaError("the rings are full and no learner can train; this is a bug")


def _save_in_lockstep(worker: Worker, context: RoleContext) -> None:
    control = context.control
    number = control.save
    # An empty turn, in which the learners only save.
    control.end_turn(number)
    while not (control.stopped or control.all_trained()):
        control.beat(context.index)
        _wait_for(context, control.all_trained)
    context.save(worker)
    while not control.stopped and control.settled < number:
        control.beat(context.index)
        _wait_for(context, lambda: control.settled >= number)


def _wait_for(context: RoleContext, condition: Callable[[], bool]) -> None:
    """Sleep until `condition` holds or the run stops; a requested checkpoint does not interrupt."""
    control = context.control
    wakeup = control.wakeups[context.index]
    context.sleep(lambda timeout, _: wakeup.wait(lambda: control.stopped or condition(), timeout))


def run_lockstep_learner(worker: Worker, context: RoleContext) -> None:
    """Do the training that is due after each turn, and report it: a learner in `lockstep`."""
    control, index = context.control, context.index
    saved = control.save_after

    def turn_ended() -> bool:
        return control.trained(index) != control.played

    while not control.stopped:
        control.beat(index)
        if not turn_ended():
            _wait_for(context, turn_ended)
            continue
        if not _train(worker, context):
            return  # stopped mid-turn: the coordinator expects no checkpoint of this turn
        if control.save_after != saved:
            saved = control.save_after
            context.save(worker)
        control.end_training(index)


def _train(worker: Worker, context: RoleContext) -> bool:
    """Do all training that is due; return False if the role must stop before the end."""
    while worker.work():
        context.control.beat(context.index)
        if context.control.stopped:
            return False
    return True


def restore(worker: Worker, checkpoints: Checkpoints) -> list[str]:
    """Restore a worker from its newest checkpoint parts; return the names of the parts found."""
    states = {part: checkpoints.newest(part) for part in worker.parts}
    saved = {part: state for part, state in states.items() if state is not None}
    for part, state in saved.items():
        with checkpoints.restoring(part):
            worker.restore(part, state)
    return list(saved)


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
    role_log = logging.getLogger(role.name)
    role_log.info("process %d starts", os.getpid())
    tell_compiling(lambda compiling: control.tell_compiling(hosting.index, compiling))
    try:
        with threads(hosting.threads[0]), parallel_parts.parts_at_once(hosting.threads[1]):
            seed_libraries(getattr(role, "seed", 0), role.name, hosting.starts)
            worker = role.build()
            if hosting.restore and restore(worker, hosting.checkpoints):
                role_log.info("resumes from the newest checkpoint")
            with contextlib.suppress(OSError):
                os.nice(hosting.nice)  # not earlier: others wait until this role is ready
            role_log.info("ready")
            context = RoleContext(hosting.index, control, hosting.checkpoints, hosting.timeline)
            control.enter(hosting.index, RUNNING)
            while not (control.may_go or control.stopped):
                control.beat(hosting.index)
                context.sleep_until(lambda: control.may_go)
            hosting.loop(worker, context)
            worker.finish()
        control.enter(hosting.index, DONE)
        role_log.info("finished")
    except RemudaError as error:
        role_log.error("%s", error)
        _fail(control, hosting, REFUSED if isinstance(error, CommandError) else EXCEPTION)
    except Exception as error:
        role_log.exception("ended by an exception")
        location = where_raised(error)
        if location:  # last, because the coordinator reads the role_log's last line
            role_log.error("%s", location)
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
