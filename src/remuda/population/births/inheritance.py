"""The initial data of a newborn policy: made by an actor, loaded by a learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from remuda.population.directors.director import Birth
from remuda.population.ledger.records import PolicyRef, Population
from remuda.population.members.births import Newborn
from remuda.population.members.table import Table
from remuda.publish.snapshot import Snapshot
from remuda.types import Floats


class ActingPolicies(Protocol):
    """The live policies of an actor, as needed for births and frozen copies."""

    def look(self, policy: str) -> Snapshot:
        """Return the weights that a policy currently plays with."""

    def published(self, policy: str) -> Snapshot:
        """Return the newest published weights of a policy, with its training state."""

    def draw(self, policy: str, generation: int) -> Floats:
        """Return new initial weights: [size]."""

    def mutate(self, policy: str, weights: Floats, strength: float, generation: int) -> Floats:
        """Return weights with noise, in standard deviations of each tensor's weights: [size]."""

    def cross(
        self, policy: str, weights: Floats, second: Floats, share: float, generation: int
    ) -> Floats:
        """Return weights; each layer is from the second parent with probability `share`: [size]."""

    def fits(self, policy: str, other: str) -> bool:
        """Return whether a policy can start with the other's weights, converted if necessary."""

    def convert(self, policy: str, other: str, weights: Floats, generation: int) -> Floats | None:
        """Convert the other's weights to this policy's network: [size]; None if not necessary."""

    def clear(self, policy: str) -> None:
        """Clear the experience of the slot's previous policy."""

    def wake(self, policy: str) -> None:
        """Wake the policy's learner."""


def newborn_data(
    birth: Birth, table: Table, population: Population, acting: ActingPolicies, generation: int
) -> Newborn:
    """Return a newborn's data; reads each parent once, so that all its data has one version."""
    name = birth.policy
    if birth.parent is None:
        return Newborn(acting.draw(name, generation))
    snapshot = _read(birth.parent, birth, table, population, acting)
    parent = PolicyRef(birth.parent.policy, snapshot.version)
    converted = acting.convert(name, parent.policy, snapshot.weights, generation)
    weights, fits = (snapshot.weights, True) if converted is None else (converted, False)
    if birth.second is not None and birth.crossover:
        second = _read(birth.second, birth, table, population, acting).weights
        converted = acting.convert(name, birth.second.policy, second, generation)
        second = second if converted is None else converted
        weights = acting.cross(name, weights, second, birth.crossover, generation)
        fits = False
    if birth.mutation:
        weights, fits = acting.mutate(name, weights, birth.mutation, generation), False
    layout = table.births.training_layout(name)
    if snapshot.training is None or layout is None:
        return Newborn(weights, parent)
    return Newborn(weights, parent, snapshot.training.adapted(layout, weights, fits))


def _read(
    ref: PolicyRef, birth: Birth, table: Table, population: Population, acting: ActingPolicies
) -> Snapshot:
    """Return a parent's snapshot: its current or its newest published weights."""
    if ref.is_frozen:
        return table.snapshot(population[ref].slot)
    return acting.published(ref.policy) if birth.inherits_training else acting.look(ref.policy)


class LearnerBirths:
    """The births that the learners of one process carry out; see `population.members.births`.

    Without a table no policy is ever born: all exist from the start.
    """

    def __init__(self, table: Table | None, policies: Sequence[str]) -> None:
        self._table = table
        self._slots = {p: table.policies.index(p) for p in policies} if table is not None else {}
        self.generations = dict.fromkeys(policies, 0)
        """The number of births that the learner of each policy has carried out."""
        if table is not None:
            for policy, slot in self._slots.items():
                self.generations[policy] = table.births.confirmed(slot)

    def plays(self, policy: str) -> bool:
        """Return whether the policy's slot is occupied."""
        return self._table is None or self._table.occupants.is_there(self._slots[policy])

    def hyperparameters(self, policy: str) -> dict[str, float]:
        """Return the hyperparameters in the policy's slot; without a table, none."""
        if self._table is None:
            return {}
        return self._table.hyperparameters.of(self._slots[policy])

    def pending(self) -> str | None:
        """Return a policy with a birth to carry out, if any."""
        if self._table is not None:
            for policy, slot in self._slots.items():
                if self._table.births.ordered(slot) != self.generations[policy]:
                    return policy
        return None

    def newborn(self, policy: str) -> Newborn:
        assert self._table is not None
        births = self._table.births
        weights, training = births.newborn_weights(policy), births.newborn_training(policy)
        return Newborn(weights, None, training, self.hyperparameters(policy))

    def confirm(self, policy: str, version: int) -> None:
        """Report to the actor that the newborn was published under this version."""
        assert self._table is not None
        self.generations[policy] = self._table.births.confirm(self._slots[policy], version)
