"""The hyperparameters of the policy in each place, in shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.checkpoint.fitting import fitting
from remuda.kernels import njit
from remuda.memory.shared import SharedArrays
from remuda.types import Array, Floats, Integers, State


class PlaceHyperparameters:
    """Hyperparameters (see `remuda.hyperparameters`) of the policy in each place."""

    def __init__(self, shared: SharedArrays, names: Sequence[str]) -> None:
        """Use the arrays of `table_fields`, with these names as columns."""
        self._shared, self.names = shared, tuple(names)

    @property
    def all(self) -> Array:
        """[places, hyperparameters]; NaN: the policy has none of that name."""
        return self._shared["hyperparameters"]

    def of(self, place: int) -> dict[str, float]:
        """Return those of the policy in a place."""
        row = self.all[place].tolist()
        return {n: v for n, v in zip(self.names, row, strict=True) if not math.isnan(v)}

    def by_seat(self, name: str, seated: Integers) -> Floats:
        """Return one of them for each seat: [num_envs, seats]; 0 if unset.

        seated: [num_envs, seats] places.
        """
        return _by_seat(self.all, self.names.index(name), seated)

    def restore(self, state: State) -> None:
        """Restore those in a table's state.

        Unknown names are skipped; new ones keep their values.
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

        For the coordinator, before any process begins, or if no policy is ever born. Otherwise the
        actor writes them.
        """
        row = self.all[place]
        for name, value in hyperparameters.items():
            row[self.names.index(name)] = value


@njit(cache=True)
def _by_seat(all_: Array, column: int, seated: Integers) -> Floats:
    found = np.zeros(seated.shape, np.float32)
    for env in range(seated.shape[0]):
        for seat in range(seated.shape[1]):
            value = all_[seated[env, seat], column]
            if not math.isnan(value):
                found[env, seat] = value
    return found
