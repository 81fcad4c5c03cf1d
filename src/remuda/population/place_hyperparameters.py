"""The hyperparameters that the policy in each place is trained with, in shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.checkpoint.state import fitting
from remuda.hyperparameters import HYPERPARAMETERS
from remuda.memory.shared import SharedArrays
from remuda.types import Array, State

EARLIER = tuple(name for name in HYPERPARAMETERS if name != "share_rewards")
"""What checkpoints hold that do not name them."""


class PlaceHyperparameters:
    """By place, those of `remuda.hyperparameters` that the policy there has."""

    def __init__(self, shared: SharedArrays, names: Sequence[str]) -> None:
        """Keep them in the arrays of `table_fields`; `names`: in this order."""
        self._shared, self.names = shared, tuple(names)

    @property
    def all(self) -> Array:
        """[places, hyperparameters]; not a number: it has none of that name."""
        return self._shared["hyperparameters"]

    def of(self, place: int) -> dict[str, float]:
        """Those of the policy in a place, by name."""
        row = self.all[place].tolist()
        return {n: v for n, v in zip(self.names, row, strict=True) if not math.isnan(v)}

    def restore(self, state: State) -> None:
        """Take over those of a table's state, by name.

        Those of a name that there is no more are left out; those that are new stay as they are.

        Raises:
            CheckpointError: it is of another number of places.
        """
        found = list(state.get("hyperparameter_names", EARLIER))
        like = np.empty((len(self.all), len(found)))
        values = fitting(state, "hyperparameters", like)
        for column, name in enumerate(self.names):
            if name in found:
                self.all[:, column] = values[:, found.index(name)]

    def put(self, place: int, hyperparameters: Mapping[str, float]) -> None:
        """Replace all of a place."""
        self.all[place] = [hyperparameters.get(name, np.nan) for name in self.names]

    def change(self, place: int, hyperparameters: Mapping[str, float]) -> None:
        """Replace some of a place.

        For the coordinator: before any role begins, or where no policy is ever born. Else they
        are the actor's to write.
        """
        row = self.all[place]
        for name, value in hyperparameters.items():
            row[self.names.index(name)] = value
