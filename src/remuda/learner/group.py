"""The learners of a process, served in turn as they become ready."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from remuda.config.hyperparameters import LiveHyperparameters
from remuda.learner.learner import Learner
from remuda.population.births.inheritance import LearnerBirths
from remuda.system.checkpoint.fitting import whole
from remuda.system.checkpoint.names import file_name
from remuda.system.memory.waiting import Wakeup
from remuda.types import State

log = logging.getLogger(__name__)


class LearnerGroup:
    """Several learners in one process, which share only its CPU time and one wake-up.

    The ready learner with the fewest updates relative to its priority is served next. A learner
    that was idle gets no extra updates for that time.
    """

    def __init__(
        self,
        learners: Sequence[Learner],
        wakeup: Wakeup,
        patience: float = 0.0,
        births: LearnerBirths | None = None,
        changes: LiveHyperparameters | None = None,
    ) -> None:
        """Set up learners; stacks wait up to `patience` seconds until all policies are ready."""
        self.learners = tuple(learners)
        policies = [policy for learner in self.learners for policy in learner.policies]
        # policy names by checkpoint part
        self._policies = {file_name(policy): policy for policy in policies}
        self.births = births or LearnerBirths(None, policies)
        self._changes, self._revision = changes, 0
        self._wakeup, self._patience = wakeup, patience
        # by learner: updates, each counted as 1 / priority
        self._served = [0.0] * len(self.learners)
        self._now = 0.0  # largest `_served` entry of a learner at the time it was served

    @property
    def done(self) -> bool:
        return False

    def work(self) -> bool:
        """Update the next ready learner, or continue an update; return False if none is ready."""
        policy = self.births.pending()
        if policy is None:
            return self._train()
        version = self._learner(policy).begin(policy, self.births.newborn(policy))
        self.births.confirm(policy, version)
        log.info("a newborn policy starts as %s, version %d", policy, version)
        return True

    def _train(self) -> bool:
        self._take_changes()
        served = self._served
        order: Sequence[int] = range(len(served))
        if len(served) > 1:
            order = sorted(order, key=lambda i: (not self.learners[i].unfinished, served[i]))
        for i in order:
            learner = self.learners[i]
            if learner.ready():
                if self._patience and len(learner.policies) > 1:
                    self._wakeup.wait(learner.all_ready, self._patience)
                learner.update()
                if not learner.unfinished:
                    self._now = max(self._now, served[i])
                    served[i] = self._now + 1.0 / learner.priority
                return True
        return False

    def _take_changes(self) -> None:
        found = self._changes.read(self._revision) if self._changes is not None else None
        if found is None:
            return
        self._revision, changed = found
        for policy in self._policies.values():
            if policy in changed:
                self._learner(policy).change(policy, changed[policy])
                log.info("policy %s: its hyperparameters change to %s", policy, changed[policy])

    def wait(self, timeout: float, interrupted: Callable[[], bool]) -> None:
        self._wakeup.wait(lambda: interrupted() or self._any_ready(), timeout)

    def finish(self) -> None:
        for learner in self.learners:
            while learner.unfinished:  # train on rollouts that were already taken from the queue
                learner.update()
            learner.publish()

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the checkpoint parts, one per policy; their names do not depend on the process."""
        return tuple(self._policies)

    def state(self, part: str) -> State:
        policy = self._policies[part]
        generation = self.births.generations[policy]
        return self._learner(policy).state(policy) | {"generation": generation}

    def restore(self, part: str, state: State) -> None:
        """Restore one policy's learner, unless the state belongs to a policy that it replaced."""
        policy = self._policies[part]
        if whole(state, "generation") == self.births.generations[policy]:
            self._learner(policy).restore(policy, state)

    def _learner(self, policy: str) -> Learner:
        return next(learner for learner in self.learners if policy in learner.policies)

    def _any_ready(self) -> bool:
        if self.births.pending() is not None:
            return True
        # Call `ready` of all learners, because each must request its wake-up.
        ready = [learner.ready() for learner in self.learners]
        return any(ready)
