"""The learner's end of a birth: who is to be trained from now on in a place of the population.

The actor empties a policy's ring, puts the newborn's weights and hyperparameters into the table,
and counts an order. The learner begins with them, publishes them, and says so: from then on the
actor may deal the newborn seats. If the learner dies in between, its successor finds the order
still open, and carries it out from its beginning; if the actor dies, its successor admits the
newborn.
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

    def __init__(self, table: Table | None, policies: Sequence[str]) -> None:
        """Begin with the policies as they were published last.

        Args:
            table: of the population; None: no policy is ever born, all are there from the start.
            policies: of this process.
        """
        self._table = table
        self._places = {p: table.policies.index(p) for p in policies} if table is not None else {}
        self.generations = dict.fromkeys(policies, 0)
        """By policy, how many births its learner has carried out."""
        if table is not None:
            for policy, place in self._places.items():
                self.generations[policy] = table.adopted(place)

    def plays(self, policy: str) -> bool:
        """Whether a policy is there: its place in the population is not empty."""
        return self._table is None or self._table.is_there(self._places[policy])

    def hyperparameters(self, policy: str) -> dict[str, float]:
        """Those of the policy that has this place now, where they are not those configured."""
        return {} if self._table is None else self._table.hyperparameters(self._places[policy])

    def pending(self) -> str | None:
        """A policy that is to begin anew."""
        if self._table is not None:
            for policy, place in self._places.items():
                if self._table.ordered(place) != self.generations[policy]:
                    return policy
        return None

    def newborn(self, policy: str) -> Newborn:
        """What it is to begin with."""
        assert self._table is not None
        return Newborn(self._table.cradle(policy), self.hyperparameters(policy))

    def adopt(self, policy: str, version: int) -> None:
        """Tell the actor that it has begun, and under which version it was published."""
        assert self._table is not None
        self.generations[policy] = self._table.adopt(self._places[policy], version)
