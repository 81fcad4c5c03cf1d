"""The learner's end of experience for replay: repeated draws of all that is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np

from remuda.checkpoint.fitting import whole
from remuda.checkpoint.state import restore_rng, rng_state
from remuda.experience.experience import Experience
from remuda.experience.ring import ExperienceRing
from remuda.kernels import njit
from remuda.memory.atomic import load
from remuda.types import Bools, Floats, Integers, State


class Weighed(Protocol):
    """A batch for K policies, [K, ...] each."""

    @property
    def weights(self) -> Floats:
        """Return the weight of each item, [K, B], or [K, 0] for equal weights."""


B = TypeVar("B", bound=Weighed)


@dataclass(frozen=True)
class SurveyedRing:
    """A ring, and its content at the last survey."""

    ring: ExperienceRing
    own: bool  # whether it is the policy's own
    sequences: Integers  # by segment
    ends: Integers  # end of each segment's items in the list of all of its items


class Replay(ABC, Generic[B]):
    """Draws items, steps or segments, from a policy's own experience and its group's, uniformly.

    Nothing is waited for; what a writer overtakes is drawn again.
    """

    draws_segments: ClassVar[bool] = False  # items are whole segments, not steps

    def __init__(
        self,
        sources: Sequence[Experience],
        n_steps: int,
        discount: float,
        rng: np.random.Generator,
        check_sequence: bool = True,
    ) -> None:
        """Draw from these; the policy's own experience comes first."""
        self.experience = experience = sources[0]
        experience.warm_up()
        self.redrawn = 0  # draws repeated because a writer overtook them
        self._rng, self._check = rng, check_sequence
        self._n_steps, self.discount = n_steps, discount
        shape = experience.shape
        self._sizes: Integers = np.array(shape.choices or (shape.mask_size,), np.int64)
        self._held = tuple(
            SurveyedRing(
                ring,
                i == 0,
                np.zeros(ring.num_segments, np.int64),
                np.zeros(ring.num_segments, np.int64),
            )
            for i, found in enumerate(sources)
            for ring in found.rings
        )
        self._survey()
        # Nothing to do: this compiles the kernels.
        nothing: Bools = np.zeros(1, np.bool_)
        self._draw(np.zeros(1, np.int64), nothing, self.empty(1, 1), 0)

    @abstractmethod
    def empty(self, num_policies: int, size: int, weighed: bool = False) -> B:
        """Allocate so many items of each of K policies, with weights if `weighed`."""

    def sample(self, out: B, policy: int, size: int, beta: float = 1.0) -> bool:  # noqa: ARG002
        """Draw items into row `policy` of a batch; return False if there are none."""
        todo: Bools = np.ones(size, np.bool_)
        left = size
        while left:
            total = self._survey()
            if total == 0:
                return False
            left = self._draw(self._rng.integers(0, total, size), todo, out, policy)
            self.redrawn += left
        return True

    def learn(self, errors: Floats) -> None:
        """Use the errors [B] of the last draw; uniform replay does not."""

    def forget(self) -> None:
        """Forget priorities: another policy learns."""

    def state(self, whole: bool = False) -> State:  # noqa: ARG002
        return {"random": rng_state(self._rng), "redrawn": self.redrawn}

    def restore(self, state: State) -> None:
        restore_rng(self._rng, state["random"])
        self.redrawn = whole(state, "redrawn")

    @abstractmethod
    def _copy(
        self, held: SurveyedRing, picks: Integers, todo: Bools, out: B, policy: int, base: int
    ) -> int:
        """Copy this ring's `picks`, numbered from `base` on; return how many were overtaken."""

    def _survey(self) -> int:
        total = 0
        for held in self._held:
            sequence, committed = (held.ring.shared[name] for name in ("sequence", "committed"))
            total += _survey(sequence, committed, held.sequences, held.ends, self.draws_segments)
        return total

    def _draw(self, picks: Integers, todo: Bools, out: B, policy: int) -> int:
        """Copy the picks in `todo`, and mark them done; return how many were overtaken."""
        left = base = 0
        for held in self._held:
            left += self._copy(held, picks, todo, out, policy, base)
            base += int(held.ends[-1])
        return left


@njit(cache=True)
def _survey(
    sequence: Integers, committed: Integers, sequences: Integers, ends: Integers, by_segment: bool
) -> int:
    """Note each segment's sequence, and where its items end in the list of all: steps, or one."""
    total = 0
    for slot in range(sequence.size):
        sequences[slot] = load(sequence, slot)
        if sequences[slot] % 2 == 0:
            steps = load(committed, slot)
            total += min(steps, 1) if by_segment else steps
        ends[slot] = total
    return total
