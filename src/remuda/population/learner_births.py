"""The learner's side of births: the policy to train in each of its places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remuda.population.table import Table
from remuda.publish.training_state import TrainingState
from remuda.types import Floats


@dataclass(frozen=True)
class Newborn:
    """The initial state of a policy."""

    weights: Floats
    hyperparameters: dict[str, float]
    training: TrainingState | None = None  # training state; None: a fresh one


class LearnerBirths:
    """The births to be carried out by the learners of one process; see `births`.

    Without a table no policy is ever born, and all exist from the start.
    """

    def __init__(self, table: Table | None, policies: Sequence[str]) -> None:
        """Begin with the policies as they were published last."""
        self._table = table
        self._places = {p: table.policies.index(p) for p in policies} if table is not None else {}
        self.generations = dict.fromkeys(policies, 0)
        """Births that the learner of each policy has carried out."""
        if table is not None:
            for policy, place in self._places.items():
                self.generations[policy] = table.births.confirmed(place)

    def plays(self, policy: str) -> bool:
        """Return whether a policy is in its place in the population."""
        return self._table is None or self._table.occupants.is_there(self._places[policy])

    def hyperparameters(self, policy: str) -> dict[str, float]:
        """Return the policy's hyperparameters that differ from the configured ones."""
        if self._table is None:
            return {}
        return self._table.hyperparameters.of(self._places[policy])

    def pending(self) -> str | None:
        """Return a policy that must start again, if any."""
        if self._table is not None:
            for policy, place in self._places.items():
                if self._table.births.ordered(place) != self.generations[policy]:
                    return policy
        return None

    def newborn(self, policy: str) -> Newborn:
        """Return the initial state of a newborn."""
        assert self._table is not None
        births = self._table.births
        weights, training = births.newborn_weights(policy), births.newborn_training(policy)
        return Newborn(weights, self.hyperparameters(policy), training)

    def confirm(self, policy: str, version: int) -> None:
        """Report to the actor that the newborn was published under this version."""
        assert self._table is not None
        self.generations[policy] = self._table.births.confirm(self._places[policy], version)
