"""A policy's training state other than its weights: moments, target networks, schedules.

The state is published with the weights. A new policy of a population may inherit its parent's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda.system.checkpoint.fitting import (
    COUNT,
    FINITE,
    MOST,
    SQUARES,
    Range,
    branch,
    fitting,
    real,
)
from remuda.system.memory.shared import Fields, SharedArrays
from remuda.types import Array, Floats, State

# names of Adam's moments; all other vectors, such as target networks, are copies of weights
MOMENTS = ("mean", "square")
STEPS = "steps"  # the number of optimizer steps
# steps since the exploration schedule started, and steps that the ring had received at that time
# (possibly negative if a parent's schedule is continued)
EXPLORED, BEGUN = "explored", "begun"


@dataclass(frozen=True)
class TrainingLayout:
    """The names of the vectors and numbers in a policy's training state."""

    vectors: tuple[str, ...]
    numbers: tuple[str, ...]

    def fields(self, rows: int, size: int) -> Fields:
        """Return shapes and dtypes of arrays for `rows` states of `size` weights."""
        return {
            "training_vectors": ((rows, len(self.vectors), size), np.float32),
            "training_numbers": ((rows, len(self.numbers)), np.float64),
            "training_held": ((rows,), np.int64),
        }


@dataclass
class TrainingState:
    """One policy's training state, copied out of shared memory."""

    vectors: dict[str, Floats]  # [P] float32 each
    numbers: dict[str, float]

    def state(self) -> State:
        return {"vectors": dict(self.vectors), "numbers": dict(self.numbers)}

    @classmethod
    def restored(cls, state: State, layout: TrainingLayout, like: Array) -> TrainingState:
        """Restore what `state` returned; `like` is any array [P] of the same policy."""
        saved, numbers = branch(state, "vectors"), branch(state, "numbers")
        ranges = {"mean": FINITE, "square": SQUARES}
        vectors = {name: fitting(saved, name, like, ranges.get(name)) for name in layout.vectors}
        return cls(vectors, {name: _number(numbers, name) for name in layout.numbers})

    def adapted(self, layout: TrainingLayout, weights: Floats, fits: bool = True) -> TrainingState:
        """Return the state that a new policy with these weights [P] inherits.

        If the weights are not the parent's (`fits` is False), moments and optimizer steps start at
        zero. All other vectors are copies of the weights, and all other numbers are inherited.
        """
        inherited = self.vectors if fits else {}
        vectors = {
            name: inherited.get(name, np.zeros_like(weights) if name in MOMENTS else weights)
            for name in layout.vectors
        }
        numbers = {name: self.numbers.get(name, 0.0) for name in layout.numbers}
        if not fits:
            numbers[STEPS] = 0.0
        return TrainingState(vectors, numbers)


def _number(numbers: State, name: str) -> float:
    if name not in numbers:
        return 0.0
    return real(numbers, name, Range(-MOST, MOST) if name == BEGUN else COUNT)


class TrainingRows:
    """Training states of one policy, in the shared arrays of `TrainingLayout.fields`.

    An instance keeps the whole `SharedArrays`, because pickling single arrays would copy them. The
    modules `publish.snapshot` and `population.members.births` state which process writes a row.
    """

    def __init__(self, layout: TrainingLayout, shared: SharedArrays) -> None:
        self.layout, self._shared = layout, shared

    def write(self, row: int, training: TrainingState | None) -> None:
        shared = self._shared
        shared["training_held"][row] = training is not None
        if training is not None:
            for i, name in enumerate(self.layout.vectors):
                shared["training_vectors"][row, i] = training.vectors[name]
            for i, name in enumerate(self.layout.numbers):
                shared["training_numbers"][row, i] = training.numbers[name]

    def read(self, row: int) -> TrainingState | None:
        shared = self._shared
        if not shared["training_held"][row]:
            return None
        vectors, numbers = shared["training_vectors"][row], shared["training_numbers"][row].tolist()
        return TrainingState(
            dict(zip(self.layout.vectors, vectors.copy(), strict=True)),
            dict(zip(self.layout.numbers, numbers, strict=True)),
        )
