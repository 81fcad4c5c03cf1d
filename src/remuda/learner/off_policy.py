"""A learner that trains one policy on samples of its replay, by DQN or IQN."""

from __future__ import annotations

import math
import time

import numpy as np
import torch

from remuda.experience.experience import NEVER
from remuda.experience.replay import Batch, Replay
from remuda.learner.learner import Student
from remuda.policies.algorithms.dqn import DQN, Transitions
from remuda.scoreboard import Learn
from remuda.timeline import Span, Timeline
from remuda.types import State


class OffPolicyLearner:
    """Trains a private network on one ring, and copies it out to be acted with.

    It never trains more than the replay ratio allows for the steps that have been collected.
    """

    def __init__(
        self,
        student: Student,
        algorithm: DQN,
        replay: Replay,
        timeline: Timeline | None = None,
        saves_experience: bool = False,
    ) -> None:
        self.policies = (student.name,)
        self.config = student.config
        self._student, self._algorithm, self._replay = student, algorithm, replay
        self._timeline, self._saves_experience = timeline, saves_experience

    @property
    def steps_needed(self) -> int:
        """Collected steps at which the next update is due."""
        fresh = self._replay.experience.lost + self.config.experience.learning_starts
        return max(self._steps_paid(self._student.updates + 1), fresh)

    @property
    def epsilon(self) -> float:
        """The exploration rate for the steps collected so far: a straight line, then level."""
        exploration = self.config.exploration
        share = min(self._replay.experience.written / exploration.decay_steps, 1.0)
        return exploration.start + share * (exploration.end - exploration.start)

    def ready(self) -> bool:
        """Whether there is enough to train on; if not, its process is rung when there is."""
        return not self._student.halted and self._replay.experience.has(self.steps_needed)

    def update(self) -> None:
        """Sample, train once, and publish if it is time."""
        clock, student = time.perf_counter, self._student
        row = student.row
        start = clock()
        batch = self._replay.sample()
        transitions = self._to_device(batch)
        sampled = clock()
        loss = float(self._algorithm.update(transitions)[0])
        updated = clock()
        row[Learn.SECONDS_SAMPLE] += sampled - start
        row[Learn.SECONDS_UPDATE] += updated - sampled
        if self._timeline is not None:
            self._timeline.add(Span.SAMPLE, start, sampled)
            self._timeline.add(Span.UPDATE, sampled, updated)
        if not student.accept(loss):
            self._consume()
            return
        if student.is_due():
            self.publish()
            published = clock()
            row[Learn.SECONDS_PUBLISH] += published - updated
            if self._timeline is not None:
                self._timeline.add(Span.PUBLISH, updated, published)
        row[Learn.LOSS_SUM] += loss
        row[Learn.SAMPLES] += self.config.batch_size
        staleness = student.version - batch.versions
        row[Learn.STALENESS_SUM] += staleness.mean()
        row[Learn.STALENESS_MAX] = max(row[Learn.STALENESS_MAX], staleness.max())
        row[Learn.REDRAWN] = self._replay.redrawn
        self._consume()

    def publish(self) -> None:
        """Copy the network out as the next version."""
        self._student.publish(self.epsilon)

    def state(self, policy: str) -> State:  # noqa: ARG002
        """All that a successor needs to go on exactly here."""
        return self._student.state() | {
            "replay": self._replay.state(),
            "experience": self._replay.experience.state() if self._saves_experience else None,
        }

    def restore(self, policy: str, state: State) -> None:  # noqa: ARG002
        """Go on from what `state` returned; the ring, which outlives learners, is as it is."""
        self._student.restore(state)
        self._replay.restore(state["replay"])
        self._consume()

    def _consume(self) -> None:
        """Tell an actor that waits for its learners how far this one is."""
        if self._replay.experience.may_wait:
            student = self._student
            self._replay.experience.consume(
                NEVER if student.halted else self._steps_paid(student.updates)
            )

    def _steps_paid(self, updates: int) -> int:
        """Collected steps that so many updates are due for."""
        experience = self.config.experience
        per_update = (
            self.config.batch_size / experience.replay_ratio if experience.replay_ratio else 0.0
        )
        return experience.learning_starts + math.ceil((updates - 1) * per_update)

    def _to_device(self, batch: Batch) -> Transitions:
        def move(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).unsqueeze(0).to(self._algorithm.device)

        return Transitions(
            s_tm1=move(batch.s_tm1),
            a_tm1=move(batch.a_tm1),
            r_t=move(batch.r_t) * self.config.reward_scale,
            discount_t=move(batch.discount_t),
            s_t=move(batch.s_t),
        )
