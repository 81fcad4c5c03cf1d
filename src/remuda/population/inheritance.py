"""Work out the weights and the training state that a newborn policy begins with."""

from __future__ import annotations

from typing import Protocol

from remuda.population.beginning import Beginning
from remuda.population.director import Birth
from remuda.population.records import PolicyRef, Population
from remuda.population.table import Table
from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import TrainingState
from remuda.types import Floats


class ActingPolicies(Protocol):
    """The live policies as they play in an actor: what births and frozen copies need of them."""

    def look(self, policy: str) -> Snapshot:
        """The live weights of a policy as they play now."""

    def published(self, policy: str) -> Snapshot:
        """The live weights of a policy as they were published last, with how it is trained."""

    def draw(self, policy: str, generation: int) -> Floats:
        """Weights that no learner has trained, as the specification has them: [size]."""

    def mutate(self, policy: str, weights: Floats, strength: float, generation: int) -> Floats:
        """These weights with noise, in standard deviations of those of each layer: [size]."""

    def cross(
        self, policy: str, weights: Floats, second: Floats, share: float, generation: int
    ) -> Floats:
        """Weights of which each layer is the second parent's with this probability: [size]."""

    def fits(self, policy: str, other: str) -> bool:
        """Whether one could begin with the weights of the other, converted if need be."""

    def convert(self, policy: str, other: str, weights: Floats, generation: int) -> Floats | None:
        """What the other's weights are in the network of this one: [size]; None: as they are."""

    def clear(self, policy: str) -> None:
        """Forget what the policy that had this place before lived through."""

    def wake(self, policy: str) -> None:
        """Ring its learner."""


def what_it_begins_with(
    birth: Birth, table: Table, population: Population, acting: ActingPolicies, generation: int
) -> Beginning:
    """Work out what is to be put into the table for a newborn.

    Each parent is read once, so that all that is taken of it is of one version.
    """
    name = birth.policy
    if birth.parent is None:
        return Beginning(acting.draw(name, generation))
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
    return Beginning(weights, parent, training)


def _read(
    ref: PolicyRef, birth: Birth, table: Table, population: Population, acting: ActingPolicies
) -> Snapshot:
    """A parent: as it plays now, or as it was published last, which may be newer."""
    if ref.is_frozen:
        return table.snapshot(population[ref].place)
    return acting.published(ref.policy) if birth.inherits_training else acting.look(ref.policy)


def _training(
    taken_over: TrainingState | None, birth: Birth, table: Table, weights: Floats, fits: bool
) -> TrainingState | None:
    """What a newborn takes over besides weights; None: nothing.

    `fits`: whether its weights are just its parent's.
    """
    layout = table.births.training_layout(birth.policy)
    if taken_over is None or layout is None:
        return None
    return taken_over.adapted(layout, weights, fits)
