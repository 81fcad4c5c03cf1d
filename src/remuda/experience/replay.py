"""The learner's end of experience: batches of n-step transitions, drawn uniformly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from remuda.checkpoint.state import random_state, restore_random
from remuda.experience.experience import Experience
from remuda.experience.ring import OTHERS
from remuda.memory.atomic import fence_acquire, load
from remuda.types import Array, Bools, Floats, Integers, State


@dataclass(frozen=True)
class Batch:
    """Transitions of K policies by time index: an action at t - 1 leads to what is seen at t.

    An n-step transition sums the rewards of up to n steps, fewer where the segment ends.
    """

    s_tm1: Floats
    """[K, B, n_frames * size]: the stacked observation."""
    a_tm1: Integers
    """[K, B]: the action."""
    r_t: Floats
    """[K, B]: the discounted sum of the rewards that followed."""
    discount_t: Floats
    """[K, B]: what the value of s_t counts: discount ** n, or 0 where the episode terminated."""
    s_t: Floats
    """[K, B, n_frames * size]: the stacked observation n steps later."""
    versions: Integers
    """[K, B]: the version of the weights that chose a_tm1, or `OTHERS`."""

    @staticmethod
    def empty(experience: Experience, num_policies: int, size: int) -> Batch:
        """Room for so many samples of each policy, from experience like this."""
        at = (num_policies, size)
        width = experience.shape.n_frames * experience.shape.size
        return Batch(
            s_tm1=np.zeros((*at, width), np.float32),
            a_tm1=np.zeros(at, np.int64),
            r_t=np.zeros(at, np.float32),
            discount_t=np.zeros(at, np.float32),
            s_t=np.zeros((*at, width), np.float32),
            versions=np.zeros(at, np.int64),
        )


@njit(cache=True)
def _survey(sequence: Integers, committed: Integers, sequences: Integers, ends: Integers) -> int:
    """Note each segment's sequence, and where its steps end in the list of all steps."""
    total = 0
    for slot in range(sequence.size):
        sequences[slot] = load(sequence, slot)
        if sequences[slot] % 2 == 0:
            total += load(committed, slot)
        ends[slot] = total
    return total


@njit(cache=True)
def _gather(
    observations: Array,
    actions: Array,
    rewards: Floats,
    discounts: Floats,
    versions: Integers,
    sequence: Integers,
    sequences: Integers,
    ends: Integers,
    picks: Integers,
    todo: Bools,
    n_frames: int,
    n_steps: int,
    discount: float,
    s_tm1: Floats,
    a_tm1: Integers,
    r_t: Floats,
    discount_t: Floats,
    s_t: Floats,
    versions_out: Integers,
    base: int,
    own: bool,
    check: bool,
) -> int:
    """Copy the transitions picked from this ring, whose steps are numbered from `base` on.

    Those that were overwritten meanwhile stay in `todo`; returns how many.
    """
    left = 0
    size = observations.shape[2]
    for b in range(picks.size):
        pick = picks[b] - base
        if not todo[b] or pick < 0 or pick >= ends[-1]:
            continue
        slot = np.searchsorted(ends, pick, side="right")
        first = ends[slot - 1] if slot > 0 else 0
        t = pick - first
        steps = min(n_steps, ends[slot] - first - t)
        total = 0.0
        factor = 1.0
        for i in range(t, t + steps):
            total += factor * rewards[slot, i]
            factor *= discount * discounts[slot, i]
        r_t[b] = total
        discount_t[b] = factor
        a_tm1[b] = actions[slot, t, 0]
        versions_out[b] = versions[slot, t] if own else OTHERS
        for frame in range(n_frames):
            for j in range(size):
                s_tm1[b, frame * size + j] = observations[slot, t + frame, j]
                s_t[b, frame * size + j] = observations[slot, t + steps + frame, j]
        fence_acquire()
        todo[b] = check and load(sequence, slot) != sequences[slot]
        left += todo[b]
    return left


@dataclass(frozen=True)
class _Survey:
    """What a ring held when it was looked at."""

    sequences: Integers
    """By segment."""
    ends: Integers
    """Where the steps of each segment end in the list of all its steps."""


class Replay:
    """Draws from a policy's own experience and its group's, each step with the same chance."""

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
        self._rings = [(ring, i == 0) for i, found in enumerate(sources) for ring in found.rings]
        self.redrawn = 0
        """Draws that the writer overtook, and that were drawn again."""
        self._random, self._check = random, check_sequence
        self._n_steps, self.discount = n_steps, discount
        self._surveys = tuple(
            _Survey(np.zeros(ring.num_segments, np.int64), np.zeros(ring.num_segments, np.int64))
            for ring, _ in self._rings
        )
        self._survey()
        # Nothing to do: this compiles the kernels.
        nothing: Bools = np.zeros(1, np.bool_)
        self._draw(np.zeros(1, np.int64), nothing, Batch.empty(experience, 1, 1), 0)

    def sample(self, out: Batch, policy: int, size: int) -> bool:
        """Draw so many samples into row `policy` of a batch; False: there is no step at all."""
        todo: Bools = np.ones(size, np.bool_)
        left = size
        while left:
            total = self._survey()
            if total == 0:
                return False
            left = self._draw(self._random.integers(0, total, size), todo, out, policy)
            self.redrawn += left
        return True

    def state(self) -> State:
        """Its random stream, and what it counted."""
        return {"random": random_state(self._random), "redrawn": self.redrawn}

    def restore(self, state: State) -> None:
        """Go on drawing where `state` was called."""
        restore_random(self._random, state["random"])
        self.redrawn = state["redrawn"]

    def _survey(self) -> int:
        """Look at every ring; returns the steps in all of them."""
        total = 0
        for (ring, _), survey in zip(self._rings, self._surveys, strict=True):
            shared = ring.shared
            total += _survey(shared["sequence"], shared["committed"], survey.sequences, survey.ends)
        return total

    def _draw(self, picks: Integers, todo: Bools, out: Batch, policy: int) -> int:
        """Copy the picks that are still to do, and mark them done.

        Returns how many the writers overtook; they stay to do.
        """
        left = base = 0
        for (ring, own), survey in zip(self._rings, self._surveys, strict=True):
            shared = ring.shared
            left += _gather(
                shared["observations"],
                shared["actions"],
                shared["rewards"],
                shared["discounts"],
                shared["versions"],
                shared["sequence"],
                survey.sequences,
                survey.ends,
                picks,
                todo,
                self.experience.shape.n_frames,
                self._n_steps,
                self.discount,
                out.s_tm1[policy],
                out.a_tm1[policy],
                out.r_t[policy],
                out.discount_t[policy],
                out.s_t[policy],
                out.versions[policy],
                base,
                own,
                self._check,
            )
            base += int(survey.ends[-1])
        return left
