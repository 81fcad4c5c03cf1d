"""A learner: trains one policy on its own experience and publishes it."""

from __future__ import annotations

import logging
import math
import time

import numpy as np
import torch

from remuda.checkpoint.state import fitting
from remuda.config import PolicyConfig
from remuda.experience.replay import Batch, Replay
from remuda.policies.algorithms.dqn import DQN, Transitions
from remuda.publish.snapshot import Publisher
from remuda.scoreboard import Learn, Row
from remuda.timeline import Span, Timeline
from remuda.types import State

log = logging.getLogger(__name__)

FOREVER = 2**62
"""More steps than there will ever be."""


class Learner:
    """Trains a private network on one ring, and copies it out to be acted with.

    What it guarantees:

    1. It touches the experience, weights and optimizer of its own policy only.
    2. It never trains more than the replay ratio allows for the steps that have been collected.
    3. What it publishes is a copy: weights, exploration rate and version as one snapshot.
    4. An update that makes the loss or a weight other than finite is undone, and never published;
       after too many in a row it learns no more.
    """

    def __init__(
        self,
        policy: str,
        config: PolicyConfig,
        algorithm: DQN,
        replay: Replay,
        publisher: Publisher,
        row: Row,
        timeline: Timeline | None = None,
        saves_replay: bool = False,
    ) -> None:
        self.policy, self.config = policy, config
        self._algorithm, self._replay, self._publisher, self._row = (
            algorithm,
            replay,
            publisher,
            row,
        )
        self._timeline, self._saves_replay = timeline, saves_replay
        self._published_at = algorithm.updates
        self._good = algorithm.learned()
        self._bad_in_a_row = 0
        row[Learn.VERSION] = publisher.version

    @property
    def steps_needed(self) -> int:
        """Collected steps at which the next update is due."""
        fresh = self._replay.ring.lost + self.config.experience.learning_starts
        return max(self._steps_paid(self._algorithm.updates + 1), fresh)

    @property
    def halted(self) -> bool:
        """Whether it has stopped learning for good."""
        return self._bad_in_a_row >= self.config.max_nonfinite

    @property
    def epsilon(self) -> float:
        """The exploration rate for the steps collected so far: a straight line, then level."""
        exploration = self.config.exploration
        share = min(self._replay.ring.written / exploration.decay_steps, 1.0)
        return exploration.start + share * (exploration.end - exploration.start)

    def ready(self) -> bool:
        """Whether there is enough to train on; if not, its process is rung when there is."""
        return not self.halted and self._replay.ring.has(self.steps_needed)

    def update(self) -> None:
        """Sample, train once, and publish if it is time."""
        clock, row = time.perf_counter, self._row
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
        if not math.isfinite(loss) or not self._algorithm.is_finite():
            self._undo(loss)
            return
        self._bad_in_a_row = 0
        if self._algorithm.updates - self._published_at >= self.config.publish.every:
            self.publish()
            published = clock()
            row[Learn.SECONDS_PUBLISH] += published - updated
            if self._timeline is not None:
                self._timeline.add(Span.PUBLISH, updated, published)
        row[Learn.LOSS_SUM] += loss
        row[Learn.SAMPLES] += self.config.batch_size
        row[Learn.STALENESS_SUM] += self._publisher.version - batch.versions.mean()
        row[Learn.REDRAWN] = self._replay.redrawn
        row[Learn.UPDATES] = self._algorithm.updates
        self._consume()

    def _undo(self, loss: float) -> None:
        """Go back to the weights and the optimizer of the last publication.

        The random streams go on, so that the next batch is another one.
        """
        self._bad_in_a_row += 1
        self._algorithm.restore_learned(self._good)
        self._row[Learn.NONFINITE] += 1
        self._row[Learn.UPDATES] = self._algorithm.updates
        log.error(
            "policy %s: the loss was %s and a weight or it is not finite; back to update %d "
            "(%d in a row, of %d allowed)",
            self.policy,
            loss,
            self._algorithm.updates,
            self._bad_in_a_row,
            self.config.max_nonfinite,
        )
        if self.halted:
            log.error("policy %s stops learning; it goes on acting as it is", self.policy)
            self._row[Learn.HALTED] = 1
            self._consume()

    def _consume(self) -> None:
        """Tell an actor that waits for its learners how far this one is."""
        if self._replay.ring.may_wait:
            done = FOREVER if self.halted else self._steps_paid(self._algorithm.updates)
            self._replay.ring.consume(done)

    def state(self) -> State:
        """All that a successor needs to go on exactly here."""
        return {
            "algorithm": self._algorithm.state(),
            "replay": self._replay.state(),
            "published_at": self._published_at,
            "bad_in_a_row": self._bad_in_a_row,
            "counted": np.array(self._row),
            "ring": self._replay.ring.state() if self._saves_replay else None,
        }

    def restore(self, state: State) -> None:
        """Go on from what `state` returned; the ring, which outlives learners, is as it is.

        Raises:
            CheckpointError: it was saved by another network.
        """
        self._algorithm.restore(state["algorithm"])
        self._replay.restore(state["replay"])
        self._published_at = state["published_at"]
        self._bad_in_a_row = state["bad_in_a_row"]
        self._row[:] = fitting(state, "counted", self._row)
        self._row[Learn.VERSION] = self._publisher.version
        self._good = self._algorithm.learned()
        self._consume()

    def publish(self) -> None:
        """Copy the network out as the next version."""
        weights = self._algorithm.online.flat[0].detach().cpu().numpy()
        self._row[Learn.VERSION] = self._publisher.publish(
            weights, self._algorithm.updates, self.epsilon
        )
        self._published_at = self._algorithm.updates
        self._good = self._algorithm.learned()

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
