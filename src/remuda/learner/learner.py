"""What learners of every kind have in common: the book they keep of each policy they train."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import torch

from remuda.checkpoint.fitting import COUNT, Range, branch, fitting, whole
from remuda.config import PolicyConfig
from remuda.hyperparameters import with_values
from remuda.policies.algorithms.algorithm import Algorithm
from remuda.population.learner_births import Newborn
from remuda.publish.training_state import TrainingState
from remuda.publish.weight_store import WeightPublisher
from remuda.scoreboard import Learn, Row, count_on, fitting_learned
from remuda.types import State

log = logging.getLogger(__name__)

COUNTED = [Learn.SAMPLES, Learn.TRAINED]
"""What was trained on to come to a policy's weights: it goes back with them."""


class Learner(Protocol):
    """Trains one policy, or several of one specification as a stack.

    What every learner guarantees:

    1. It touches the experience, weights and optimizer of its own policies only, and what it does
       to one depends on nothing that belongs to another.
    2. What it publishes is a copy: weights, buffers, exploration rate and version as one snapshot.
    3. An update that makes a policy's loss or a weight other than finite is undone, and never
       published; after too many in a row that policy learns no more.
    """

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of its policies."""

    @property
    def priority(self) -> float:
        """How many updates it is given to each one of a learner of priority 1."""

    def ready(self) -> bool:
        """Whether any policy can be trained; if not, its process is rung when one can."""

    def all_ready(self) -> bool:
        """Whether every policy that still learns can be; if not, its process is rung likewise."""

    def update(self) -> None:
        """Train once the policies that can be, and publish those whose time it is.

        Where that takes long it does a piece of it, and `unfinished` is true until all is done.
        """

    @property
    def unfinished(self) -> bool:
        """Whether an update goes on with the next call."""

    def publish(self) -> None:
        """Copy every policy out as its next version."""

    def begin(self, policy: str, newborn: Newborn) -> int:
        """Train a newborn in a policy's place from now on; returns the version it begins as.

        What was collected before is not its own.
        """

    def change(self, policy: str, values: Mapping[str, float]) -> None:
        """Train a policy with other hyperparameters from its next update on."""

    def state(self, policy: str) -> State:
        """All that a successor needs to go on exactly here with one policy."""

    def restore(self, policy: str, state: State) -> None:
        """Go on from what `state` returned; the ring, which outlives learners, is as it is.

        Raises:
            CheckpointError: it was saved by another network.
        """


class PolicyTrainer:
    """One policy under training: what was published of it, and how often its updates failed."""

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
        row[Learn.RESTORED] += 2.0 - row[Learn.RESTORED] % 2.0  # even: none counts here but this

    @property
    def updates(self) -> int:
        """Updates behind its weights."""
        return self._algorithm.updates[self.index]

    @property
    def version(self) -> int:
        """The newest that was published."""
        return self._publisher.version

    @property
    def halted(self) -> bool:
        """Whether it has stopped learning for good."""
        return self._bad_in_a_row >= self.config.max_nonfinite

    def accept(self, loss: float) -> bool:
        """Whether an update was sound; if not, it is undone.

        It goes back to the weights and the optimizer of the last publication, and what it trained
        since does not count. The random streams go on, so that the next batch is another one.
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
            "policy %s: the loss was %s and a weight or it is not finite; back to update %d "
            "(%d in a row, of %d allowed)",
            self.name,
            loss,
            self.updates,
            self._bad_in_a_row,
            self.config.max_nonfinite,
        )
        if self.halted:
            log.error("policy %s stops learning; it goes on acting as it is", self.name)
            self.row[Learn.HALTED] = 1
        return False

    def add(self, word: Learn, value: float) -> None:
        """Add to a sum over updates; what is not finite is left out, or no sum would be again."""
        if math.isfinite(value):
            self.row[word] += value

    def _count_hyperparameters(self) -> None:
        """Tell of what an update is made by now, and may not be as it was configured."""
        self.row[Learn.LEARNING_RATE] = self._algorithm.optimizer.learning_rates[self.index]
        self.row[Learn.ENTROPY_COST] = self.config.ppo.entropy_cost

    def count_staleness(self, versions: np.ndarray) -> None:
        """Count how many versions ago a batch was chosen: its least, mean and greatest lag.

        Of the steps that it chose itself; where there are none, the lag counts as 0.
        """
        if not len(versions):
            return
        lag, row = self.version - versions, self.row
        low, high = lag.min(), lag.max()
        row[Learn.STALENESS_SUM] += lag.mean()
        row[Learn.STALENESS_LOW_SUM] += low
        row[Learn.STALENESS_HIGH_SUM] += high
        row[Learn.STALENESS_MAX] = max(row[Learn.STALENESS_MAX], high)

    def begin(self, newborn: Newborn) -> None:
        """Train a newborn from now on, with weights and hyperparameters of its own."""
        self.config = with_values(self.config, newborn.hyperparameters)
        weights = torch.from_numpy(newborn.weights)
        self._algorithm.begin(self.index, weights, self.config, newborn.training)
        self._bad_in_a_row = 0
        self.row[Learn.HALTED] = 0
        self._count_hyperparameters()

    def change(self, values: Mapping[str, float]) -> None:
        """Go on with other hyperparameters; weights and optimizer stay as they are."""
        self.config = with_values(self.config, values)
        self._algorithm.configure(self.index, self.config)

    def is_due(self) -> bool:
        """Whether it is time to publish."""
        return self.updates - self._published_at >= self.config.publish.every

    def publish(self, epsilon: float, numbers: Mapping[str, float] | None = None) -> None:
        """Copy the network out as the next version.

        Args:
            epsilon: the exploration rate to act with.
            numbers: of the policy's training state, those that its algorithm does not know.
        """
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
        """All that a successor needs to go on exactly here, but for its experience."""
        # What an unsound update goes back to; right after a publication it is all there already.
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
        """Go on from what `state` returned."""
        self._algorithm.restore(self.index, branch(state, "algorithm"))
        self._published_at = whole(state, "published_at", Range(0, self.updates))
        self._bad_in_a_row = whole(state, "bad_in_a_row")
        count_on(self.row, fitting_learned(state, "counted", self.row))
        self.row[Learn.VERSION] = self.version
        self._count_hyperparameters()
        good = state.get("good")
        if good is None:
            self._remember()
        else:  # the last publication was before this state
            here = self._algorithm.learned(self.index)
            good = branch(state, "good")
            self._algorithm.restore_learned(self.index, branch(good, "learned"))
            self._good = self._algorithm.learned(self.index)
            self._algorithm.restore_learned(self.index, here)
            self._good_counts = fitting(good, "counts", self.row[COUNTED], COUNT)

    def _remember(self) -> None:
        """Keep what to go back to."""
        self._good = self._algorithm.learned(self.index)
        self._good_counts = self.row[COUNTED]  # a copy


def runs(ready: np.ndarray, width: int) -> Iterator[tuple[int, int]]:
    """The stretches of policies that are ready, of at most `width` each, as (first, end)."""
    first = None
    for k, is_ready in enumerate([*ready, False]):
        if first is not None and (not is_ready or k - first == width):
            yield first, k
            first = None
        if is_ready and first is None:
            first = k
