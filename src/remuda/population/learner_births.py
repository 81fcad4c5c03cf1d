"""The learner's end of births: which policy is to be trained from now on in each of its places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remuda.population.table import Table
from remuda.publish.training_state import TrainingState
from remuda.types import Floats


@dataclass(frozen=True)
class Newborn:
    """What a policy begins with."""

    weights: Floats
    """[size]."""
    hyperparameters: dict[str, float]
    training: TrainingState | None = None
    """How it is trained on; None: as anew."""


class LearnerBirths:
    """The births to be carried out by the learners of one process; see `remuda.population.births`.

    Without a table no policy is ever born, and all are there from the start.
    """

    def __init__(self, table: Table | None, policies: Sequence[str]) -> None:
        """Begin with the policies as they were published last."""
        self._table = table
        self._places = {p: table.policies.index(p) for p in policies} if table is not None else {}
        self.generations = dict.fromkeys(policies, 0)
        """By policy, how many births its learner has carried out."""
        if table is not None:
            for policy, place in self._places.items():
                self.generations[policy] = table.births.confirmed(place)

    def plays(self, policy: str) -> bool:
        """Whether a policy is there: its place in the population is not empty."""
        return self._table is None or self._table.occupants.is_there(self._places[policy])

    def hyperparameters(self, policy: str) -> dict[str, float]:
        """Those of the policy that has this place now, where they are not those configured."""
        if self._table is None:
            return {}
        return self._table.hyperparameters.of(self._places[policy])

    def pending(self) -> str | None:
        """A policy that is to begin anew."""
        if self._table is not None:
            for policy, place in self._places.items():
                if self._table.births.ordered(place) != self.generations[policy]:
                    return policy
        return None

    def newborn(self, policy: str) -> Newborn:
        """What it is to begin with."""
        assert self._table is not None
        births = self._table.births
        weights, training = births.newborn_weights(policy), births.newborn_training(policy)
        return Newborn(weights, self.hyperparameters(policy), training)

    def confirm(self, policy: str, version: int) -> None:
        """Tell the actor that it has begun, and under which version it was published."""
        assert self._table is not None
        self.generations[policy] = self._table.births.confirm(self._places[policy], version)
