"""What a newborn begins with, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.population.records import PolicyRef
from remuda.publish.training_state import TrainingState
from remuda.types import Floats


@dataclass(frozen=True)
class Beginning:
    """What stands in the table for a newborn, besides who it is.

    weights: [size] of the network of its place.
    """

    weights: Floats
    parent: PolicyRef | None = None
    training: TrainingState | None = None
