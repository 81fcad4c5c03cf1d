"""What is known of a policy's training besides its weights: moments, slow copies, schedules.

It is published in the row of the weights that it belongs to, where newborn policies take it over
from their parents, and a birth that was ordered holds it for the learner of the newborn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda.checkpoint.fitting import COUNT, FINITE, MOST, SQUARES, Range, branch, fitting, real
from remuda.memory.shared import Fields, SharedArrays
from remuda.types import Array, Floats, State

MOMENTS = ("mean", "square")
"""Vectors that are an optimizer's moments of the gradients; any other is a copy of weights."""
STEPS = "steps"
"""The number that says how many steps are behind these moments."""
EXPLORED, BEGUN = "explored", "begun"
"""Numbers of a policy that explores less and less: the steps that were lived through since its
schedule began, and how many were written in its place when it began, which may be negative."""


RANGES = {"mean": FINITE, "square": SQUARES}
"""Of the numbers of vectors that are moments."""


@dataclass(frozen=True)
class TrainingLayout:
    """What a policy's training state consists of.

    Attributes:
        vectors: names of what is as long as the weights, [P] float32.
        numbers: names of single numbers.
    """

    vectors: tuple[str, ...]
    numbers: tuple[str, ...]

    def fields(self, rows: int, size: int) -> Fields:
        """Shared arrays for so many states of a policy of `size` weights; see `TrainingRows`."""
        return {
            "training_vectors": ((rows, len(self.vectors), size), np.float32),
            "training_numbers": ((rows, len(self.numbers)), np.float64),
            "training_held": ((rows,), np.int64),
        }


@dataclass
class TrainingState:
    """One policy's training state, copied out of where it is kept."""

    vectors: dict[str, Floats]
    """By name: [P] float32."""
    numbers: dict[str, float]

    def state(self) -> State:
        """It as plain data."""
        return {"vectors": dict(self.vectors), "numbers": dict(self.numbers)}

    @classmethod
    def restored(cls, state: State, layout: TrainingLayout, like: Array) -> TrainingState:
        """What `state` returned, laid out so; `like` is a vector of its policy."""
        saved, numbers = branch(state, "vectors"), branch(state, "numbers")
        vectors = {name: fitting(saved, name, like, RANGES.get(name)) for name in layout.vectors}
        return cls(vectors, {name: _number(numbers, name) for name in layout.numbers})

    def adapted(self, layout: TrainingLayout, weights: Floats, fits: bool = True) -> TrainingState:
        """What a policy that is laid out so takes over of it, to go on from these weights.

        Args:
            layout: of what is kept of that policy.
            weights: [P] that it begins with.
            fits: whether they are the weights that this belongs to; if not, moments begin at zero
                and copies of weights are made anew, and only the numbers go on.
        """
        kept = self.vectors if fits else {}
        vectors = {
            name: kept.get(name, np.zeros_like(weights) if name in MOMENTS else weights)
            for name in layout.vectors
        }
        numbers = {name: self.numbers.get(name, 0.0) for name in layout.numbers}
        if not fits:
            numbers[STEPS] = 0.0
        return TrainingState(vectors, numbers)


def _number(numbers: State, name: str) -> float:
    """A number of a training state that was saved; 0: none of that name was."""
    if name not in numbers:
        return 0.0
    return real(numbers, name, Range(-MOST, MOST) if name == BEGUN else COUNT)


class TrainingRows:
    """Training states of one policy in shared arrays, those of `TrainingLayout.fields`.

    It crosses to children with these: it holds the block, and no array of it, which would be
    copied.

    Who writes a row, and when another process may read it, is said by the class that has them:
    `remuda.publish.snapshot` and `remuda.population.births`.
    """

    def __init__(self, layout: TrainingLayout, shared: SharedArrays) -> None:
        self.layout, self._shared = layout, shared

    def write(self, row: int, training: TrainingState | None) -> None:
        """Copy a state into a row; None: there is none of these weights."""
        shared = self._shared
        shared["training_held"][row] = training is not None
        if training is not None:
            for i, name in enumerate(self.layout.vectors):
                shared["training_vectors"][row, i] = training.vectors[name]
            for i, name in enumerate(self.layout.numbers):
                shared["training_numbers"][row, i] = training.numbers[name]

    def read(self, row: int) -> TrainingState | None:
        """A copy of what is in a row; None: there is nothing."""
        shared = self._shared
        if not shared["training_held"][row]:
            return None
        vectors, numbers = shared["training_vectors"][row], shared["training_numbers"][row].tolist()
        return TrainingState(
            dict(zip(self.layout.vectors, vectors.copy(), strict=True)),
            dict(zip(self.layout.numbers, numbers, strict=True)),
        )
