"""The runtime of `async` and `lockstep`: each role in a separate process, restarted if it dies."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Collection, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from remuda.config import SupervisionConfig
from remuda.errors import CannotStartError, RemudaError, RoleDiedError, UnguardedScriptError
from remuda.runtime.child import AwakeClock, Child, RoleSetup, Silence, last_line
from remuda.runtime.control import DONE, FAILED, RUNNING, STARTING, Control
from remuda.runtime.host import Hosting, host
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.compiling import Progress
from remuda.system.memory.lifeline import Lifeline
from remuda.system.processes import client as forkserver
from remuda.system.processes.child import EXCEPTION, REFUSED, UNGUARDED, script_name
from remuda.system.processes.process import UNKNOWN, Process
from remuda.types import Role, RoleStatus, Runtime

log = logging.getLogger(__name__)

STATES = {STARTING: "starting", RUNNING: "running", DONE: "done", FAILED: "failed"}
GLANCE = 0.005  # seconds between two checks of roles that are saving
ENDING = 1.0  # seconds that a process has to exit after an exception, before it is killed
ATTEMPTS = 3  # starts that may be lost with the fork server before a lost start counts as a death


class ProcessRuntime(Runtime):
    """A runtime that starts, watches, restarts and stops one process per role.

    1. Processes are forked from a server that never touched a GPU, or spawned, and receive shared
       memory. A start never waits for the new process, which may die at any instant.
    2. No child outlives the coordinator, even if a signal kills the coordinator.
    3. A child that exits, raises, is killed, or is silent for too long is reported with the cause
       and its log. It restarts after a pause from its last good state; the others continue. A role
       whose first process fails is not restarted. Time in which this process was stopped, or in
       which a role or its workers got no processor time, does not count as silence.
    4. More deaths of one role than the budget allows end the run.
    5. `stop` leaves no child behind: a child that does not finish within its limit is killed.
    """

    def __init__(
        self,
        setups: Sequence[RoleSetup],
        checkpoints: Checkpoints,
        logs: Path,
        supervision: SupervisionConfig,
        *,
        num_actors: int = 1,
        threads: tuple[int, int] = (1, 1),
        nice: Sequence[int],
        start_limit: float,
        stop_limit: float,
        write_limit: float,
        resumed: bool = False,
        control: Control | None = None,
        here: Collection[int] | None = None,
        bridge: RoleSetup | None = None,
    ) -> None:
        self._threads = threads
        self._num_actors = num_actors  # actors come first, then learners
        self._setups = (*setups, *([bridge] if bridge is not None else []))
        self.control = control or Control(tuple(setup.wakeup for setup in setups))
        self._logs, self._nice, self._resumed = logs, (*nice, 0), resumed
        self._checkpoints, self._supervision = checkpoints, supervision
        here = range(len(setups)) if here is None else sorted(here)
        self.children = [self._child(index) for index in here]
        self.bridge: Child | None = None
        if bridge is not None:
            self.bridge = self._child(len(setups))
            self.children.append(self.bridge)
        # seconds that a child may take to start, or to compile (`run.start_limit`)
        self.start_limit = start_limit
        self.stop_limit, self._write_limit = stop_limit, write_limit
        self._lifeline = Lifeline()
        self.clock = AwakeClock()
        self._news: list[str] = []
        self._fatal: RemudaError | None = None

    def _child(self, index: int, was_ready: bool = False) -> Child:
        setup = self._setups[index]
        return Child(index, setup, self._logs / f"{setup.role.name}.log", was_ready=was_ready)

    @property
    def roles(self) -> tuple[Role, ...]:
        return tuple(child.setup.role for child in self.children)

    @property
    def pids(self) -> dict[str, int]:
        processes = {c.name: c.process for c in self.children if c.process is not None}
        return {name: pid for name, each in processes.items() if (pid := each.pid) is not None}

    def start(self, stopped: Callable[[], bool], ready: Callable[[], None] = lambda: None) -> None:
        """Spawn every role, and let them work once all are ready."""
        compiling = Progress(self._news.append)
        self.spawn()
        while not stopped():
            if self.is_ready:
                ready()
                self.go()
                return
            self.run_for(0.02)
            compiling.see(self.compiled)

    def spawn(self) -> None:
        """Start every role, without waiting."""
        for child in self.children:
            self.start_child(child)

    @property
    def here(self) -> list[int]:
        return [child.index for child in self.children if child is not self.bridge]

    def move(self, here: Collection[int]) -> None:
        """Run the roles `here` on this node, and end all others at once.

        A role that arrives was ready on another node, so its first failure does not end the run.
        """
        for child in self.children.copy():
            if child is not self.bridge and child.index not in here:
                self.children.remove(child)
                if child.process is not None:
                    child.process.kill()
                    child.process.join(self.stop_limit)
                    child.process.close()
        known = {child.index for child in self.children}
        for index in sorted(set(here) - known):
            child = self._child(index, was_ready=True)
            self.children.insert(index if self.bridge is None else -1, child)
            self.start_child(child)

    @property
    def is_ready(self) -> bool:
        return all(self.control.state(c.index) in (RUNNING, DONE) for c in self.children)

    @property
    def compiled(self) -> int:
        return sum(child.compiled(self.control) for child in self.children)

    def go(self) -> None:
        for child in self.children:  # before any work can fail
            child.was_ready = True
        self.control.go()

    def run_for(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while True:
            self.watch(end - time.monotonic())
            if self._fatal:
                raise self._fatal
            if self.is_played:
                return True
            if time.monotonic() >= end:
                return False

    @property
    def is_played(self) -> bool:
        actors = [child.index for child in self.children if child.index < self._num_actors]
        return all(self._is(actor, DONE) for actor in actors)

    def want_save(self, number: int) -> None:
        """Request every role's part of a checkpoint, before `save` waits for them."""
        self.control.want_save(number)

    def save(self, number: int) -> set[str]:
        control = self.control
        saving = [(c, c.process) for c in self.children if not self._is(c.index, STARTING)]
        saving = [(c, process) for c, process in saving if process is not None]
        control.want_save(number)
        limit = time.monotonic() + self._write_limit
        while time.monotonic() < limit:
            if all(
                abs(control.saved(c.index)) == number or c.process is not process
                for c, process in saving
            ):
                break
            self.watch(GLANCE)
        written = [child for child, _ in saving if control.saved(child.index) == number]
        return {part for child in written for part in child.setup.role.parts}

    def settle(self, number: int) -> None:
        self.control.settle(number)

    def status(self) -> list[RoleStatus]:
        return [
            RoleStatus(
                name=child.name,
                pid=child.process.pid if child.process is not None else None,
                state=(
                    STATES[self.control.state(child.index)]
                    if child.process is not None
                    else "waiting to restart"
                ),
                heartbeat_age=time.monotonic() - self.control.heartbeat(child.index),
                restarts=child.restarts,
                problem=child.problem,
                log=str(child.log),
                processor=child.processor.share,
            )
            for child in self.children
        ]

    def news(self) -> list[str]:
        news = self._news.copy()
        self._news.clear()
        return news

    def stop(self) -> None:
        """Stop all roles, wait, and kill those that do not finish or have not started yet."""
        self.finish()
        if self.bridge is not None:
            self.control.close()
            self._end([self.bridge])
        self._lifeline.close()

    def finish(self) -> None:
        """Stop all roles except the bridge, which still sends the last data to other nodes."""
        self.control.stop()
        self._end([child for child in self.children if child is not self.bridge])

    def _end(self, children: Sequence[Child]) -> None:
        for child in children:
            if child.process is not None and self._is(child.index, STARTING):
                child.process.kill()  # it has done nothing since its last saved state
        limit = time.monotonic() + self.stop_limit
        for child in children:
            process, child.process, child.due = child.process, None, 0.0
            if process is None:
                continue
            if not process.join(max(limit - time.monotonic(), 0.0)):
                log.warning("%s did not stop within %.0f s: killed", child.name, self.stop_limit)
                process.kill()
                process.join(self.stop_limit)
            process.close()

    def _is(self, index: int, state: int) -> bool:
        return self.control.state(index) == state

    def start_child(self, child: Child) -> None:
        child.due = 0.0
        child.reset(self.control)
        is_actor, resumed = child.index < self._num_actors, self._resumed
        hosting = Hosting(
            index=child.index,
            nice=self._nice[child.index],
            loop=child.setup.loop,
            checkpoints=self._checkpoints,
            # A learner always resumes from its last state. An actor's saved state is only for a
            # resumed run; within a run, the rings are newer.
            restore=resumed and not child.was_ready if is_actor else resumed or child.was_ready,
            timeline=child.setup.timeline,
            starts=child.restarts,
            threads=(1, 1) if is_actor else self._threads,
        )
        child.silence = Silence()
        try:
            child.process = forkserver.start(
                host,
                (child.setup.role, self.control, hosting),
                name=child.name,
                lifeline=self._lifeline,
                log=str(child.log),
            )
        except OSError as error:
            self._restart(child, not_started(error.strerror or str(error)), time.monotonic())

    def watch(self, seconds: float) -> None:
        """Sleep until a child ends, or for `seconds`; then record deaths and restart children."""
        alive = [c.process.sentinel for c in self.children if c.process is not None]
        due = [c.due for c in self.children if c.process is None and c.due]
        now = time.monotonic()
        seconds = max(min([seconds, *(when - now for when in due)]), 0.0)
        if alive:
            wait(alive, seconds)
        else:
            time.sleep(seconds)
        now, passed = time.monotonic(), self.clock.passed()
        for child in self.children:
            if child.process is None:
                if child.due and now >= child.due:
                    self.start_child(child)
                continue
            if self._is(child.index, RUNNING):
                child.was_ready, child.lost = True, 0
                child.measure()
            problem = self._problem(child, child.process, passed)
            if problem:
                self._restart(child, problem, now)
            elif child.process.was_lost:
                self._start_again(child, child.process)

    def _problem(self, child: Child, process: Process, passed: float) -> str:
        code = process.exitcode
        if code is not None:
            return self._cause(child, process, code)
        silence = child.hear(self.control, passed, process.pid)
        limit, key = self._supervision.limit_for(child.name)
        if self._is(child.index, FAILED):
            if silence <= ENDING:
                return ""
            problem = f"ended by an exception: {last_line(child.log)}"
        elif self._is(child.index, STARTING) or child.is_compiling(self.control):
            if silence <= self.start_limit:
                return ""
            if process.pid is None:
                forkserver.give_up()  # the server does not answer: spawn instead
            problem = f"did not start within {self.start_limit:.0f} s (run.start_limit)"
        elif silence > limit:
            problem = f"gave no sign of life for {limit:g} s (supervision.{key}) and was killed"
        else:
            return ""
        process.kill()
        if not process.join(0.5) or process.was_lost:
            return ""  # still alive in the kernel; a successor must wait for its end
        return problem

    def _cause(self, child: Child, process: Process, code: int) -> str:
        """Return why a process ended; empty if it never started and must be started again."""
        if process.failure:
            return not_started(process.failure)
        if process.was_lost and child.lost < ATTEMPTS:
            return ""
        if code == REFUSED:
            return f"{NO_RESTART}: {last_line(child.log)}"
        if code == EXCEPTION or self._is(child.index, FAILED):
            return f"ended by an exception: {last_line(child.log)}"
        if code == UNGUARDED:
            return NO_GUARD
        if code == UNKNOWN:
            return "ended for an unknown reason, since the fork server ended too"
        if code < 0:
            return f"was killed by {signal_name(-code)}"
        return f"ended with exit code {code}"

    def _start_again(self, child: Child, process: Process) -> None:
        log.warning("the fork server died before %s started; the role is started again", child.name)
        process.close()
        child.process, child.lost = None, child.lost + 1
        self.start_child(child)

    def _restart(self, child: Child, problem: str, now: float) -> None:
        """Record a death; schedule the restart, or set the error that ends the run."""
        if child.process is not None:
            child.process.close()
            child.setup.role.on_process_death()
        child.process, child.problem, child.due = None, problem, 0.0
        child.reset(self.control)
        death = f"the process {child.name} {problem}"
        if problem == NO_GUARD:
            self._fatal = UnguardedScriptError(script_name())
            return
        if problem.startswith(NOT_STARTED) and not child.was_ready:
            self._fatal = CannotStartError(death)
            return
        if not child.was_ready or problem.startswith(NO_RESTART):
            never = "" if child.was_ready else "; it never got ready"
            self._fatal = RoleDiedError(f"{death}{never}. Its log is {child.log}")
            return
        limits = self._supervision
        while child.deaths and now - child.deaths[0] > limits.window:
            child.deaths.popleft()
        if len(child.deaths) >= limits.restarts:
            self._fatal = RoleDiedError(
                f"{death}; with {len(child.deaths)} restarts in the last {limits.window:.0f} s "
                "its budget is spent (supervision.restarts), and the run stops here. "
                f"Its log is {child.log}"
            )
            return
        pause = min(limits.backoff * 2 ** len(child.deaths), limits.max_backoff)
        child.deaths.append(now)
        child.restarts += 1
        child.due = now + pause
        self._news.append(f"{death}; it is restarted in {pause:.2g} s. Its log is {child.log}")
        log.warning("%s", self._news[-1])


# Starts of a role's problem: the system refused its process; a restart would fail again; or its
# process imports a script that starts a run at import.
NOT_STARTED = "could not be started: "
NO_RESTART = "failed in a way that a restart would repeat"
NO_GUARD = "started another run"


def not_started(why: str) -> str:
    """Describe a role whose process could not be started."""
    return f"{NOT_STARTED}{why[:1].lower()}{why[1:]}"


def signal_name(number: int) -> str:
    """Name a signal; most real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
