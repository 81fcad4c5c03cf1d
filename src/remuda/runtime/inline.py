"""All roles in one process: the schedule `sequential`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from remuda.errors import RemudaError
from remuda.runtime.host import restore, threads
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.timeline import Span, Timeline
from remuda.system.user_errors import naming_user_code, where_raised
from remuda.types import Role, RoleStatus, Runtime, Worker

log = logging.getLogger(__name__)


class InlineRuntime(Runtime):
    """A runtime that alternates between a turn and the updates that are due."""

    def __init__(
        self,
        actor: Role,
        learners: Sequence[Role],
        checkpoints: Checkpoints,
        *,
        resumed: bool = False,
        timeline: Timeline | None = None,
    ) -> None:
        self.roles = (actor, *learners)
        self._checkpoints, self._resumed, self._timeline = checkpoints, resumed, timeline
        self._workers: tuple[Worker, ...] = ()
        self._stack = ExitStack()

    @naming_user_code(log)
    def start(
        self,
        stopped: Callable[[], bool],  # noqa: ARG002
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._stack.enter_context(threads(1))
        for role in self.roles:
            self._workers = (*self._workers, role.build())
        if self._resumed:
            for worker in self._workers:
                restore(worker, self._checkpoints)
        ready()

    @naming_user_code(log)
    def run_for(self, seconds: float) -> bool:
        actor, *learners = self._workers
        end = time.monotonic() + seconds
        idle = False
        while not actor.done and time.monotonic() < end:
            progressed = actor.work()
            for learner in learners:
                while learner.work():
                    progressed = True
            # A learner may free ring space of a retired policy without training: raise only if two
            # rounds in a row make no progress.
            if idle and not progressed and not actor.done:
                raise RemudaError("neither the actor nor a learner can continue; this is a bug")
            idle = not progressed
        return actor.done

    @naming_user_code(log)
    def save(self, number: int) -> set[str]:
        start = time.perf_counter()
        parts = set()
        for worker in self._workers:
            for part in worker.parts:
                self._checkpoints.write(number, part, worker.state(part))
                parts.add(part)
        if self._timeline is not None:
            self._timeline.add(Span.CHECKPOINT, start, time.perf_counter())
        return parts

    def status(self) -> list[RoleStatus]:
        return [RoleStatus("main", os.getpid(), "running", 0.0, 0)]

    @naming_user_code(log)
    def stop(self) -> None:
        """Finish every role, the actor first, even if one raises."""
        workers, self._workers = self._workers, ()
        with self._stack:
            try:
                for actor in workers[:1]:
                    actor.finish()  # it only releases its environment
            except Exception as error:  # the user's environment may raise anything
                cause = where_raised(error) or f"{type(error).__name__}: {error}"
                log.exception("the environment could not be closed: %s", cause)
            with ExitStack() as learners:  # all learners finish before an exception is raised
                for worker in reversed(workers[1:]):
                    learners.callback(worker.finish)
