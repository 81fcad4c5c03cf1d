"""What a newborn begins with, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.population.lessons import Lessons
from remuda.population.records import PolicyRef
from remuda.publish.training_state import TrainingState
from remuda.types import Floats


@dataclass(frozen=True)
class Beginning:
    """What stands in the table for a newborn, besides who it is.

    Attributes:
        weights: [size] of the network of its place.
        parent: whose, with the version; None: they were drawn.
        training: how they are trained on; None: as anew.
        lessons: what it is taught by before it plays; None: it is not taught.
    """

    weights: Floats
    parent: PolicyRef | None = None
    training: TrainingState | None = None
    lessons: Lessons | None = None
