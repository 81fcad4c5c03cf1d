"""The hyperparameters that the policy in each place is trained with, in shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.checkpoint.fitting import fitting
from remuda.kernels import njit
from remuda.memory.shared import SharedArrays
from remuda.types import Array, Floats, Integers, State


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

    def by_seat(self, name: str, seated: Integers) -> Floats:
        """One of them, of who sits where: [num_envs, seats]; 0 where they have none.

        seated: [num_envs, seats] places.
        """
        return _by_seat(self.all, self.names.index(name), seated)

    def restore(self, state: State) -> None:
        """Take over those of a table's state, by name.

        Those of a name that there is no more are left out; those that are new stay as they are.
        """
        found = [str(name) for name in state["hyperparameter_names"]]
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


@njit(cache=True)
def _by_seat(all_: Array, column: int, seated: Integers) -> Floats:
    """See `PlaceHyperparameters.by_seat`."""
    found = np.zeros(seated.shape, np.float32)
    for env in range(seated.shape[0]):
        for seat in range(seated.shape[1]):
            value = all_[seated[env, seat], column]
            if not math.isnan(value):
                found[env, seat] = value
    return found
