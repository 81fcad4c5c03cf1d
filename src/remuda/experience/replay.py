"""The learner's end of experience: what it draws from all that is kept, as often as it likes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from remuda.checkpoint.fitting import whole
from remuda.checkpoint.state import restore_rng, rng_state
from remuda.experience.experience import Experience
from remuda.experience.ring import ExperienceRing
from remuda.types import Bools, Floats, Integers, State


class Weighed(Protocol):
    """What is drawn for K policies, [K, ...] each."""

    @property
    def weights(self) -> Floats:
        """[K, B]: what each item counts; [K, 0]: all the same."""


B = TypeVar("B", bound=Weighed)


@dataclass(frozen=True)
class Held:
    """A ring, and what it held when it was looked at."""

    ring: ExperienceRing
    own: bool
    """Whether it is the policy's own."""
    sequences: Integers
    """By segment."""
    ends: Integers
    """Where the items of each segment end in the list of all of its items."""


class Replay(ABC, Generic[B]):
    """Draws items from a policy's own experience and its group's, each with the same chance.

    What an item is, a step or a segment, subclasses say. Nothing is waited for; what its writer
    overtakes is drawn anew.
    """

    def __init__(
        self,
        sources: Sequence[Experience],
        n_steps: int,
        discount: float,
        random: np.random.Generator,
        check_sequence: bool = True,
    ) -> None:
        """Draw from these; the policy's own experience comes first."""
        self.experience = experience = sources[0]
        experience.warm_up()
        self.redrawn = 0
        """Draws that the writer overtook, and that were drawn again."""
        self._random, self._check = random, check_sequence
        self._n_steps, self.discount = n_steps, discount
        shape = experience.shape
        self._sizes: Integers = np.array(shape.choices or (shape.mask_size,), np.int64)
        self._held = tuple(
            Held(
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
        """Room for so many items of each of K policies; `weighed`: they may have weights."""

    def sample(self, out: B, policy: int, size: int, beta: float = 1.0) -> bool:  # noqa: ARG002
        """Draw so many items into row `policy` of a batch; False: there is none at all.

        Args:
            out: to be written.
            policy: the row.
            size: how many.
            beta: how far weights make up for what is drawn more often than others.
        """
        todo: Bools = np.ones(size, np.bool_)
        left = size
        while left:
            total = self._survey()
            if total == 0:
                return False
            left = self._draw(self._random.integers(0, total, size), todo, out, policy)
            self.redrawn += left
        return True

    def learn(self, errors: Floats) -> None:
        """Know how far the last items [B] were from what was expected: it makes no difference."""

    def forget(self) -> None:
        """Know nothing of what was drawn: another policy learns."""

    def state(self, whole: bool = False) -> State:  # noqa: ARG002
        """Its random stream, and what it counted.

        Args:
            whole: whether the experience is saved, too.
        """
        return {"random": rng_state(self._random), "redrawn": self.redrawn}

    def restore(self, state: State) -> None:
        """Go on drawing where `state` was called."""
        restore_rng(self._random, state["random"])
        self.redrawn = whole(state, "redrawn")

    @abstractmethod
    def _note(self, ring: ExperienceRing, sequences: Integers, ends: Integers) -> int:
        """Note what a ring holds, as `Held` has it; returns its items."""

    @abstractmethod
    def _copy(
        self, held: Held, picks: Integers, todo: Bools, out: B, policy: int, base: int
    ) -> int:
        """Copy those picks of a ring's items, which are numbered from `base` on, still to do.

        Returns how many the writer overtook.
        """

    def _survey(self) -> int:
        """Look at every ring; returns the items in all of them."""
        return sum(self._note(held.ring, held.sequences, held.ends) for held in self._held)

    def _draw(self, picks: Integers, todo: Bools, out: B, policy: int) -> int:
        """Copy the picks that are still to do, and mark them done.

        Returns how many the writers overtook; they stay to do.
        """
        left = base = 0
        for held in self._held:
            left += self._copy(held, picks, todo, out, policy, base)
            base += int(held.ends[-1])
        return left
