"""Replay for recurrent networks: the pieces of segments as sequences of steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from remuda.experience.experience import Experience
from remuda.experience.pieces import (
    Observed,
    observed,
    piece_end,
    write_next_observation,
    write_observation,
)
from remuda.experience.replay import (
    Replay,
    SurveyedRing,
    allow,
    allow_next,
    n_step_return,
    write_action,
)
from remuda.experience.ring import OTHERS
from remuda.system.kernels import njit
from remuda.system.memory.atomic import fence_acquire, load
from remuda.types import Array, Bools, Floats, Integers


class SequenceBatch(NamedTuple):
    """G pieces of up to T steps for each of K policies; see `Batch` for single steps.

    Training uses the steps that `valid` selects: all but the burn-in. Entries beyond `lengths` are
    padding.
    """

    inputs: Floats  # [K, G, T + 1, n_frames * size] stacked observations, including the final one
    states: Floats  # [K, G, memory] the actor's state before the first step
    a_tm1: Integers  # [K, G, T] action, as in `Batch`
    choices_tm1: Integers  # [K, G, T, C] components of the action if branching, else [K, G, T, 0]
    r_t: Floats  # [K, G, T] discounted sum of the following rewards
    discount_t: Floats  # [K, G, T] factor of the value of s_t
    after: Integers  # [K, G, T] index in `inputs` of s_t: n steps later, or the final observation
    versions: Integers  # [K, G, T] of the acting weights, or `OTHERS` if another policy acted
    # [K, G, T + 1, A] actions allowed at each input (all, after a termination); A = 0: no masks
    allowed: Bools
    lengths: Integers  # [K, G] steps of each sequence
    burn_in: Integers  # [K, G] steps that only update the recurrent state
    weights: Floats  # [K, G] importance weights, or [K, 0]

    @staticmethod
    def empty(
        experience: Experience, num_policies: int, sequences: int, weighed: bool = False
    ) -> SequenceBatch:
        """Allocate sequences of this experience's shape, with weights if `weighed`."""
        shape, steps = experience.shape, experience.config.segment_length
        some, at = (num_policies, sequences), (num_policies, sequences, steps)
        rows = (*some, steps + 1)
        return SequenceBatch(
            inputs=np.zeros((*rows, shape.num_inputs), np.float32),
            states=np.zeros((*some, shape.memory), np.float32),
            a_tm1=np.zeros(at, np.int64),
            choices_tm1=shape.empty_choices(at),
            r_t=np.zeros(at, np.float32),
            discount_t=np.zeros(at, np.float32),
            after=np.zeros(at, np.int64),
            versions=np.zeros(at, np.int64),
            allowed=np.ones((*rows, shape.num_valued), np.bool_),
            lengths=np.zeros(some, np.int64),
            burn_in=np.zeros(some, np.int64),
            weights=np.ones((num_policies, sequences if weighed else 0), np.float32),
        )

    def valid(self, policies: slice, sequences: int) -> Bools:
        """Return the mask of steps to train on: [k, sequences, T]."""
        t = np.arange(self.a_tm1.shape[2])
        lengths, burn_in = (x[policies, :sequences, None] for x in (self.lengths, self.burn_in))
        found: Bools = (burn_in <= t) & (t < lengths)
        return found


class _Ring(NamedTuple):
    """The arrays of a ring from which sequences are copied."""

    actions: Array
    masks: Bools
    final_masks: Bools
    rewards: Floats
    discounts: Floats
    versions: Integers
    recurrent_states: Floats
    sequence: Integers
    committed: Integers
    observed: Observed


class _Kind(NamedTuple):
    """The options for copying sequences."""

    sizes: Integers  # number of options of each component of an action
    n_steps: int
    discount: float
    burn_in: int


@njit(cache=True)
def _copy(
    ring: _Ring, slot: int, start: int, end: int, kind: _Kind, out: SequenceBatch, b: int
) -> None:
    """Copy the piece of steps `start` to `end` - 1."""
    length, branching = end - start, out.choices_tm1.shape[2] > 0
    began = True
    for j in range(ring.recurrent_states.shape[1]):
        # Pieces after the first begin with an episode.
        out.states[b, j] = ring.recurrent_states[slot, j] if start == 0 else 0.0
        began &= out.states[b, j] == 0.0
    # At an episode's start (a zero state) no burn-in is needed.
    out.burn_in[b] = 0 if began else min(kind.burn_in, length - 1)
    out.lengths[b] = length
    for t in range(length):
        write_observation(ring.observed, slot, start + t, out.inputs[b], t)
        if out.allowed.shape[2]:
            allow(ring.masks, slot, start + t, kind.sizes, branching, out.allowed[b], t)
    write_next_observation(ring.observed, slot, end - 1, out.inputs[b], length)
    if out.allowed.shape[2]:
        allow_next(
            ring.discounts,
            ring.masks,
            ring.final_masks,
            slot,
            end - 1,
            kind.sizes,
            branching,
            out.allowed[b],
            length,
        )
    for t in range(length):
        last = min(start + t + kind.n_steps, end)
        found = n_step_return(ring.rewards, ring.discounts, slot, start + t, last, kind.discount)
        out.r_t[b, t], out.discount_t[b, t], last = found
        write_action(ring.actions, slot, start + t, kind.sizes, t, out.a_tm1[b], out.choices_tm1[b])
        out.after[b, t] = last - start
    # Pad with a real observation: a network may return NaN for zeros, which would spoil the
    # gradient of the valid steps.
    for t in range(length + 1, out.inputs.shape[1]):
        out.inputs[b, t] = out.inputs[b, length]
    out.allowed[b, length + 1 :] = True
    out.a_tm1[b, length:] = 0
    out.choices_tm1[b, length:] = 0
    out.r_t[b, length:] = 0.0
    out.discount_t[b, length:] = 0.0
    out.after[b, length:] = 0


@njit(cache=True)
def _gather(
    ring: _Ring,
    sequences: Integers,
    ends: Integers,
    picks: Integers,
    todo: Bools,
    kind: _Kind,
    out: SequenceBatch,
    base: int,
    own: bool,
    check: bool,
) -> int:
    """Copy the picks that belong to this ring, whose first piece has number `base`.

    Return how many were overwritten during the copy; they stay True in `todo`.
    """
    left = 0
    for b in range(picks.size):
        pick = picks[b] - base
        if not todo[b] or pick < 0 or pick >= ends[-1]:
            continue
        slot = np.searchsorted(ends, pick, side="right")
        committed = load(ring.committed, slot)
        start, end = 0, piece_end(ring.discounts, slot, 0, committed)
        for _ in range(pick - (ends[slot - 1] if slot > 0 else 0)):
            start, end = end, piece_end(ring.discounts, slot, end, committed)
        if end > start:
            _copy(ring, slot, start, end, kind, out, b)
            for t in range(start, end):
                out.versions[b, t - start] = ring.versions[slot, t] if own else OTHERS
        fence_acquire()
        todo[b] = end == start or (check and load(ring.sequence, slot) != sequences[slot])
        left += todo[b]
    return left


class SequenceReplay(Replay[SequenceBatch]):
    """Uniform replay of the pieces of segments with all their committed steps.

    A segment includes the actor's recurrent state before its first step ("stored state",
    Kapturowski et al. 2019, section 3). The first `experience.burn_in` steps recompute that state
    with newer weights. The other pieces of a segment start with an episode, from a zero state.
    """

    draws_pieces = True

    def empty(self, num_policies: int, size: int, weighed: bool = False) -> SequenceBatch:
        return SequenceBatch.empty(self.experience, num_policies, size, weighed)

    def _copy(
        self,
        held: SurveyedRing,
        picks: Integers,
        todo: Bools,
        out: SequenceBatch,
        policy: int,
        base: int,
    ) -> int:
        experience, shared = self.experience, held.ring.shared
        kind = _Kind(self._sizes, self._n_steps, self.discount, experience.config.burn_in)
        arrays: list[Any] = [shared[name] for name in _Ring._fields[:-1]]
        ring = _Ring._make([*arrays, observed(held.ring, experience.shape)])
        row = SequenceBatch(*(array[policy] for array in out))
        seen = (held.sequences, held.ends, picks, todo)
        return _gather(ring, *seen, kind, row, base, held.own, self._check)
