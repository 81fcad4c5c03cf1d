"""The interface of learners, and the bookkeeping for each policy in training."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch

from remuda.config import PolicyConfig
from remuda.config.hyperparameters import with_values
from remuda.policies.algorithms.algorithm import Algorithm
from remuda.population.members.births import Newborn
from remuda.publish.training_state import TrainingState
from remuda.publish.weight_store import WeightPublisher
from remuda.system.checkpoint.fitting import COUNT, Range, branch, fitting, whole
from remuda.system.scoreboard import LEARN_COUNTS, Learn, Row, count_on
from remuda.system.timeline import Span, Timeline
from remuda.types import State

log = logging.getLogger(__name__)

COUNTED = [Learn.SAMPLES, Learn.TRAINED]  # counters that are restored when an update is undone


class Learner(ABC):
    """A trainer of one policy, or of a stack of policies with equal specifications.

    1. A policy's updates do not depend on other policies, except on the experience of its
       `experience.group`.
    2. Weights, buffers, exploration rate and version are published as one snapshot.
    3. An update with a loss or weights that are not finite is undone and never published. After
       `max_nonfinite` such updates in a row the policy stops learning.
    """

    def __init__(
        self,
        trainers: Sequence[PolicyTrainer],
        timeline: Timeline | None,
        saves_experience: bool,
        plays: Callable[[str], bool],
    ) -> None:
        self.trainers = tuple(trainers)
        self.policies = tuple(trainer.name for trainer in trainers)
        # number of updates relative to the other learners in its process
        self.priority = trainers[0].config.priority
        self._timeline, self._saves_experience = timeline, saves_experience
        self._plays = plays  # whether a policy is alive

    def ready(self) -> bool:
        """Return whether any policy is ready for an update; the others request a wake-up."""
        return bool(self._ready().any())

    def all_ready(self) -> bool:
        """Return whether all policies that still learn are ready; the others request a wake-up."""
        return self.unfinished or not (~self._away() & ~self._ready()).any()

    def _away(self) -> np.ndarray:
        """Return which policies have stopped learning or are not alive: [K]."""
        return np.array([s.halted or not self._plays(s.name) for s in self.trainers])

    def _ready(self) -> np.ndarray:
        """Return which policies are ready, [K]; the others request a wake-up."""
        return np.array([self._is_ready(k) for k in range(len(self.trainers))])

    @abstractmethod
    def _is_ready(self, k: int) -> bool:
        """Return whether an update of policy k is due; if not, request a wake-up."""

    @abstractmethod
    def update(self) -> None:
        """Train each ready policy once and publish it if due; a long update takes several calls."""

    @property
    def unfinished(self) -> bool:
        """Return whether the next call continues an update."""
        return False

    def publish(self) -> None:
        for k in range(len(self.trainers)):
            self.publish_policy(k)

    @abstractmethod
    def publish_policy(self, k: int) -> None:
        """Publish a new version of policy k."""

    def _count_time(
        self, span: Span, seconds: Learn, members: Sequence[int], start: float
    ) -> float:
        """Record the time since `start`, counted in equal shares; return the time now."""
        now = time.perf_counter()
        for k in members:
            self.trainers[k].row[seconds] += (now - start) / len(members)
        if self._timeline is not None:
            self._timeline.add(span, start, now)
        return now

    @abstractmethod
    def begin(self, policy: str, newborn: Newborn) -> int:
        """Replace a policy by a new one, which trains on new steps only; return its version."""

    def change(self, policy: str, values: Mapping[str, float]) -> None:
        self.trainers[self.policies.index(policy)].change(values)

    @abstractmethod
    def state(self, policy: str) -> State:
        """Return the state that a restarted learner needs to continue one policy exactly."""

    @abstractmethod
    def restore(self, policy: str, state: State) -> None:
        """Restore a state, except experience; raise CheckpointError if the network differs."""


class PolicyTrainer:
    """The bookkeeping for one policy: publications, counters, and undoing non-finite updates."""

    def __init__(
        self,
        name: str,
        config: PolicyConfig,
        algorithm: Algorithm,
        index: int,
        publisher: WeightPublisher,
        row: Row,
    ) -> None:
        self.name, self.config, self.row, self.index = name, config, row, index
        self._algorithm, self._publisher = algorithm, publisher
        self._published_at = algorithm.updates[index]
        self._remember()
        self._bad_in_a_row = 0
        row[Learn.VERSION] = publisher.version
        self._count_hyperparameters()
        row[Learn.RESTORED] += 2.0 - row[Learn.RESTORED] % 2.0  # even: no rewrite in progress

    @property
    def updates(self) -> int:
        return self._algorithm.updates[self.index]

    @property
    def version(self) -> int:
        return self._publisher.version

    @property
    def halted(self) -> bool:
        return self._bad_in_a_row >= self.config.max_nonfinite

    def accept(self, loss: float) -> bool:
        """Return whether an update was finite; if not, undo it.

        Undoing restores weights, optimizer and sample counters of the last publication. Random
        states are not restored, so that the next batch differs.
        """
        self.row[Learn.UPDATES] = self.updates
        self._count_hyperparameters()
        if math.isfinite(loss) and self._algorithm.is_finite(self.index, self._good["online"]):
            self._bad_in_a_row = 0
            self.row[Learn.ACCEPTED] += 1
            return True
        self._bad_in_a_row += 1
        self._algorithm.restore_learned(self.index, self._good)
        self.row[COUNTED] = self._good_counts
        self.row[Learn.NONFINITE] += 1
        self.row[Learn.UPDATES] = self.updates
        log.error(
            "policy %s: the loss (%s) or a weight is not finite; restored update %d "
            "(non-finite updates in a row: %d; learning stops at %d)",
            self.name,
            loss,
            self.updates,
            self._bad_in_a_row,
            self.config.max_nonfinite,
        )
        if self.halted:
            log.error("policy %s stops learning; it keeps acting with its last weights", self.name)
            self.row[Learn.HALTED] = 1
        return False

    def add(self, word: Learn, value: float) -> None:
        """Add to a sum over updates, unless the value is not finite."""
        if math.isfinite(value):
            self.row[word] += value

    def _count_hyperparameters(self) -> None:
        self.row[Learn.LEARNING_RATE] = self._algorithm.optimizer.learning_rates[self.index]
        self.row[Learn.ENTROPY_COST] = self.config.ppo.entropy_cost

    def count_staleness(self, versions: np.ndarray) -> None:
        """Add the minimum, mean and maximum staleness of a batch with these `versions`."""
        if not len(versions):
            return
        lag, row = self.version - versions, self.row
        low, high = lag.min(), lag.max()
        row[Learn.STALENESS_SUM] += lag.mean()
        row[Learn.STALENESS_LOW_SUM] += low
        row[Learn.STALENESS_HIGH_SUM] += high
        row[Learn.STALENESS_MAX] = max(row[Learn.STALENESS_MAX], high)

    def begin(self, newborn: Newborn) -> None:
        self.config = with_values(self.config, newborn.hyperparameters)
        weights = torch.from_numpy(newborn.weights)
        self._algorithm.begin(self.index, weights, self.config, newborn.training)
        self._bad_in_a_row = 0
        self.row[Learn.HALTED] = 0
        self._count_hyperparameters()

    def change(self, values: Mapping[str, float]) -> None:
        self.config = with_values(self.config, values)
        self._algorithm.configure(self.index, self.config)

    def is_due(self) -> bool:
        return self.updates - self._published_at >= self.config.publish.every

    def publish(self, epsilon: float, numbers: Mapping[str, float] | None = None) -> None:
        """Publish the network; `numbers` are further entries of the training state."""
        self._published_at = self.updates
        self._remember()
        training: TrainingState | None = None
        if self._publisher.training is not None:
            training = self._algorithm.training(self._good)
            training.numbers.update(numbers or {})
        self.row[Learn.VERSION] = self._publisher.publish(
            self._algorithm.weights(self.index), self.updates, epsilon, training
        )

    def state(self) -> State:
        # Undoing updates restores `good`, which equals the current state right after a publication.
        just_published = self._published_at == self.updates
        good = None if just_published else {"learned": self._good, "counts": self._good_counts}
        return {
            "algorithm": self._algorithm.state(self.index),
            "good": good,
            "published_at": self._published_at,
            "bad_in_a_row": self._bad_in_a_row,
            "counted": np.array(self.row),
        }

    def restore(self, state: State) -> None:
        self._algorithm.restore(self.index, branch(state, "algorithm"))
        self._published_at = whole(state, "published_at", Range(0, self.updates))
        self._bad_in_a_row = whole(state, "bad_in_a_row")
        count_on(self.row, fitting(state, "counted", self.row, COUNT, LEARN_COUNTS))
        self.row[Learn.VERSION] = self.version
        self._count_hyperparameters()
        good = state.get("good")
        if good is None:
            self._remember()
        else:  # there were updates after the last publication
            current = self._algorithm.learned(self.index)
            good = branch(state, "good")
            self._algorithm.restore_learned(self.index, branch(good, "learned"))
            self._good = self._algorithm.learned(self.index)
            self._algorithm.restore_learned(self.index, current)
            self._good_counts = fitting(good, "counts", self.row[COUNTED], COUNT)

    def _remember(self) -> None:
        self._good = self._algorithm.learned(self.index)
        self._good_counts = self.row[COUNTED]  # a copy


def runs(ready: np.ndarray, width: int) -> Iterator[tuple[int, int]]:
    """Yield stretches of ready policies, of at most `width` each, as (first, end)."""
    first = None
    for k, is_ready in enumerate([*ready, False]):
        if first is not None and (not is_ready or k - first == width):
            yield first, k
            first = None
        if is_ready and first is None:
            first = k
