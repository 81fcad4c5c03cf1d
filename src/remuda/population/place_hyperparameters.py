"""The hyperparameters that the policy in each place is trained with, in shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.memory.shared import SharedArrays
from remuda.types import Array


class PlaceHyperparameters:
    """By place, those of `remuda.hyperparameters` that the policy there has."""

    def __init__(self, shared: SharedArrays, names: Sequence[str]) -> None:
        """Keep them in the arrays of `table_fields`; `names`: in this order."""
        self._shared, self._names = shared, tuple(names)

    @property
    def all(self) -> Array:
        """[places, hyperparameters]; not a number: it has none of that name."""
        return self._shared["hyperparameters"]

    def of(self, place: int) -> dict[str, float]:
        """Those of the policy in a place, by name."""
        row = self.all[place].tolist()
        return {n: v for n, v in zip(self._names, row, strict=True) if not math.isnan(v)}

    def put(self, place: int, hyperparameters: Mapping[str, float]) -> None:
        """Replace all of a place."""
        self.all[place] = [hyperparameters.get(name, np.nan) for name in self._names]

    def change(self, place: int, hyperparameters: Mapping[str, float]) -> None:
        """Replace some of a place.

        For the coordinator: before any role begins, or where no policy is ever born. Else they
        are the actor's to write.
        """
        row = self.all[place]
        for name, value in hyperparameters.items():
            row[self._names.index(name)] = value
