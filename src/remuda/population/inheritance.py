"""Work out the weights and the training state that a newborn policy begins with."""

from __future__ import annotations

from typing import Protocol

from remuda.population.births import NewbornData
from remuda.population.director import Birth
from remuda.population.records import PolicyRef, Population
from remuda.population.table import Table
from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import TrainingState
from remuda.types import Floats


class ActingPolicies(Protocol):
    """The live policies as they play in an actor, for births and frozen copies."""

    def look(self, policy: str) -> Snapshot:
        """Return the live weights of a policy as it plays now."""

    def published(self, policy: str) -> Snapshot:
        """Return the newest published weights of a policy, with its training state."""

    def draw(self, policy: str, generation: int) -> Floats:
        """Return untrained weights, as specified: [size]."""

    def mutate(self, policy: str, weights: Floats, strength: float, generation: int) -> Floats:
        """Return weights with noise, in standard deviations of each layer: [size]."""

    def cross(
        self, policy: str, weights: Floats, second: Floats, share: float, generation: int
    ) -> Floats:
        """Return weights with each layer the second parent's with this probability: [size]."""

    def fits(self, policy: str, other: str) -> bool:
        """Return whether a policy could begin with the other's weights, perhaps converted."""

    def convert(self, policy: str, other: str, weights: Floats, generation: int) -> Floats | None:
        """Return the other's weights in this policy's network: [size]; None if unchanged."""

    def clear(self, policy: str) -> None:
        """Clear the experience of the previous policy in this place."""

    def wake(self, policy: str) -> None:
        """Wake its learner."""


def newborn_data(
    birth: Birth, table: Table, population: Population, acting: ActingPolicies, generation: int
) -> NewbornData:
    """Work out what is to be put into the table for a newborn.

    Each parent is read once, so that all that is taken of it is of one version.
    """
    name = birth.policy
    if birth.parent is None:
        return NewbornData(acting.draw(name, generation))
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
    training = _training(snapshot.training, birth, table, weights, fits)
    return NewbornData(weights, parent, training)


def _read(
    ref: PolicyRef, birth: Birth, table: Table, population: Population, acting: ActingPolicies
) -> Snapshot:
    """Return a parent's snapshot: as it plays now, or the newest published one."""
    if ref.is_frozen:
        return table.snapshot(population[ref].place)
    return acting.published(ref.policy) if birth.inherits_training else acting.look(ref.policy)


def _training(
    taken_over: TrainingState | None, birth: Birth, table: Table, weights: Floats, fits: bool
) -> TrainingState | None:
    """Return the training state that a newborn inherits, if any.

    `fits`: whether its weights are exactly its parent's.
    """
    layout = table.births.training_layout(birth.policy)
    if taken_over is None or layout is None:
        return None
    return taken_over.adapted(layout, weights, fits)
