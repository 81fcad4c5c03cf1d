"""The learner's end of a birth: who is to be trained from now on in a place of the population.

The actor empties a policy's ring, puts the newborn's weights and hyperparameters into the table,
and counts an order. The learner begins with them, publishes them, and says so: from then on the
actor may deal the newborn seats. Whoever dies in between is followed by one who finds the order
still open, and carries it out from its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remuda.population.table import Table
from remuda.types import Floats


@dataclass(frozen=True)
class Newborn:
    """What a policy begins with."""

    weights: Floats
    """[size]."""
    hyperparameters: dict[str, float]


class Nursery:
    """The orders for the policies of one process."""

    def __init__(self, table: Table, policies: Sequence[str]) -> None:
        """Begin with the policies as they were published last."""
        self._table = table
        self._places = {policy: table.policies.index(policy) for policy in policies}
        self.generations = {p: table.adopted(place) for p, place in self._places.items()}
        """By policy, how many births its learner has carried out."""

    def pending(self) -> str | None:
        """A policy that is to begin anew."""
        for policy, place in self._places.items():
            if self._table.ordered(place) != self.generations[policy]:
                return policy
        return None

    def newborn(self, policy: str) -> Newborn:
        """What it is to begin with."""
        place = self._places[policy]
        return Newborn(self._table.cradle(policy), self._table.hyperparameters(place))

    def adopt(self, policy: str, version: int) -> None:
        """Tell the actor that it has begun, and under which version it was published."""
        self.generations[policy] = self._table.adopt(self._places[policy], version)
