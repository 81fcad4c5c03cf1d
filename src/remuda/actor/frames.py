"""Frame stacking while acting: the last observations of every stream, as one input."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit

from remuda.checkpoint.state import fitting
from remuda.types import Array, Bools, Floats, State


@njit(cache=True)
def _push(stacked: Floats, seen: Array, starts: Bools, size: int) -> None:
    last = stacked.shape[1] - size
    for stream in range(seen.shape[0]):
        if starts[stream]:
            stacked[stream, :last] = 0.0
            starts[stream] = False
        else:
            for i in range(last):
                stacked[stream, i] = stacked[stream, i + size]
        for i in range(size):
            stacked[stream, last + i] = seen[stream, i]


class FrameStack:
    """The newest `n_frames` observations of each stream, oldest first; zeros before the start."""

    def __init__(self, num_streams: int, n_frames: int, size: int) -> None:
        self._size = size
        self._stacked: Floats = np.zeros((num_streams, n_frames * size), np.float32)
        self._starts: Bools = np.ones(num_streams, np.bool_)
        self.inputs = torch.from_numpy(self._stacked)
        """[num_streams, n_frames * size] float32, renewed in place by `push`."""

    def start(self, mask: Bools) -> None:
        """Forget what the streams in `mask` have seen: an episode starts."""
        self._starts |= mask

    def state(self) -> State:
        """What the streams have seen."""
        return {"stacked": self._stacked.copy(), "starts": self._starts.copy()}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self._stacked[...] = fitting(state, "stacked", self._stacked)
        self._starts[...] = fitting(state, "starts", self._starts)

    def push(self, seen: Array) -> None:
        """Add the newest observations, [num_streams, size]."""
        _push(self._stacked, seen, self._starts, self._size)
