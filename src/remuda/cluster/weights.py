"""Copies of published weights on nodes where their policy does not learn.

On these nodes the bridge process publishes the learner's newest snapshot with its version number.
The bridge may skip versions. If it dies while writing, it continues as a restarted learner does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remuda.errors import RemudaError
from remuda.publish.snapshot import PublishedWeights, Snapshot
from remuda.publish.training_state import TrainingState
from remuda.types import Array, Integers

# numbers of a snapshot: version, learner step, bits of epsilon, size, 1 with a training state
FIXED = 5


class WeightsOut:
    """The sender of weights from this node, where their policies learn, to one other node."""

    def __init__(self, published: PublishedWeights, policies: Sequence[int]) -> None:
        self._published, self._reader = published, published.reader()
        self._policies: Integers = np.array(policies, np.int64)
        self._sent: Integers = np.zeros(len(policies), np.int64)

    def holds(self, versions: Integers) -> None:
        self._sent[:] = versions

    def newer(self) -> dict[int, int]:
        """Return the newest version of each policy that has an unsent version."""
        versions = self._published.board["versions"][self._policies]
        is_newer = versions > self._sent
        pairs = zip(self._policies[is_newer].tolist(), versions[is_newer].tolist(), strict=True)
        return dict(pairs)

    def take(self, policy: int, version: int) -> tuple[Integers, list[Array]] | None:
        """Return a policy's newest snapshot as numbers and arrays, and mark it as sent.

        Return None if the learner has published a newer version. That version may include steps
        that the shared counters, read earlier, do not; a successor would train on them again.
        """
        name = self._published.policies[policy]
        snapshot = self._reader.newest(name, training=True)
        if snapshot.version != version:
            return None
        self._sent[self._policies == policy] = version
        training = snapshot.training
        epsilon = np.array([snapshot.epsilon]).view(np.int64)[0]
        fixed = [
            version,
            snapshot.learner_step,
            epsilon,
            len(snapshot.weights),
            training is not None,
        ]
        numbers: Integers = np.array(fixed, np.int64)
        arrays = [snapshot.weights.copy()]
        if training is not None:
            rows = self._published.training_rows(name)
            assert rows is not None
            arrays += [training.vectors[each] for each in rows.layout.vectors]
            held = np.array([training.numbers[each] for each in rows.layout.numbers])
            numbers = np.concatenate((numbers, held.view(np.int64)))
        return numbers, arrays


class WeightsIn:
    """The publisher of weights of policies that learn on other nodes."""

    def __init__(self, published: PublishedWeights, policies: Sequence[int]) -> None:
        self._published, self._policies = published, tuple(policies)
        names = {i: published.policies[i] for i in policies}
        self._publishers = {
            i: published.publisher(name, published.checksums[name]) for i, name in names.items()
        }
        reader = published.reader()
        for i, publisher in self._publishers.items():
            if publisher.version:  # a newer, half-written version is sent again
                publisher.version = reader.newest(names[i]).version

    @property
    def holds(self) -> Integers:
        versions = [self._publishers[policy].version for policy in self._policies]
        return np.array(versions, np.int64)

    def publish(self, policy: int, numbers: Integers, values: Array) -> None:
        """Publish the result of `WeightsOut.take` if it is newer.

        `values`, float32, holds all arrays in one row: the weights, then the training state.
        """
        publisher, name = self._publishers.get(policy), self._published.policies[policy]
        size = self._published.slots[name]["weights"].shape[1]
        rows = self._published.training_rows(name)
        vectors = len(rows.layout.vectors) if rows is not None and numbers[4] else 0
        if publisher is None or numbers[3] != size or len(values) != size * (1 + vectors):
            raise RemudaError(f"the received weights of policy {name} do not fit")
        training = None
        if rows is not None and numbers[4]:
            parts = values[size:].reshape(vectors, size)
            training = TrainingState(
                dict(zip(rows.layout.vectors, parts, strict=True)),
                dict(
                    zip(rows.layout.numbers, numbers[FIXED:].view(np.float64).tolist(), strict=True)
                ),
            )
        epsilon = float(numbers[2:3].view(np.float64)[0])
        publisher.follow(
            Snapshot(values[:size], int(numbers[0]), int(numbers[1]), epsilon, training)
        )
