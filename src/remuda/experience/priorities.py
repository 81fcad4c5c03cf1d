"""Proportional prioritisation of replayed steps (Schaul et al. 2016, sections 3.3 and 3.4).

Step i is drawn with probability P(i) = p_i^alpha / sum_k p_k^alpha, where p_i is the absolute value
of its last temporal-difference error. A new step gets the largest priority so far. Importance
weights (N P(i))^-beta correct the bias, where N is the number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remuda.experience.experience import Experience
from remuda.experience.replay import B, Batch, Replay, TransitionReplay
from remuda.experience.ring import LOST
from remuda.experience.sequence_replay import SequenceBatch, SequenceReplay
from remuda.system.checkpoint.fitting import COUNT, FINITE_64, Range, fitting_all, real, require
from remuda.system.kernels import njit
from remuda.system.memory.atomic import load
from remuda.types import Bools, Floats, Integers, State

LEAST = 1e-6  # added to each absolute error, so every step can be drawn again (section 3.3)


@dataclass(frozen=True)
class Drawn:
    """The items drawn for a batch, [B] each."""

    leaves: Integers  # index of the leaf that holds the item's priority
    sequences: Integers  # `sequence` of the item's segment
    shares: np.ndarray  # N P(i), which is 1 if all items are equally likely

    @staticmethod
    def empty(size: int) -> Drawn:
        return Drawn(np.zeros(size, np.int64), np.zeros(size, np.int64), np.ones(size))

    def weights(self, beta: float) -> Floats:
        """Return importance weights, scaled so the largest is 1."""
        weights = self.shares**-beta
        found: Floats = (weights / weights.max()).astype(np.float32)
        return found


class Priorities:
    """The priorities of all items that a policy replays, in a sum tree.

    The leaves are p^alpha, `length` for each segment: one for each step, or for each piece. Each
    node is the sum of its two children. The tree is private to the learner. When a segment is
    overwritten, its `sequence` changes, and its old priorities are removed.
    """

    def __init__(self, alpha: float, segments: int, length: int) -> None:
        self._alpha, self._length = alpha, length
        self._half = leaves_for(segments * length)
        # node 1 is the total, node n is the parent of 2 n and 2 n + 1, the leaves are last
        self._sums = np.zeros(2 * self._half)
        self._sequences: Integers = np.zeros(segments, np.int64)
        self._committed: Integers = np.zeros(segments, np.int64)
        self._arrays = (self._sums, self._sequences, self._committed)
        self._greatest = 1.0

    @property
    def leaves(self) -> np.ndarray:
        """Return a view of the leaves: [segments, length]."""
        shape = (len(self._sequences), self._length)
        return self._sums[self._half :][: math.prod(shape)].reshape(shape)

    def follow(self, sequences: Integers, ends: Integers) -> None:
        """Update the tree for new and overwritten items; `ends` [S] are cumulative item counts."""
        _follow(*self._arrays, sequences, ends, self._length, self._greatest)

    def draw(self, uniforms: np.ndarray, ends: Integers, todo: Bools, out: Drawn) -> Integers:
        """Draw an item for each True in `todo` [B] into `out`; return their numbers, [B].

        Sampling is stratified: the sum is divided into B equal parts, and `uniforms` [B] are the
        positions within them, from 0 to 1.
        """
        picks: Integers = np.zeros(len(uniforms), np.int64)
        found = (out.leaves, out.sequences, out.shares, picks)
        _draw(self._sums, self._sequences, uniforms, ends, todo, self._length, *found)
        return picks

    def learn(self, drawn: Drawn, errors: Floats) -> None:
        """Set the priorities of drawn items from their TD errors [B]; skip overwritten items."""
        last = (drawn.leaves, drawn.sequences, errors)
        self._greatest = _learn(*self._arrays, *last, self._alpha, self._length, self._greatest)

    def forget(self) -> None:
        self._sums[:] = 0.0
        self._sequences[:] = self._committed[:] = 0
        self._greatest = 1.0

    def state(self) -> State:
        return {
            "alpha": self._alpha,
            "leaves": self.leaves.copy(),
            "sequences": self._sequences.copy(),
            "committed": self._committed.copy(),
            "greatest": self._greatest,
        }

    def restore(self, state: State) -> None:
        """Restore what `state` returned; if segments or alpha differ, reset all priorities."""
        self.forget()
        if real(state, "alpha") != self._alpha or state["leaves"].shape != self.leaves.shape:
            return
        most = Range(0.0, FINITE_64.high / max(self.leaves.size, 1))  # keeps their sum finite
        found = fitting_all(
            state,
            {
                "leaves": (self.leaves, most),
                "sequences": (self._sequences, COUNT),
                "committed": (self._committed, Range(0, self._length)),
            },
        )
        beyond = np.arange(self._length) >= found["committed"][:, None]
        is_known = not found["leaves"][beyond].any()
        require(state, "leaves", is_known, "only committed steps have a priority")
        self.leaves[...] = found["leaves"]
        _sum_up(self._sums)
        self._sequences[:], self._committed[:] = found["sequences"], found["committed"]
        self._greatest = real(state, "greatest", most)


def leaves_for(steps: int) -> int:
    """Return the number of leaves of a tree for `steps` steps: a power of two."""
    return 1 << (max(steps, 2) - 1).bit_length()


def tree_size(segments: int, length: int) -> int:
    """Return the bytes of the priorities of `segments` segments."""
    return 8 * (2 * leaves_for(segments * length) + 2 * segments)


@njit(cache=True)
def _set(sums: np.ndarray, node: int, value: float) -> None:
    sums[node] = value
    node //= 2
    while node > 0:
        sums[node] = sums[2 * node] + sums[2 * node + 1]
        node //= 2


@njit(cache=True)
def _sum_up(sums: np.ndarray) -> None:
    for node in range(sums.size // 2 - 1, 0, -1):
        sums[node] = sums[2 * node] + sums[2 * node + 1]


@njit(cache=True)
def _follow(
    sums: np.ndarray,
    sequences: Integers,
    committed: Integers,
    seen: Integers,
    ends: Integers,
    length: int,
    greatest: float,
) -> None:
    begin = 0
    for segment in range(sequences.size):
        count, first = ends[segment] - begin, sums.size // 2 + segment * length
        begin = ends[segment]
        # Fewer steps than before: the writer is about to reuse the segment.
        if seen[segment] != sequences[segment] or count < committed[segment]:
            for t in range(committed[segment]):
                _set(sums, first + t, 0.0)
            sequences[segment], committed[segment] = seen[segment], 0
        for t in range(committed[segment], count):
            _set(sums, first + t, greatest)
        committed[segment] = count


@njit(cache=True)
def _draw(
    sums: np.ndarray,
    sequences: Integers,
    uniforms: np.ndarray,
    ends: Integers,
    todo: Bools,
    length: int,
    leaves: Integers,
    drawn: Integers,
    shares: np.ndarray,
    picks: Integers,
) -> None:
    half, total = sums.size // 2, sums[1]
    for b in range(uniforms.size):
        if not todo[b]:
            continue
        rest = (b + uniforms[b]) / uniforms.size * total
        node = 1
        while node < half:
            node *= 2
            # Rounding may leave a rest beyond the last priority: never enter an empty branch.
            if rest >= sums[node] and sums[node + 1] > 0.0:
                rest -= sums[node]
                node += 1
        leaf = node - half
        segment = leaf // length
        leaves[b], drawn[b] = leaf, sequences[segment]
        shares[b] = ends[-1] * (sums[node] / total)
        picks[b] = leaf % length + (ends[segment - 1] if segment > 0 else 0)


@njit(cache=True)
def _learn(
    sums: np.ndarray,
    sequences: Integers,
    committed: Integers,
    leaves: Integers,
    drawn: Integers,
    errors: Floats,
    alpha: float,
    length: int,
    greatest: float,
) -> float:
    for b in range(errors.size):
        segment, t = leaves[b] // length, leaves[b] % length
        overwritten = sequences[segment] != drawn[b] or t >= committed[segment]
        if overwritten or not math.isfinite(errors[b]):
            continue
        priority = (abs(errors[b]) + LEAST) ** alpha
        _set(sums, sums.size // 2 + leaves[b], priority)
        greatest = max(greatest, priority)
    return greatest


class Prioritised(Replay[B]):
    """Replay of items with probability proportional to their priorities."""

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
        self._priorities = Priorities(alpha, segments, self.experience.config.segment_length)
        self._drawn = Drawn.empty(1)
        # Compile the kernels by calls that draw nothing.
        self._follow()
        self._priorities.draw(np.zeros(1), self._ends(), np.zeros(1, np.bool_), self._drawn)
        self.learn(np.full(1, np.nan, np.float32))

    def sample(self, out: B, policy: int, size: int, beta: float = 1.0) -> bool:
        """Draw `size` samples into row `policy` of a batch, with importance weights."""
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
        """Restore what `state` returned; priorities only if the rings hold the same steps."""
        super().restore(state)
        known = state.get("priorities")
        if known is None or not np.array_equal(known["lost"], self._lost()):
            self.forget()  # the rings may hold other steps with the same sequence numbers
        else:
            self._priorities.restore(known)

    def _follow(self) -> None:
        sequences = [held.sequences for held in self._held]
        self._priorities.follow(np.concatenate(sequences), self._ends())

    def _ends(self) -> Integers:
        """Return the cumulative number of items up to and including each segment of all rings."""
        ends, base = [], 0
        for held in self._held:
            ends.append(held.ends + base)
            base += int(held.ends[-1])
        found: Integers = np.concatenate(ends)
        return found

    def _lost(self) -> Integers:
        rings = [held.ring for held in self._held]
        found: Integers = np.array([load(r.counters, LOST) for r in rings], np.int64)
        return found


class PrioritisedReplay(Prioritised[Batch], TransitionReplay):
    """Prioritised replay of steps."""


class PrioritisedSequences(Prioritised[SequenceBatch], SequenceReplay):
    """Prioritised replay of pieces."""
