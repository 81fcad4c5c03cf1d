"""Published weights on nodes where their policy does not learn: the newest, by version.

On the node of its learner a policy's snapshot is the learner's to write. On any other node a bridge
publishes there what was published here, under its version; several may be left out. One that dies
leaves a snapshot as a learner does (`remuda.publish.snapshot`), and its successor goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remuda.errors import RemudaError
from remuda.publish.snapshot import PublishedWeights, Snapshot
from remuda.publish.training_state import TrainingState
from remuda.types import Array, Integers

FIXED = 5
"""Numbers that are told of a snapshot: its version, the learner's step, the exploration rate as
bits, the size of the weights, and whether a training state follows them."""


class WeightsOut:
    """Policies that learn here, as another node is told of them."""

    def __init__(self, published: PublishedWeights, policies: Sequence[int]) -> None:
        """Tell of these policies, by number."""
        self._published, self._reader = published, published.reader()
        self._policies: Integers = np.array(policies, np.int64)
        self._sent: Integers = np.zeros(len(policies), np.int64)

    def holds(self, versions: Integers) -> None:
        """Take note of what the peer has, in the order of the policies."""
        self._sent[:] = versions

    def newer(self) -> dict[int, int]:
        """The policies that were published since they were sent last, with their versions."""
        versions = self._published.board["versions"][self._policies]
        found = versions > self._sent
        pairs = zip(self._policies[found].tolist(), versions[found].tolist(), strict=True)
        return dict(pairs)

    def take(self, policy: int, version: int) -> tuple[Integers, list[Array]] | None:
        """A policy's newest snapshot, as numbers and arrays; it counts as sent.

        None: there is another version by now, whose learner may have taken steps that the words do
        not tell of which were read meanwhile: who went on from both would train on them twice.
        """
        name = self._published.policies[policy]
        found = self._reader.newest(name, training=True)
        if found.version != version:
            return None
        self._sent[self._policies == policy] = found.version
        training = found.training
        epsilon = np.array([found.epsilon]).view(np.int64)[0]
        numbers: Integers = np.array(
            [
                found.version,
                found.learner_step,
                epsilon,
                len(found.weights),
                training is not None,
            ],
            np.int64,
        )
        arrays = [found.weights.copy()]
        if training is not None:
            rows = self._published.training_rows(name)
            assert rows is not None
            arrays += [training.vectors[each] for each in rows.layout.vectors]
            held = np.array([training.numbers[each] for each in rows.layout.numbers])
            numbers = np.concatenate((numbers, held.view(np.int64)))
        return numbers, arrays


class WeightsIn:
    """Policies that learn elsewhere: the bridge publishes them here."""

    def __init__(self, published: PublishedWeights, policies: Sequence[int]) -> None:
        """Publish these policies, by number."""
        self._published, self._policies = published, tuple(policies)
        names = {i: published.policies[i] for i in policies}
        self._publishers = {
            i: published.publisher(name, published.checksums[name]) for i, name in names.items()
        }
        reader = published.reader()
        for i, publisher in self._publishers.items():
            if publisher.version:  # a bridge may have died over a newer one, which comes again
                publisher.version = reader.newest(names[i]).version

    @property
    def holds(self) -> Integers:
        """The versions that are here, in the order of the policies."""
        versions = [self._publishers[policy].version for policy in self._policies]
        return np.array(versions, np.int64)

    def publish(self, policy: int, numbers: Integers, values: Array) -> None:
        """Publish what was taken, unless what is here is as new.

        Args:
            policy: by number.
            numbers: of it, as `WeightsOut.take` gives them.
            values: [size] float32: the weights, then the vectors of the training state.
        """
        publisher, name = self._publishers.get(policy), self._published.policies[policy]
        size = self._published.slots[name]["weights"].shape[1]
        rows = self._published.training_rows(name)
        vectors = len(rows.layout.vectors) if rows is not None and numbers[4] else 0
        if publisher is None or numbers[3] != size or len(values) != size * (1 + vectors):
            raise RemudaError(f"the weights of policy {name} that came do not fit")
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
