"""Births in progress: the actor orders them in shared memory, and a learner carries them out.

`remuda.population.births` describes the steps, and what happens if a process dies. The actor writes
a newborn's data only while no order is open, and learners read it only while an order is open.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from remuda.population.ledger.records import PolicyRef
from remuda.population.members.table_parts import ADMITTED, CONFIRMED, ORDERED, SINCE
from remuda.publish.training_state import TrainingLayout, TrainingRows, TrainingState
from remuda.system.checkpoint.fitting import branch, fitting
from remuda.system.memory.atomic import load, store
from remuda.system.memory.shared import SharedArrays
from remuda.types import Array, Floats, State


@dataclass(frozen=True)
class Newborn:
    """The initial data of a newborn."""

    weights: Floats  # [size], for the network of its slot
    parent: PolicyRef | None = None
    training: TrainingState | None = None  # None for a new training state
    hyperparameters: Mapping[str, float] = field(default_factory=dict)


class BirthOrders:
    """The orders for births in the slots of live policies.

    The actor writes `ORDERED` and `ADMITTED`, the learner of the slot `CONFIRMED` and `SINCE`.
    """

    def __init__(
        self,
        shared: SharedArrays,
        weights: Mapping[str, SharedArrays],
        training: Mapping[str, TrainingLayout] | None = None,
    ) -> None:
        self._shared, self._weights = shared, weights
        self._policies = tuple(weights)
        self._training = {p: TrainingRows(own, weights[p]) for p, own in (training or {}).items()}

    @property
    def all(self) -> Array:
        """[policies, 4], by slot: the columns `ORDERED`, `ADMITTED`, `CONFIRMED` and `SINCE`."""
        return self._shared["orders"]

    @property
    def expected(self) -> list[int]:
        """The slots with an ordered newborn that does not play yet."""
        orders = self.all
        return np.flatnonzero(orders[:, ADMITTED] != orders[:, ORDERED]).tolist()

    def since(self, slot: int) -> int | None:
        """Return the version under which the newborn was published, if it was."""
        orders = self.all[slot]
        if load(orders, CONFIRMED) != orders[ORDERED]:
            return None
        return int(orders[SINCE])

    def ordered(self, slot: int) -> int:
        return load(self.all[slot], ORDERED)

    def confirmed(self, slot: int) -> int:
        """Return the number of births that the slot's learner has carried out."""
        return load(self.all[slot], CONFIRMED)

    def newborn_weights(self, policy: str) -> Floats:
        """Return the newborn's weights: [size]; valid until the birth is confirmed."""
        return self._weights[policy]["newborn"].copy()

    def put_weights(self, slot: int, weights: Floats) -> int:
        held = self._weights[self._policies[slot]]["newborn"]
        held[...] = weights
        return zlib.crc32(held.tobytes())

    def rows(self, policy: str) -> list[Array]:
        held = self._weights[policy]
        copies = ("weights", "learner_step", "epsilon")
        return [held[name] for name in held.names if name not in copies]

    def training_layout(self, policy: str) -> TrainingLayout | None:
        rows = self._training.get(policy)
        return rows.layout if rows is not None else None

    def put_training(self, slot: int, training: TrainingState | None) -> None:
        rows = self._training.get(self._policies[slot])
        if rows is not None:
            rows.write(0, training)

    def newborn_training(self, policy: str) -> TrainingState | None:
        """Return the newborn's training state, if any; valid until the birth is confirmed."""
        rows = self._training.get(policy)
        return rows.read(0) if rows is not None else None

    def restore_newborn(
        self, policy: str, weights: Mapping[str, Array], training: Mapping[str, State | None]
    ) -> None:
        """Restore the next newborn of a policy; both arguments are keyed by policy."""
        held, rows = self._weights[policy]["newborn"], self._training.get(policy)
        held[...] = fitting(weights, policy, held)
        if rows is not None:
            found: TrainingState | None = None
            if policy in training:
                found = TrainingState.restored(branch(training, policy), rows.layout, held)
            rows.write(0, found)

    def count(self, slot: int) -> None:
        """Write the order; call this after all data of the newborn is in the table."""
        store(self.all[slot], ORDERED, int(self.all[slot, ORDERED]) + 1)

    def close(self, slot: int) -> None:
        """Mark the newborn as playing."""
        self.all[slot, ADMITTED] = self.all[slot, ORDERED]

    def confirm(self, slot: int, version: int) -> int:
        """Mark the newest order as carried out; returns the number of orders."""
        ordered = self.ordered(slot)
        self.all[slot, SINCE] = version
        store(self.all[slot], CONFIRMED, ordered)
        return ordered
