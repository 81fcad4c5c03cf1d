"""Births on their way: ordered by the actor, carried out by a learner, both in shared memory.

The actor empties a policy's ring, puts what the newborn begins with into the table: its weights and
hyperparameters, the training state that it takes over; and counts an order.
The learner begins with them, publishes them, and confirms it: from then on the actor may deal the
newborn seats. If the learner dies in between, its successor finds the order still open, and carries
it out from its beginning; if the actor dies, its successor admits the newborn. What the newborn
begins with is written while no order is open, and read while one is: who dies writing it has
ordered nothing, and its successor writes all of it anew.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from remuda.checkpoint.fitting import branch, fitting
from remuda.memory.atomic import load, store
from remuda.memory.shared import SharedArrays
from remuda.population.table_layout import ADMITTED, CONFIRMED, ORDERED, SINCE
from remuda.publish.training_state import TrainingLayout, TrainingRows, TrainingState
from remuda.types import Array, Floats, State


class BirthOrders:
    """The orders for births in the places of live policies.

    `ORDERED` and `ADMITTED` are the actor's to write, `CONFIRMED` and `SINCE` the learner's of the
    place.
    """

    def __init__(
        self,
        shared: SharedArrays,
        weights: Mapping[str, SharedArrays],
        training: Mapping[str, TrainingLayout] | None = None,
    ) -> None:
        """Order in the arrays of `table_fields`."""
        self._shared, self._weights = shared, weights
        self._policies = tuple(weights)
        self._training = {p: TrainingRows(own, weights[p]) for p, own in (training or {}).items()}

    @property
    def all(self) -> Array:
        """[policies, 4]: of each place, by `ORDERED` and so on."""
        return self._shared["orders"]

    @property
    def expected(self) -> list[int]:
        """The places where a birth was ordered, and the newborn does not play yet."""
        orders = self.all
        places: list[int] = np.flatnonzero(orders[:, ADMITTED] != orders[:, ORDERED]).tolist()
        return places

    def is_expected(self, place: int) -> bool:
        """Whether a policy was ordered that does not play yet."""
        orders = self.all[place]
        return bool(orders[ADMITTED] != orders[ORDERED])

    def since(self, place: int) -> int | None:
        """The version under which the policy that was ordered was published; None: not yet."""
        orders = self.all[place]
        if load(orders, CONFIRMED) != orders[ORDERED]:
            return None
        return int(orders[SINCE])

    def ordered(self, place: int) -> int:
        """How many births were ordered in a place."""
        return load(self.all[place], ORDERED)

    def confirmed(self, place: int) -> int:
        """How many of them its learner has carried out."""
        return load(self.all[place], CONFIRMED)

    def newborn_weights(self, policy: str) -> Floats:
        """The weights of the policy to be born: [size]. They stay until it is confirmed."""
        weights: Floats = self._weights[policy]["newborn"].copy()
        return weights

    def put_weights(self, place: int, weights: Floats) -> int:
        """Keep what the next newborn in a place begins with; returns a digest of it."""
        held = self._weights[self._policies[place]]["newborn"]
        held[...] = weights
        return zlib.crc32(held.tobytes())

    def rows(self, policy: str) -> list[Array]:
        """All that the next newborn in a policy's place begins with, where it lies."""
        held = self._weights[policy]
        copies = ("weights", "learner_step", "epsilon")
        return [held[name] for name in held.names if name not in copies]

    def training_layout(self, policy: str) -> TrainingLayout | None:
        """What a newborn in a policy's place may take over besides weights; None: nothing."""
        rows = self._training.get(policy)
        return rows.layout if rows is not None else None

    def put_training(self, place: int, training: TrainingState | None) -> None:
        """Keep what the next newborn in a place takes over besides weights; None: nothing."""
        rows = self._training.get(self._policies[place])
        if rows is not None:
            rows.write(0, training)

    def newborn_training(self, policy: str) -> TrainingState | None:
        """What the policy to be born takes over besides weights; it stays until it is confirmed."""
        rows = self._training.get(policy)
        return rows.read(0) if rows is not None else None

    def restore_newborn(
        self, policy: str, weights: Mapping[str, Array], training: Mapping[str, State | None]
    ) -> None:
        """Hold what was held for the next newborn of a policy; both are by policy."""
        held, rows = self._weights[policy]["newborn"], self._training.get(policy)
        held[...] = fitting(weights, policy, held)
        if rows is not None:
            found: TrainingState | None = None
            if policy in training:
                found = TrainingState.restored(branch(training, policy), rows.layout, held)
            rows.write(0, found)

    def count(self, place: int) -> None:
        """Count an order, once all that the newborn begins with stands in the table."""
        store(self.all[place], ORDERED, int(self.all[place, ORDERED]) + 1)

    def close(self, place: int) -> None:
        """Note that the newborn plays."""
        self.all[place, ADMITTED] = self.all[place, ORDERED]

    def confirm(self, place: int, version: int) -> int:
        """Note that the newest order is carried out; returns how many there have been."""
        ordered = self.ordered(place)
        self.all[place, SINCE] = version
        store(self.all[place], CONFIRMED, ordered)
        return ordered
