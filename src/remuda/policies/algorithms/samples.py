"""The samples of a rollout: single steps, or whole segments for recurrent policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from remuda.experience.segments import AFTER, Rollout
from remuda.system.memory.shared import copied
from remuda.types import Bools, Integers

MOST_PADDING = 0.25  # share of a pass's rows that may be padding
PASS = 256  # padding rows that are always allowed: they cost no more than another pass


@dataclass(frozen=True)
class Pick:
    """Rows of a batch for G of its policies, padded with repeated, invalid rows."""

    members: Integers  # [G] indices of the policies in the batch
    rows: Integers  # [G, B] row indices for each policy
    stride: int  # number of rows of each policy in the batch
    device: torch.device
    counts: Integers  # [G] number of valid rows, which come first if `memory` is None
    valid: Tensor | None = None  # [G, B] 1 for valid rows, 0 for padding; None: all valid
    # [G, S, memory] state before each of the S sequences in the B rows
    memory: Tensor | None = None

    @cached_property
    def flat(self) -> Tensor:
        """Return the positions of the rows among the rows of all policies: [G * B]."""
        flat = self.rows + self.members[:, None] * self.stride
        return torch.from_numpy(flat.ravel()).to(self.device)

    def of(self, x: Tensor) -> Tensor:
        """Select these rows of a contiguous x [K, R, ...]: [G, B, ...]."""
        # `view` never copies; `flatten` would copy a slice of a larger tensor.
        found = x.view(-1, *x.shape[2:]).index_select(0, self.flat)
        return found.view(len(self.members), -1, *x.shape[2:])

    def masks_of(self, masks: Tensor | None) -> Tensor | None:
        return None if masks is None else self.of(masks)


@dataclass(frozen=True)
class Amount:
    """A policy's share of a pass: units (steps or segments), each of at most `longest` rows."""

    units: int
    longest: int = 1


class Rows:
    """Single steps in any order."""

    def __init__(self, rollout: Rollout, members: Sequence[int], device: torch.device) -> None:
        self._device = device
        self._num_rows = rollout.num_rows[list(members)]
        self._stride = int(self._num_rows.max())
        self.units: list[Integers] = [
            np.flatnonzero(rollout.streams[k, : rollout.num_rows[k]] != AFTER) for k in members
        ]  # by policy, indices of its steps

    def steps(self, member: int) -> int:
        return len(self.units[member])

    def minibatch(self, member: int, minibatches: int) -> Amount:
        return Amount(-(-len(self.units[member]) // minibatches))

    def whole(self, member: int) -> Amount:
        return Amount(int(self._num_rows[member]))

    def pick(self, members: Integers, units: Sequence[Integers]) -> Pick:
        counts = np.array([len(each) for each in units])
        size = int(counts.max())
        if (counts == size).all():
            return Pick(members, np.stack(units), self._stride, self._device, counts)
        rows = np.empty((len(units), size), np.int64)
        for row, each in zip(rows, units, strict=True):
            row[: len(each)] = each
            row[len(each) :] = each[-1]
        return Pick(members, rows, self._stride, self._device, counts, self._valid(counts, size))

    def everything(self, members: Integers, at_once: int) -> Iterator[Pick]:
        """Yield all rows, including final observations, `at_once` rows of each policy at a time."""
        num_rows = self._num_rows[members]
        for start in range(0, int(num_rows.max()), at_once):
            counts = np.clip(num_rows - start, 0, at_once)
            size = int(counts.max())
            rows = np.minimum(start + np.arange(size), num_rows[:, None] - 1)
            valid = None if (counts == size).all() else self._valid(counts, size)
            yield Pick(members, rows, self._stride, self._device, counts, valid)

    def _valid(self, counts: Integers, size: int) -> Tensor:
        valid = (np.arange(size) < counts[:, None]).astype(np.float32)
        return torch.from_numpy(valid).to(self._device)


class Sequences:
    """Whole segments, each with the recurrent state before its first step."""

    def __init__(self, rollout: Rollout, members: Sequence[int], device: torch.device) -> None:
        self._device = device
        self._stride = int(rollout.num_rows[list(members)].max())
        self._starts: list[Integers] = []
        self._lengths: list[Integers] = []
        self._memories = []
        # Copy only the used parts: the rest is old data of a larger rollout.
        for k in members:
            count = int(rollout.num_segments[k])
            starts = rollout.starts[k, :count].copy()
            self._starts.append(starts)
            self._lengths.append(np.diff(np.append(starts, rollout.num_rows[k])) - 1)
            self._memories.append(rollout.recurrent_states[k, :count])
        self._longest: Integers = np.array([int(lengths.max()) for lengths in self._lengths])
        # by policy, indices of its segments
        self.units: list[Integers] = [np.arange(len(starts)) for starts in self._starts]

    def steps(self, member: int) -> int:
        return int(self._lengths[member].sum())

    def minibatch(self, member: int, minibatches: int) -> Amount:
        return Amount(-(-len(self.units[member]) // minibatches), int(self._longest[member]))

    def whole(self, member: int) -> Amount:
        return Amount(len(self.units[member]), int(self._longest[member]) + 1)

    def pick(self, members: Integers, units: Sequence[Integers]) -> Pick:
        """Pick the steps of these segments of each policy, padded to the longest."""
        return self._pick(members, units, int(self._longest[members].max()), 0)

    def everything(self, members: Integers, at_once: int) -> Iterator[Pick]:
        longest = int(self._longest[members].max())
        segments = max(at_once // (longest + 1), 1)
        for start in range(0, max(len(self.units[k]) for k in members), segments):
            units = [self.units[k][start : start + segments] for k in members]
            yield self._pick(members, units, longest + 1, 1)

    def _pick(self, members: Integers, units: Sequence[Integers], length: int, after: int) -> Pick:
        """Pick rows of segments, padded; `after` is 1 to include the final observation."""
        size = max(len(each) for each in units)
        starts, last = (np.zeros((len(units), size), np.int64) for _ in range(2))
        memory = np.zeros((len(units), size, self._memories[0].shape[-1]), np.float32)
        for i, (k, each) in enumerate(zip(members, units, strict=True)):
            used = slice(0, len(each))
            starts[i, used], last[i, used] = self._starts[k][each], self._lengths[k][each] + after
            memory[i, used] = self._memories[k][each]
            starts[i, len(each) :] = starts[i, 0]
        t = np.arange(length)
        rows = starts[..., None] + np.minimum(t, np.maximum(last[..., None] - 1, 0))
        valid: Bools = (t < last[..., None]).reshape(len(units), -1)
        device = self._device
        return Pick(
            members,
            rows.reshape(len(units), -1),
            self._stride,
            device,
            valid.sum(1),
            torch.from_numpy(valid.astype(np.float32)).to(device),
            copied(memory, device),
        )


def alike(amounts: Sequence[Amount]) -> list[list[int]]:
    """Group indices of similar amounts: a pass pads each policy to the largest amount."""
    if len(set(amounts)) == 1:
        return [list(range(len(amounts)))]
    order = sorted(range(len(amounts)), key=lambda i: (-amounts[i].longest, -amounts[i].units, i))
    groups: list[list[int]] = []
    units = longest = total = 0
    for i in order:
        amount, rows = amounts[i], amounts[i].units * amounts[i].longest
        grid = max(units, amount.units) * max(longest, amount.longest)
        if groups:
            padding = grid * (len(groups[-1]) + 1) - total - rows
        if not groups or padding > max(MOST_PADDING * (total + rows), PASS):
            groups.append([])
            units = longest = total = 0
        groups[-1].append(i)
        units, longest = max(units, amount.units), max(longest, amount.longest)
        total += rows
    return sorted(sorted(group) for group in groups)
