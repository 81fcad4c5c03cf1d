"""Published weights: one snapshot per policy, seen whole or not at all.

A snapshot is a flat float32 vector of all parameters and buffers, with the version, the learner's
step and the exploration rate that belong to it. The learner trains a private network and copies it
out; the actor copies what is newer into its own network. No forward pass runs on shared weights,
and nobody locks anything.

Who writes what: everything here belongs to the learner of the policy. `versions[policy]` is stored
last, so that one look over the versions of all policies tells the actor what is new.

- A slot's `sequence` is odd while it is written. A reader notes it, copies, and looks again.
- `snapshot` has one slot. `double_buffer` has two; the one that is not active is written and then
  made active, so a reader meets a write in progress only when it is overtaken twice.
- A learner that dies while writing leaves its slot odd. Readers keep what they have, and in
  `double_buffer` the active slot is whole. Its successor goes on with the next even sequence.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from remuda.checkpoint.state import fitting
from remuda.config import PublishConfig
from remuda.memory.atomic import fence_acquire, fence_release, first_difference, load, store
from remuda.memory.shared import Arena, SharedArrays
from remuda.types import Floats, Integers, State

NUM_SLOTS = {"snapshot": 1, "double_buffer": 2}


class PublishedWeights:
    """The shared memory of all policies' snapshots: layout only.

    `layouts` gives, by policy, the number of weights, a checksum of how they are laid out, and the
    publishing mode.
    """

    def __init__(
        self, layouts: dict[str, tuple[int, int, PublishConfig]], arena: Arena | None = None
    ) -> None:
        self.policies = tuple(layouts)
        self.checksums = {name: checksum for name, (_, checksum, _) in layouts.items()}
        self.board = SharedArrays({"versions": ((len(layouts),), np.int64)}, arena)
        self.slots = {
            name: SharedArrays(
                {
                    "weights": ((NUM_SLOTS[publish.mode], size), np.float32),
                    "sequence": ((NUM_SLOTS[publish.mode],), np.int64),
                    "active": ((1,), np.int64),
                    "version": ((NUM_SLOTS[publish.mode],), np.int64),
                    "learner_step": ((NUM_SLOTS[publish.mode],), np.int64),
                    "epsilon": ((NUM_SLOTS[publish.mode],), np.float64),
                },
                arena,
            )
            for name, (size, _, publish) in layouts.items()
        }
        for slots in self.slots.values():
            slots["weights"][...] = np.nan

    def active(self, policy: str) -> int:
        """The slot that holds a policy's newest snapshot."""
        return load(self.slots[policy]["active"], 0)


@dataclass
class Snapshot:
    """One policy's published state, copied out of shared memory."""

    weights: Floats
    """[size] float32."""
    version: int
    """1 for the first publication."""
    learner_step: int
    """Updates behind these weights."""
    epsilon: float
    """The exploration rate to act with."""

    def state(self) -> State:
        """The snapshot as plain data."""
        return asdict(self)


class Publisher:
    """A learner's end: writes the snapshots of one policy."""

    def __init__(self, published: PublishedWeights, policy: str, checksum: int) -> None:
        _check_layout(published, policy, checksum)
        self._slots = published.slots[policy]
        self._versions: Integers = published.board["versions"]
        self._index = published.policies.index(policy)
        # A learner that died may have made a version active and not yet counted it.
        self.version = int(max(self._versions[self._index], self._slots["version"].max()))

    def restore(self, state: State) -> None:
        """Publish a snapshot that was published in an earlier run, under its own version.

        Raises:
            CheckpointError: it is of another network.
        """
        weights = fitting(state, "weights", self._slots["weights"][0])
        self.version = int(state["version"]) - 1
        self.publish(weights, state["learner_step"], state["epsilon"])

    def publish(self, weights: Floats, learner_step: int, epsilon: float) -> int:
        """Copy the weights out as the next version, and return that version."""
        slots = self._slots
        sequence = slots["sequence"]
        slot = (int(slots["active"][0]) + 1) % sequence.size
        version = self.version + 1
        writing = int(sequence[slot]) | 1  # odd already if a learner died here
        store(sequence, slot, writing)
        fence_release()
        slots["weights"][slot] = weights
        slots["version"][slot] = version
        slots["learner_step"][slot] = learner_step
        slots["epsilon"][slot] = epsilon
        store(sequence, slot, writing + 1)
        store(slots["active"], 0, slot)
        store(self._versions, self._index, version)
        self.version = version
        return version


class SnapshotReader:
    """An actor's end: finds out what is new, and copies it.

    What it guarantees:

    1. A snapshot is whole: weights, version, learner step and epsilon are of one publication.
    2. `newer` never waits: a copy that is overtaken is thrown away, and the policy stays new.
    3. Versions never go backwards.
    """

    def __init__(self, published: PublishedWeights, check_sequence: bool = True) -> None:
        self._published, self._check = published, check_sequence
        self._versions: Integers = published.board["versions"]
        self._seen: Integers = np.zeros(len(published.policies), np.int64)
        self._copies = {
            name: Snapshot(np.zeros(slots["weights"].shape[1], np.float32), 0, 0, 1.0)
            for name, slots in published.slots.items()
        }
        self.overtaken = 0
        """Copies that were thrown away because the learner published meanwhile."""

    def is_news(self) -> bool:
        """Whether any policy has a version that this reader has not copied."""
        return first_difference(self._versions, self._seen) >= 0

    def newer(self) -> dict[str, Snapshot]:
        """The snapshots that are newer than the last ones copied, by policy.

        A snapshot holds until this is called again.
        """
        found = {}
        for index, policy in enumerate(self._published.policies):
            if self._versions[index] != self._seen[index]:
                snapshot = self._copy(policy)
                if snapshot is None:
                    self.overtaken += 1
                elif snapshot.version > self._seen[index]:
                    self._seen[index] = snapshot.version
                    found[policy] = snapshot
        return found

    def state(self) -> State:
        """The versions that this reader has copied, by policy."""
        return dict(zip(self._published.policies, self._seen.tolist(), strict=True))

    def restore(self, state: State) -> None:
        """Take these versions as copied already."""
        self._seen[:] = [state[policy] for policy in self._published.policies]

    def _copy(self, policy: str) -> Snapshot | None:
        slots, copy = self._published.slots[policy], self._copies[policy]
        slot = load(slots["active"], 0)
        before = load(slots["sequence"], slot)
        if self._check and before % 2 == 1:
            return None
        copy.weights[:] = slots["weights"][slot]
        copy.version = int(slots["version"][slot])
        copy.learner_step = int(slots["learner_step"][slot])
        copy.epsilon = float(slots["epsilon"][slot])
        fence_acquire()
        if self._check and load(slots["sequence"], slot) != before:
            return None
        return copy


def _check_layout(published: PublishedWeights, policy: str, checksum: int) -> None:
    if published.checksums[policy] != checksum:
        raise ValueError(
            f"the network of policy {policy} is laid out in another way than its published weights"
        )
