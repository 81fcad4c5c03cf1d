"""Everything in one process: the schedule `sequential`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from remuda.errors import RemudaError
from remuda.types import Role, Worker


class InlineRuntime:
    """Plays a turn, then trains what is due, and repeats: the plain loop to compare with."""

    def __init__(self, actor: Role, learners: Sequence[Role]) -> None:
        self._actor_role, self._learner_roles = actor, tuple(learners)
        self._actor: Worker | None = None
        self._learners: list[Worker] = []

    def start(self, stopped: Callable[[], bool]) -> None:  # noqa: ARG002
        """Build every role."""
        self._actor = self._actor_role.build()
        self._learners = [role.build() for role in self._learner_roles]

    def run_for(self, seconds: float) -> bool:
        """Work for about so long; True when everything is played."""
        actor = self._actor
        if actor is None:
            raise RuntimeError("start the runtime first")
        end = time.monotonic() + seconds
        while not actor.done and time.monotonic() < end:
            played = actor.work()
            trained = False
            for learner in self._learners:
                while learner.work():
                    trained = True
            if not played and not trained and not actor.done:
                raise RemudaError("neither the actor nor a learner can go on; this is a fault")
        return actor.done

    def stop(self) -> None:
        """Let every role finish."""
        for worker in (self._actor, *self._learners):
            if worker is not None:
                worker.finish()
