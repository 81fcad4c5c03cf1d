"""Published weights: one snapshot per policy, read whole or not at all.

A snapshot has a flat float32 vector of all parameters and buffers, its version, the learner's step,
and the exploration rate. With `population.evolution.inherit all` it also has the training state
that new policies inherit. The learner trains a private network and copies its weights into shared
memory, from which actors copy newer snapshots. There are no locks.

On each node only one process writes a policy's snapshots: its learner, or the process that receives
them from the learner's node. Each policy has two rows. A row's `sequence` is odd while the row is
being written; a row whose writer died is torn. A reader reads `sequence`, copies the row, and reads
`sequence` again. `active` is the row that actors read; `versions[policy]`, stored last, shows
readers that there is a new snapshot.

- `double_buffer`: the learner writes the inactive row and then makes that row active. A reader must
  discard its copy only if a second publication starts while it copies.
- `snapshot`: actors always read the same row, which is overwritten in place. An actor that reads
  during a write keeps its old weights until its next turn. Each publication is written to the other
  row first, so a restarted learner, checkpoints, and actors without weights can read that row.

A learner that dies, at any instruction, leaves at most one torn row. It never starts to write one
row while the other is torn, and a restarted learner writes a torn row first. So a reader that needs
weights can always get them (`SnapshotReader.newest`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from remuda.config import PublishConfig
from remuda.errors import RemudaError
from remuda.publish.training_state import TrainingLayout, TrainingRows, TrainingState
from remuda.system.checkpoint.fitting import MOST, SHARE, Range, fitting, real, whole
from remuda.system.memory.atomic import fence_acquire, fence_release, first_difference, load, store
from remuda.system.memory.shared import Arena, SharedArrays
from remuda.types import Floats, Integers, State

ROWS = 2  # copies of each policy's weights; at least one is complete at any time
TRIES = 1000  # attempts to copy a snapshot before `newest` gives up


class PublishedWeights:
    """The shared memory of all policies' snapshots, a `WeightStore`.

    `layouts` holds each policy's number of weights, a checksum of their layout, and its `publish`
    section.
    """

    def __init__(
        self,
        layouts: Mapping[str, tuple[int, int, PublishConfig]],
        arena: Arena | None = None,
        training: Mapping[str, TrainingLayout] | None = None,
    ) -> None:
        self.policies = tuple(layouts)
        self.checksums = {name: checksum for name, (_, checksum, _) in layouts.items()}
        self.modes = {name: publish.mode for name, (_, _, publish) in layouts.items()}
        self._training = dict(training or {})
        self.board = SharedArrays({"versions": ((len(layouts),), np.int64)}, arena)
        self.slots = {
            name: SharedArrays(
                {
                    "weights": ((ROWS, size), np.float32),
                    "sequence": ((ROWS,), np.int64),
                    "active": ((1,), np.int64),
                    "version": ((ROWS,), np.int64),
                    "learner_step": ((ROWS,), np.int64),
                    "epsilon": ((ROWS,), np.float64),
                    **(self._training[name].fields(ROWS, size) if name in self._training else {}),
                },
                arena,
            )
            for name, (size, _, _) in layouts.items()
        }
        for slots in self.slots.values():
            slots["weights"][...] = np.nan

    def publisher(self, policy: str, checksum: int) -> Publisher:
        return Publisher(self, policy, checksum)

    def reader(self) -> SnapshotReader:
        return SnapshotReader(self)

    def active(self, policy: str) -> int:
        return load(self.slots[policy]["active"], 0)

    def training_rows(self, policy: str) -> TrainingRows | None:
        layout = self._training.get(policy)
        return TrainingRows(layout, self.slots[policy]) if layout is not None else None


@dataclass
class Snapshot:
    """A policy's published state, copied out of shared memory."""

    weights: Floats  # [size] float32
    version: int  # 1 for the first publication
    learner_step: int  # number of updates that produced these weights
    epsilon: float  # the exploration rate to act with
    training: TrainingState | None = None  # None: not published or not requested

    def state(self) -> State:
        found: State = {
            "weights": self.weights.copy(),
            "version": self.version,
            "learner_step": self.learner_step,
            "epsilon": self.epsilon,
        }
        return found | ({"training": self.training.state()} if self.training is not None else {})


class Publisher:
    """The learner's side: writes the snapshots of one policy."""

    def __init__(self, published: PublishedWeights, policy: str, checksum: int) -> None:
        if published.checksums[policy] != checksum:
            raise ValueError(
                f"the network of policy {policy} has another layout of its parameters than "
                "its published weights"
            )
        self._slots = published.slots[policy]
        self._training = published.training_rows(policy)
        self._in_place = published.modes[policy] == "snapshot"
        self._versions: Integers = published.board["versions"]
        self._index = published.policies.index(policy)
        # A learner that died may have written a version but not yet announced it in `versions`.
        self.version = int(max(self._versions[self._index], self._slots["version"].max()))

    @property
    def training(self) -> TrainingLayout | None:
        return self._training.layout if self._training is not None else None

    def restore(self, state: State) -> None:
        weights = fitting(state, "weights", self._slots["weights"][0])
        steps, epsilon = whole(state, "learner_step"), real(state, "epsilon", SHARE)
        training: TrainingState | None = None
        if self.training is not None and state.get("training") is not None:
            training = TrainingState.restored(state["training"], self.training, weights)
        version = whole(state, "version", Range(1, MOST))
        self._publish(Snapshot(weights, version, steps, epsilon, training))

    def publish(
        self,
        weights: Floats,
        learner_step: int,
        epsilon: float,
        training: TrainingState | None = None,
    ) -> int:
        self._publish(Snapshot(weights, self.version + 1, learner_step, epsilon, training))
        return self.version

    def follow(self, snapshot: Snapshot) -> None:
        """Publish a snapshot from another node under its version, if the version is newer."""
        if snapshot.version > self.version:
            self._publish(snapshot)

    def _publish(self, snapshot: Snapshot) -> None:
        active = int(self._slots["active"][0])
        other = 1 - active
        if self._in_place:
            # Write a torn row of a dead learner first: the other row is the only intact one.
            is_torn = self._slots["sequence"][active] % 2 == 1
            for row in (active, other) if is_torn else (other, active):
                self._write(row, snapshot)
        else:
            self._write(other, snapshot)
            store(self._slots["active"], 0, other)
        store(self._versions, self._index, snapshot.version)
        self.version = snapshot.version

    def _write(self, row: int, snapshot: Snapshot) -> None:
        slots = self._slots
        sequence = slots["sequence"]
        writing = int(sequence[row]) | 1  # already odd if a learner died while writing
        store(sequence, row, writing)
        fence_release()
        slots["weights"][row] = snapshot.weights
        slots["version"][row] = snapshot.version
        slots["learner_step"][row] = snapshot.learner_step
        slots["epsilon"][row] = snapshot.epsilon
        if self._training is not None:
            self._training.write(row, snapshot.training)
        store(sequence, row, writing + 1)


class SnapshotReader:
    """A `WeightReader` of shared memory: finds new snapshots, and copies them.

    If the learner writes a row while it is copied, the copy is discarded, and the next call of
    `newer` tries again. `newest` finds published weights even if the learner died while it wrote,
    as does `newer` for a policy that this reader has not copied yet.
    """

    def __init__(self, published: PublishedWeights, check_sequence: bool = True) -> None:
        self._published, self._check = published, check_sequence
        self._versions: Integers = published.board["versions"]
        self._copied: Integers = np.zeros(len(published.policies), np.int64)
        self._copies: dict[str, Snapshot] = {}
        self.overtaken = 0  # copies discarded because the learner published in the meantime

    def has_update(self) -> bool:
        return first_difference(self._versions, self._copied) >= 0

    def newer(self) -> dict[str, Snapshot]:
        found = {}
        for index, policy in enumerate(self._published.policies):
            if self._versions[index] > self._copied[index]:
                snapshot = self._copy(policy, self._published.active(policy))
                if snapshot is None and not self._copied[index]:
                    snapshot = self.newest(policy)
                if snapshot is None:
                    self.overtaken += 1
                elif snapshot.version > self._copied[index]:
                    self._copied[index] = snapshot.version
                    found[policy] = snapshot
        return found

    def newest(self, policy: str, training: bool = False) -> Snapshot:
        """Return a policy's newest snapshot, or the previous one while a new one is written.

        The snapshot is valid until the next call of `newest` or `newer`. The call never waits for
        the learner: while one row is written, the other is complete.
        """
        for attempt in range(TRIES):
            active = self._published.active(policy)
            for row in (active, 1 - active):
                snapshot = self._copy(policy, row, training)
                if snapshot is not None and snapshot.version:
                    return snapshot
            if attempt:
                time.sleep(0.0001)  # let the learner's process continue, if it is on this core
        raise RemudaError(
            f"the weights of policy {policy} could not be copied: they were never published, "
            "or are published faster than they can be copied; raise publish.every"
        )

    def state(self) -> State:
        return dict(zip(self._published.policies, self._copied.tolist(), strict=True))

    def restore(self, state: State) -> None:
        self._copied[:] = [whole(state, policy) for policy in self._published.policies]

    def _copy(self, policy: str, row: int, training: bool = False) -> Snapshot | None:
        """Return a copy of a row; None if the row is torn, or was overwritten during the copy."""
        slots = self._published.slots[policy]
        copy = self._copies.get(policy)
        if copy is None:
            copy = Snapshot(np.zeros(slots["weights"].shape[1], np.float32), 0, 0, 1.0)
            self._copies[policy] = copy
        before = load(slots["sequence"], row)
        if self._check and before % 2 == 1:
            return None
        copy.weights[:] = slots["weights"][row]
        copy.version = int(slots["version"][row])
        copy.learner_step = int(slots["learner_step"][row])
        copy.epsilon = float(slots["epsilon"][row])
        rows = self._published.training_rows(policy) if training else None
        copy.training = rows.read(row) if rows is not None else None
        fence_acquire()
        if self._check and load(slots["sequence"], row) != before:
            return None
        return copy
