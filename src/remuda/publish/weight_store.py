"""`WeightStore`: where published weights are, as learners, actors and the coordinator see it.

`PublishedWeights` is the one that lies in the shared memory of a machine. Another, such as one that
reaches over a network, passes the same contract: `tests/contracts/test_weight_store.py`.
"""

from __future__ import annotations

from typing import Protocol

from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import TrainingLayout, TrainingState
from remuda.types import Floats, State


class WeightPublisher(Protocol):
    """A learner's end: publishes the weights of one policy."""

    version: int
    """Of the newest publication; 0: there was none."""

    @property
    def training(self) -> TrainingLayout | None:
        """What is published of how the policy is trained; None: nothing."""

    def publish(
        self,
        weights: Floats,
        learner_step: int,
        epsilon: float,
        training: TrainingState | None = None,
    ) -> int:
        """Publish weights [size] as the next version, and return that version."""

    def restore(self, state: State) -> None:
        """Publish the snapshot of an earlier run under its own version."""


class WeightReader(Protocol):
    """A reader's end: finds out what is new, and copies it.

    1. A snapshot is whole: weights, version, learner step and epsilon are of one publication, and
       so is the training state.
    2. `newer` never waits.
    3. Versions never go backwards.
    4. What was published once can always be had.
    """

    overtaken: int
    """Copies that were given up because the learner published meanwhile."""

    def is_news(self) -> bool:
        """Whether any policy has a version that this reader has not copied."""

    def newer(self) -> dict[str, Snapshot]:
        """The snapshots that are newer than the last ones copied, by policy.

        A snapshot holds until this is called again.
        """

    def newest(self, policy: str, training: bool = False) -> Snapshot:
        """A policy's newest snapshot; it holds until this, or `newer`, is called again."""

    def state(self) -> State:
        """The versions that this reader has copied, by policy."""

    def restore(self, state: State) -> None:
        """Take these versions as copied already."""


class WeightStore(Protocol):
    """The newest weights of all policies; it crosses to the processes of roles."""

    def publisher(self, policy: str, checksum: int) -> WeightPublisher:
        """A learner's end, for a policy; its version goes on from what was published before."""

    def reader(self) -> WeightReader:
        """A reader's end, which has copied nothing yet."""

    def active(self, policy: str) -> int:
        """The copy that readers read, by number; the status shows it."""
