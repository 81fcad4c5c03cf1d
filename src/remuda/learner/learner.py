"""A learner: trains one policy on its own experience and publishes it."""

from __future__ import annotations

import math
import time

import numpy as np
import torch

from remuda.config import PolicyConfig
from remuda.experience.replay import Batch, Replay
from remuda.policies.algorithms.dqn import DQN, Transitions
from remuda.publish.snapshot import Publisher
from remuda.scoreboard import Learn, Row


class Learner:
    """Trains a private network on one ring, and copies it out to be acted with.

    What it guarantees:

    1. It touches the experience, weights and optimizer of its own policy only.
    2. It never trains more than the replay ratio allows for the steps that have been collected.
    3. What it publishes is a copy: weights, exploration rate and version as one snapshot.
    """

    def __init__(
        self,
        policy: str,
        config: PolicyConfig,
        algorithm: DQN,
        replay: Replay,
        publisher: Publisher,
        row: Row,
    ) -> None:
        self.policy, self.config = policy, config
        self._algorithm, self._replay, self._publisher, self._row = (
            algorithm,
            replay,
            publisher,
            row,
        )
        self._published_at = algorithm.updates
        row[Learn.VERSION] = publisher.version

    @property
    def steps_needed(self) -> int:
        """Collected steps at which the next update is due."""
        return self._steps_paid(self._algorithm.updates + 1)

    @property
    def epsilon(self) -> float:
        """The exploration rate for the steps collected so far: a straight line, then level."""
        exploration = self.config.exploration
        share = min(self._replay.ring.written / exploration.decay_steps, 1.0)
        return exploration.start + share * (exploration.end - exploration.start)

    def ready(self) -> bool:
        """Whether there is enough to train on; if not, its process is rung when there is."""
        return self._replay.ring.has(self.steps_needed)

    def update(self) -> None:
        """Sample, train once, and publish if it is time."""
        clock, row = time.perf_counter, self._row
        start = clock()
        batch = self._replay.sample()
        transitions = self._to_device(batch)
        sampled = clock()
        loss = float(self._algorithm.update(transitions)[0])
        updated = clock()
        if self._algorithm.updates - self._published_at >= self.config.publish.every:
            self.publish()
        row[Learn.SECONDS_SAMPLE] += sampled - start
        row[Learn.SECONDS_UPDATE] += updated - sampled
        row[Learn.SECONDS_PUBLISH] += clock() - updated
        row[Learn.LOSS_SUM] += loss
        row[Learn.SAMPLES] += self.config.batch_size
        row[Learn.STALENESS_SUM] += self._publisher.version - batch.versions.mean()
        row[Learn.REDRAWN] = self._replay.redrawn
        row[Learn.UPDATES] = self._algorithm.updates
        if self._replay.ring.may_wait:
            self._replay.ring.consume(self._steps_paid(self._algorithm.updates))

    def publish(self) -> None:
        """Copy the network out as the next version."""
        weights = self._algorithm.online.flat[0].detach().cpu().numpy()
        self._row[Learn.VERSION] = self._publisher.publish(
            weights, self._algorithm.updates, self.epsilon
        )
        self._published_at = self._algorithm.updates

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
