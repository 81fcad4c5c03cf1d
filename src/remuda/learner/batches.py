"""Batches of replayed steps or sequences for a stack, moved to the learner's device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from remuda.experience.replay import Batch, Replay
from remuda.experience.sequence_replay import SequenceBatch, SequenceReplay
from remuda.policies.algorithms.transition_algorithm import Transitions, TransitionSequences
from remuda.system.memory.shared import copied
from remuda.types import Floats, Integers


def batches_for(
    replays: Sequence[Replay[Any]], size: int, weighed: bool
) -> StepBatches | SequenceBatches:
    """Allocate the batches of these replays; with importance weights if `weighed`."""
    sequences = isinstance(replays[0], SequenceReplay)
    return (SequenceBatches if sequences else StepBatches)(replays, size, weighed)


class StepBatches:
    """Batches of single steps."""

    def __init__(self, replays: Sequence[Replay[Batch]], size: int, weighed: bool) -> None:
        self._replays, self.largest = replays, size
        self._batch = replays[0].empty(len(replays), size, weighed)

    def sample(self, policy: int, size: int, beta: float) -> bool:
        return self._replays[policy].sample(self._batch, policy, size, beta)

    def versions(self, policy: int, size: int) -> Integers:
        """Return the weights' version that acted in each sample to learn from."""
        return self._batch.versions[policy, :size]

    def moved(
        self, first: int, end: int, size: int, scales: Floats, device: torch.device
    ) -> Transitions:
        batch = self._batch

        def move(array: np.ndarray) -> Tensor:
            return copied(array[first:end, :size], device)

        return Transitions(
            s_tm1=move(batch.s_tm1),
            a_tm1=move(batch.choices_tm1 if batch.choices_tm1.size else batch.a_tm1),
            r_t=move(batch.r_t * scales),
            discount_t=move(batch.discount_t),
            s_t=move(batch.s_t),
            allowed_tm1=move(batch.allowed_tm1),
            allowed_t=move(batch.allowed_t),
            weights=move(batch.weights),
        )


class SequenceBatches:
    """Batches of whole segments: as many as fit in `size` steps, but at least one."""

    def __init__(self, replays: Sequence[Replay[SequenceBatch]], size: int, weighed: bool) -> None:
        self._replays = replays
        self._steps = replays[0].experience.config.segment_length
        count = self._count(size)
        self.largest = count * self._steps
        self._batch = replays[0].empty(len(replays), count, weighed)

    def _count(self, size: int) -> int:
        return max(size // self._steps, 1)

    def sample(self, policy: int, size: int, beta: float) -> bool:
        return self._replays[policy].sample(self._batch, policy, self._count(size), beta)

    def versions(self, policy: int, size: int) -> Integers:
        count = self._count(size)
        valid = self._batch.valid(slice(policy, policy + 1), count)[0]
        found: Integers = self._batch.versions[policy, :count][valid]
        return found

    def moved(
        self, first: int, end: int, size: int, scales: Floats, device: torch.device
    ) -> TransitionSequences:
        batch, members, count = self._batch, slice(first, end), self._count(size)
        longest = int(batch.lengths[members, :count].max())
        valid = batch.valid(members, count)[:, :, :longest].astype(np.float32)
        weights = valid
        if batch.weights.shape[1]:
            weights = valid * batch.weights[members, :count, None]
        # With this factor the mean over all rows equals the mean over valid rows.
        weights = weights * (valid[0].size / valid.sum((1, 2), keepdims=True))
        after = batch.after[members, :count, :longest]
        allowed = np.take_along_axis(batch.allowed[members, :count], after[..., None], 2)
        burn_in = batch.burn_in[members, :count]
        actions = batch.choices_tm1 if batch.choices_tm1.size else batch.a_tm1

        def move(array: np.ndarray) -> Tensor:
            return copied(array, device)

        def rows(array: np.ndarray) -> Tensor:
            flat = array[:, :count, :longest]
            return move(flat.reshape(end - first, count * longest, *array.shape[3:]))

        return TransitionSequences(
            inputs=move(batch.inputs[members, :count, : longest + 1]),
            states=move(batch.states[members, :count]),
            burn_in=move(burn_in) if burn_in.any() else None,
            after=move(after),
            a_tm1=rows(actions[members]),
            r_t=rows((batch.r_t * scales[:, None])[members]),
            discount_t=rows(batch.discount_t[members]),
            allowed_t=rows(allowed),
            valid=rows(valid),
            weights=rows(weights.astype(np.float32)),
            longest=self._steps,
        )
