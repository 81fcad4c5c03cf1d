"""The hyperparameters that the policy in each place is trained with, in shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from remuda.hyperparameters import HYPERPARAMETERS
from remuda.memory.shared import SharedArrays
from remuda.types import Array


class PlaceHyperparameters:
    """By place, those of `remuda.hyperparameters` that the policy there has."""

    def __init__(self, shared: SharedArrays) -> None:
        """Keep them in the arrays of `table_fields`."""
        self._shared = shared

    @property
    def all(self) -> Array:
        """[places, hyperparameters]; not a number: it has none of that name."""
        return self._shared["hyperparameters"]

    def of(self, place: int) -> dict[str, float]:
        """Those of the policy in a place, by name."""
        row = self.all[place].tolist()
        return {n: v for n, v in zip(HYPERPARAMETERS, row, strict=True) if not math.isnan(v)}

    def put(self, place: int, hyperparameters: Mapping[str, float]) -> None:
        """Replace all of a place."""
        self.all[place] = [hyperparameters.get(name, np.nan) for name in HYPERPARAMETERS]

    def change(self, place: int, hyperparameters: Mapping[str, float]) -> None:
        """Replace some of a place.

        For the coordinator: before any role begins, or where no policy is ever born. Else they
        are the actor's to write.
        """
        row = self.all[place]
        for name, value in hyperparameters.items():
            row[HYPERPARAMETERS.index(name)] = value
