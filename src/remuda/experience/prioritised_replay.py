"""Replay that draws items with large errors more often."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from remuda.experience.experience import Experience
from remuda.experience.priorities import Drawn, Priorities
from remuda.experience.replay import B, Replay
from remuda.experience.ring import LOST
from remuda.experience.sequence_replay import SequenceBatch, SequenceReplay
from remuda.experience.transition_replay import Batch, TransitionReplay
from remuda.memory.atomic import load
from remuda.types import Bools, Floats, Integers, State


class Prioritised(Replay[B]):
    """Replay of items in proportion to their last errors."""

    def __init__(
        self,
        sources: Sequence[Experience],
        n_steps: int,
        discount: float,
        rng: np.random.Generator,
        alpha: float,
        check_sequence: bool = True,
    ) -> None:
        super().__init__(sources, n_steps, discount, rng, check_sequence)
        segments = sum(len(held.sequences) for held in self._held)
        self._priorities = Priorities(alpha, segments, self._items)
        self._drawn = Drawn.empty(1)
        # On nothing: this compiles the kernels.
        self._follow()
        self._priorities.draw(np.zeros(1), self._ends(), np.zeros(1, np.bool_), self._drawn)
        self.learn(np.full(1, np.nan, np.float32))

    @property
    @abstractmethod
    def _items(self) -> int:
        """Return the most items of a segment."""

    def sample(self, out: B, policy: int, size: int, beta: float = 1.0) -> bool:
        """Draw so many samples into row `policy` of a batch, with importance weights."""
        todo: Bools = np.ones(size, np.bool_)
        left, self._drawn = size, Drawn.empty(size)
        while left:
            if self._survey() == 0:
                return False
            self._follow()
            uniforms = self._rng.random(size)
            picks = self._priorities.draw(uniforms, self._ends(), todo, self._drawn)
            left = self._draw(picks, todo, out, policy)
            self.redrawn += left
        out.weights[policy, :size] = self._drawn.weights(beta)
        return True

    def learn(self, errors: Floats) -> None:
        self._priorities.learn(self._drawn, errors)

    def forget(self) -> None:
        self._priorities.forget()

    def state(self, whole: bool = False) -> State:
        known = {"lost": self._lost(), **self._priorities.state()} if whole else None
        return super().state() | {"priorities": known}

    def restore(self, state: State) -> None:
        """Restore what `state` returned; priorities only if the same steps are there."""
        super().restore(state)
        known = state.get("priorities")
        if known is None or not np.array_equal(known["lost"], self._lost()):
            self.forget()  # their segments would bear the same numbers
        else:
            self._priorities.restore(known)

    def _follow(self) -> None:
        sequences = [held.sequences for held in self._held]
        self._priorities.follow(np.concatenate(sequences), self._ends())

    def _ends(self) -> Integers:
        """Return where each segment's items end in the list of all items of all rings."""
        ends, base = [], 0
        for held in self._held:
            ends.append(held.ends + base)
            base += int(held.ends[-1])
        found: Integers = np.concatenate(ends)
        return found

    def _lost(self) -> Integers:
        """Return, by ring, the steps before those that it holds."""
        rings = [held.ring for held in self._held]
        found: Integers = np.array([load(r.counters, LOST) for r in rings], np.int64)
        return found


class PrioritisedReplay(Prioritised[Batch], TransitionReplay):
    """Prioritised replay of steps."""

    @property
    def _items(self) -> int:
        return self.experience.config.segment_length


class PrioritisedSequences(Prioritised[SequenceBatch], SequenceReplay):
    """Prioritised replay of segments, whatever their length."""

    @property
    def _items(self) -> int:
        return 1
