"""What a rollout is made of: single steps, or whole segments where policies have a memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remuda.experience.rollouts import AFTER, Rollout
from remuda.memory.aligned import copied
from remuda.types import Integers

ROWS_AT_ONCE = 1024
"""Rows of a policy in one pass where no gradient is asked for: what stays in the cache."""


@dataclass(frozen=True)
class Pick:
    """Some rows of a rollout, for K policies."""

    flat: Tensor
    """[K * B]: where they are among the rows of all policies."""
    policies: int
    """K."""
    valid: Tensor | None = None
    """[K, B] 1 where a row counts, 0 where it only fills up a sequence; None: all count."""
    memory: Tensor | None = None
    """[K, G, memory] before each of the G sequences that the B rows are; None: there is none."""

    def of(self, x: Tensor) -> Tensor:
        """These rows of x [K, R, ...]: [K, B, ...]."""
        found = x.flatten(0, 1).index_select(0, self.flat)
        return found.view(self.policies, -1, *x.shape[2:])


class Rows:
    """Steps by themselves: any order, any number."""

    def __init__(self, rollout: Rollout, first: int, end: int, device: torch.device) -> None:
        self._count, self._device = end - first, device
        self._num_rows = int(rollout.num_rows[first:end].max())
        self.units: list[Integers] = [
            np.flatnonzero(rollout.streams[k, : rollout.num_rows[k]] != AFTER)
            for k in range(first, end)
        ]
        """By policy, what can be picked."""
        self._offsets = torch.arange(self._count, device=device).unsqueeze(1) * self._num_rows

    def pick(self, units: Sequence[Integers]) -> Pick:
        """The rows of as many units of each policy."""
        index = torch.from_numpy(np.stack(units)).to(self._device)
        return Pick((index + self._offsets).flatten(), self._count)

    def everything(self) -> Iterator[Pick]:
        """All rows, those after a segment's last step too, a part at a time."""
        for start in range(0, self._num_rows, ROWS_AT_ONCE):
            end = min(start + ROWS_AT_ONCE, self._num_rows)
            rows = torch.arange(start, end, device=self._device) + self._offsets
            yield Pick(rows.flatten(), self._count)


class Sequences:
    """Whole segments, each from what was kept before its first step."""

    def __init__(self, rollout: Rollout, first: int, end: int, device: torch.device) -> None:
        self._count, self._device = end - first, device
        at = slice(first, end)
        num_rows = int(rollout.num_rows[at].max())
        self._offsets = np.arange(self._count)[:, None, None] * num_rows
        self._starts = rollout.starts[at]
        self._steps = np.zeros(self._starts.shape, np.int64)
        for i, k in enumerate(range(first, end)):
            count = rollout.num_segments[k]
            bounds = np.append(self._starts[i, :count], rollout.num_rows[k])
            self._steps[i, :count] = np.diff(bounds) - 1
        self._longest = int(self._steps.max())
        self._memories = rollout.memories[at]
        self._num_segments = int(rollout.num_segments[at].max())
        self.units: list[Integers] = [np.arange(rollout.num_segments[k]) for k in range(first, end)]
        """By policy, what can be picked."""

    def pick(self, units: Sequence[Integers]) -> Pick:
        """The steps of as many segments of each policy, filled up to the longest."""
        return self._pick(np.stack(units), self._longest, 0)

    def everything(self) -> Iterator[Pick]:
        """All rows, those after a segment's last step too, a part at a time."""
        at_once = max(ROWS_AT_ONCE // (self._longest + 1), 1)
        for start in range(0, self._num_segments, at_once):
            segments = np.arange(start, min(start + at_once, self._num_segments))
            yield self._pick(np.tile(segments, (self._count, 1)), self._longest + 1, 1)

    def _pick(self, segments: Integers, length: int, after: int) -> Pick:
        """Rows of segments [K, G], `length` of each; `after`: with that after the last step."""
        policy = np.arange(self._count)[:, None]
        steps = self._steps[policy, segments]
        # A segment that is not there has no steps, and none of its rows counts.
        last = np.where(steps > 0, steps + after, 0)[..., None]
        t = np.arange(length)
        rows = self._starts[policy, segments][..., None] + np.minimum(t, np.maximum(last - 1, 0))
        flat = torch.from_numpy((rows + self._offsets).ravel())
        valid = torch.from_numpy((t < last).reshape(self._count, -1).astype(np.float32))
        device = self._device
        memory = copied(self._memories[policy, segments], device)
        return Pick(flat.to(device), self._count, valid.to(device), memory)
