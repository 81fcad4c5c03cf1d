"""`WeightStore`: published weights as learners, actors and the coordinator see them.

`PublishedWeights` is in the shared memory of a machine. Any other store passes the same contract:
`tests/contracts/test_weight_store.py`.
"""

from __future__ import annotations

from typing import Protocol

from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import TrainingLayout, TrainingState
from remuda.types import Floats, State


class WeightPublisher(Protocol):
    """A learner's end: publishes the weights of one policy."""

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
    """A reader's end: finds new snapshots, and copies them.

    1. A snapshot is whole: weights, version, learner step and epsilon are of one publication, and
       so is the training state.
    2. `newer` never waits.
    3. Versions never go backwards.
    4. Published weights can always be had.
    """

    overtaken: int  # copies that were thrown away because the learner published meanwhile

    def has_update(self) -> bool:
        """Return whether any policy has a version that this reader has not copied."""

    def newer(self) -> dict[str, Snapshot]:
        """Return snapshots newer than the last ones copied; valid until the next call."""

    def newest(self, policy: str, training: bool = False) -> Snapshot:
        """Return a policy's newest snapshot; valid until the next call of this or `newer`."""

    def state(self) -> State:
        """Return the versions that this reader has copied."""

    def restore(self, state: State) -> None:
        """Take these versions as copied already."""


class WeightStore(Protocol):
    """The newest weights of all policies; it crosses to the processes of roles."""

    def publisher(self, policy: str, checksum: int) -> WeightPublisher:
        """Return a learner's end for a policy; its version continues from earlier publications."""

    def reader(self) -> WeightReader:
        """Return a reader's end, which has copied nothing yet."""

    def active(self, policy: str) -> int:
        """Return the number of the copy that readers read; the status shows it."""
