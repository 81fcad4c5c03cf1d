"""What a newborn is taught by before it plays: states of its parents, and what they do there.

The actor that orders a birth copies states out of the parents' rings, which it writes itself, and
asks the parents' networks about them; both stand in the table with the order. So the learner of the
newborn needs neither the parents' experience nor their networks, and if any role is killed
meanwhile, its successor teaches the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from remuda.checkpoint.fitting import FINITE, fitting, whole
from remuda.memory.shared import Fields, SharedArrays
from remuda.types import Array, Floats, State


class Arrays(Protocol):
    """A ring's arrays, by name."""

    def __getitem__(self, name: str) -> Array: ...


PARENTS = 2
"""The most parents of a newborn."""


@dataclass(frozen=True)
class Lesson:
    """What one parent does."""

    states: Floats
    targets: Floats


@dataclass(frozen=True)
class Lessons:
    """All that a newborn is taught by, and for how long."""

    steps: int
    """Of gradient descent."""
    of_parents: tuple[Lesson, ...]


@dataclass(frozen=True)
class LessonLayout:
    """The size of lessons of one policy."""

    states: int
    """The most of each parent."""
    inputs: int
    outputs: int

    @property
    def fields(self) -> Fields:
        """Shared arrays for the lessons of one newborn; see `LessonRows`."""
        return {
            "lesson_states": ((PARENTS, self.states, self.inputs), np.float32),
            "lesson_targets": ((PARENTS, self.states, self.outputs), np.float32),
            "lesson_counts": ((PARENTS + 1,), np.int64),  # states of each; and steps
        }


class LessonRows:
    """The lessons of the next newborn in one place; see `remuda.population.births` for who writes.

    It crosses to children with the block that it holds.
    """

    def __init__(self, layout: LessonLayout, shared: SharedArrays) -> None:
        self.layout, self._shared = layout, shared

    def write(self, lessons: Lessons | None) -> None:
        """Keep these; None: there are none."""
        shared, counts = self._shared, np.zeros(PARENTS + 1, np.int64)
        for i, lesson in enumerate(lessons.of_parents if lessons is not None else ()):
            counts[i] = len(lesson.states)
            shared["lesson_states"][i, : counts[i]] = lesson.states
            shared["lesson_targets"][i, : counts[i]] = lesson.targets
        counts[PARENTS] = lessons.steps if lessons is not None else 0
        shared["lesson_counts"][...] = counts

    def read(self) -> Lessons | None:
        """A copy of what is kept; None: there is nothing to teach."""
        shared = self._shared
        *counts, steps = shared["lesson_counts"].tolist()
        found = [
            Lesson(shared["lesson_states"][i, :n].copy(), shared["lesson_targets"][i, :n].copy())
            for i, n in enumerate(counts)
            if n
        ]
        return Lessons(steps, tuple(found)) if found and steps else None

    def state(self) -> State:
        """It as plain data."""
        found = self.read()
        lessons = found.of_parents if found is not None else ()
        return {
            "steps": found.steps if found is not None else 0,
            "states": {str(i): lesson.states for i, lesson in enumerate(lessons)},
            "targets": {str(i): lesson.targets for i, lesson in enumerate(lessons)},
        }

    def restore(self, state: State) -> None:
        """Keep what `state` returned."""
        layout, found = self.layout, []
        for i in map(str, range(min(len(state["states"]), PARENTS))):
            count = min(len(state["states"][i]), layout.states)
            likes = [
                np.empty((count, width), np.float32) for width in (layout.inputs, layout.outputs)
            ]
            cut = {name: state[name][i][:count] for name in ("states", "targets")}
            found.append(
                Lesson(
                    fitting(cut, "states", likes[0], FINITE),
                    fitting(cut, "targets", likes[1], FINITE),
                )
            )
        self.write(Lessons(whole(state, "steps"), tuple(found)))


def states_of(
    rings: Sequence[Arrays], count: int, n_frames: int, rng: np.random.Generator
) -> Floats:
    """Some of the states in a policy's rings, each with the same chance: [at most count, n].

    For the process that writes these rings: nothing is written meanwhile.
    """
    committed = np.concatenate(
        [
            np.zeros(0, np.int64),
            *(np.where(r["sequence"] % 2 == 0, r["committed"], 0) for r in rings),
        ]
    )
    ends = np.cumsum(committed)
    total = int(committed.sum())
    drawn = rng.choice(total, min(count, total), replace=False)
    slots = np.searchsorted(ends, drawn, side="right")
    steps = drawn - (ends - committed)[slots]
    firsts = np.cumsum([0, *(len(ring["sequence"]) for ring in rings)])
    owners = np.searchsorted(firsts, slots, side="right") - 1
    found = [
        rings[ring]["observations"][slot - firsts[ring], t : t + n_frames].reshape(-1)
        for ring, slot, t in zip(owners, slots, steps, strict=True)
    ]
    width = n_frames * rings[0]["observations"].shape[-1] if rings else 0
    return np.array(found, np.float32).reshape(len(found), width)
