"""The interfaces to published weights, for learners, actors and the coordinator.

`PublishedWeights` implements them in shared memory. Any other store must pass
`tests/contracts/test_weight_store.py`.
"""

from __future__ import annotations

from typing import Protocol

from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import TrainingLayout, TrainingState
from remuda.types import Floats, State


class WeightPublisher(Protocol):
    """The learner's side: publishes the weights of one policy."""

    version: int  # version of the newest publication; 0 before the first

    @property
    def training(self) -> TrainingLayout | None:
        """Layout of the published training state, if any."""

    def publish(
        self,
        weights: Floats,
        learner_step: int,
        epsilon: float,
        training: TrainingState | None = None,
    ) -> int:
        """Publish weights [size] as the next version, and return that version."""

    def restore(self, state: State) -> None:
        """Publish the snapshot of an earlier session under its version."""


class WeightReader(Protocol):
    """The reader's side: finds new snapshots, and copies them.

    1. All data of a snapshot (weights, version, learner step, epsilon, training state) is from one
       publication.
    2. `newer` never waits.
    3. Versions never decrease.
    4. Published weights can always be read.
    """

    overtaken: int  # copies discarded because the learner published in the meantime

    def has_update(self) -> bool:
        """Return whether any policy has a version that this reader has not copied."""

    def newer(self) -> dict[str, Snapshot]:
        """Return snapshots newer than the last ones copied; valid until the next call."""

    def newest(self, policy: str, training: bool = False) -> Snapshot:
        """Return a policy's newest snapshot; valid until the next call of `newest` or `newer`."""

    def state(self) -> State:
        """Return the versions that this reader has copied."""

    def restore(self, state: State) -> None:
        """Treat these versions as already copied."""


class WeightStore(Protocol):
    """The newest weights of all policies; it is passed to actor and learner processes."""

    def publisher(self, policy: str, checksum: int) -> WeightPublisher:
        """Return a policy's publisher; its version continues from earlier publications."""

    def reader(self) -> WeightReader:
        """Return a reader that has copied nothing yet."""

    def active(self, policy: str) -> int:
        """Return the index of the copy of the weights that readers read, for the run's status."""
