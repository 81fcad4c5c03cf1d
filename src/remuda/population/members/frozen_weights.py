"""The weights of members that do not learn: frozen copies, and policies of other runs."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.population.members.imported import Imported
from remuda.population.members.table_parts import POLICY, VERSION, Slots
from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import TrainingLayout
from remuda.system.checkpoint.fitting import COUNT, SHARE, fitting_all
from remuda.system.memory.shared import Arena, SharedArrays
from remuda.types import Array, Floats, State


def weight_arrays(
    sizes: Mapping[str, int],
    copies: int,
    arena: Arena | None,
    training: Mapping[str, TrainingLayout] | None = None,
) -> dict[str, SharedArrays]:
    """Allocate the weights of the next newborn and of the frozen copies of each policy."""
    layouts = training or {}
    return {
        policy: SharedArrays(
            {
                "newborn": ((size,), np.float32),
                "weights": ((copies, size), np.float32),
                "learner_step": ((copies,), np.int64),
                "epsilon": ((copies,), np.float64),
                **(layouts[policy].fields(1, size) if policy in layouts else {}),
            },
            arena,
        )
        for policy, size in sizes.items()
    }


class FrozenWeights:
    """The weights of frozen members by slot, in shared memory.

    Imported weights are written before any process starts; the lead writes each frozen copy once.
    `Occupants` records which slots hold complete weights.
    """

    def __init__(
        self,
        slots: Slots,
        weights: Mapping[str, SharedArrays],
        imported: Sequence[Imported],
        arena: Arena | None,
    ) -> None:
        self._slots, self._weights = slots, weights
        self._imported = tuple(
            SharedArrays({"weights": ((1, member.weights.size), np.float32)}, arena)
            for member in imported
        )
        for member, held in zip(imported, self._imported, strict=True):
            held["weights"][0] = member.weights

    def write(self, slot: int, snapshot: Snapshot) -> int:
        """Copy a snapshot into a slot; returns a digest of the weights."""
        held, row = self._held(slot)
        held["weights"][row] = snapshot.weights
        held["learner_step"][row] = snapshot.learner_step
        held["epsilon"][row] = snapshot.epsilon
        return zlib.crc32(held["weights"][row].tobytes())

    def read(self, slot: int, version: int) -> Snapshot:
        if slot in self._slots.imported:
            at = self._slots.imported.index(slot)
            own: Floats = self._imported[at]["weights"][0].copy()
            origin = self._slots.origins[at]
            return Snapshot(own, origin.version, origin.learner_step, origin.epsilon)
        held, row = self._held(slot)
        weights: Floats = held["weights"][row].copy()
        return Snapshot(
            weights, version, int(held["learner_step"][row]), float(held["epsilon"][row])
        )

    def copy_into(self, slot: int, weights: Floats) -> None:
        """Copy a slot's weights into its row of a policy's copies: `weights` [copies, size]."""
        held, row = self._held(slot)
        weights[row] = held["weights"][row]

    def state(self, policy: str) -> State:
        """Return the state of a policy's copies, with zeros as weights; see `copy_into`."""
        held = self._weights[policy]
        found = {name: held[name].copy() for name in ("learner_step", "epsilon")}
        return {**found, "weights": np.zeros_like(held["weights"])}

    def restore(self, policy: str, state: State) -> None:
        held = self._weights[policy]
        ranges = {"weights": None, "learner_step": COUNT, "epsilon": SHARE}
        table = {name: (held[name], allowed) for name, allowed in ranges.items()}
        for name, array in fitting_all(state, table).items():
            held[name][...] = array

    def rows(self, slot: int) -> list[Array]:
        """Return views of a slot's arrays; an empty list if the slot is not for frozen copies."""
        if not self._slots.may_hold_copy(slot):
            return []
        held, row = self._held(slot)
        return [held[name][row : row + 1] for name in ("weights", "learner_step", "epsilon")]

    def _held(self, slot: int) -> tuple[SharedArrays, int]:
        policy, row = self._slots.row_of(slot)
        return self._weights[policy], row


def frozen_copies(state: State) -> list[tuple[str, Snapshot]]:
    """Return the frozen copies in `Table.state` with their policies, by policy and version."""
    policies, found = state["policies"], []
    for policy, name in enumerate(policies):
        held = state["copies"][name]
        first = len(policies) + policy * len(held["weights"])
        for i, weights in enumerate(held["weights"]):
            identity = state["identity"][first + i]
            if identity[POLICY] == policy:
                step, epsilon = int(held["learner_step"][i]), float(held["epsilon"][i])
                found.append((name, Snapshot(weights, int(identity[VERSION]), step, epsilon)))
    return sorted(found, key=lambda copy: (copy[0], copy[1].version))
