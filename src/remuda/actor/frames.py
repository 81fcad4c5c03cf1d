"""Frame stacking while acting: the last observations of every stream, as one input."""

from __future__ import annotations

import numpy as np

from remuda.checkpoint.fitting import FINITE, fitting
from remuda.envs.checks import NONE
from remuda.kernels import njit
from remuda.types import Array, Bools, Floats, State


@njit(cache=True, fastmath={"reassoc", "contract"})  # sums in any order, and no number is assumed
def _push_floats(
    stacked: Floats, observations: Array, acts: Bools, starts: Bools, size: int
) -> int:
    """Do as `_push`; return the last stream with an observation that is not finite, or NONE."""
    last = stacked.shape[1] - size
    zero = stacked.dtype.type(0.0)
    found = NONE
    for stream in range(observations.shape[0]):
        if not acts[stream]:
            continue
        # Row by row: the compiler cannot tell whether whole arrays overlap.
        row, observed = stacked[stream], observations[stream]
        if starts[stream]:
            row[:last] = zero
            starts[stream] = False
        else:
            for i in range(last):
                row[i] = row[i + size]
        total, newest = zero, row[last:]
        for i in range(size):
            value = stacked.dtype.type(observed[i])
            newest[i] = value
            total += value * zero  # 0, or not a number
        if total != zero:
            found = stream
    return found


@njit(cache=True)
def _push(stacked: Floats, observations: Array, acts: Bools, starts: Bools, size: int) -> None:
    last = stacked.shape[1] - size
    for stream in range(observations.shape[0]):
        if not acts[stream]:
            continue
        row, observed = stacked[stream], observations[stream]
        if starts[stream]:
            row[:last] = 0.0
            starts[stream] = False
        else:
            for i in range(last):
                row[i] = row[i + size]
        newest = row[last:]
        for i in range(size):
            newest[i] = observed[i]


class FrameStack:
    """The newest `n_frames` observations of each stream, oldest first; zeros before the start."""

    def __init__(self, stacked: Floats, size: int, starts: Bools | None = None) -> None:
        """Write network inputs into `stacked`, [num_streams, n_frames * size].

        `starts` [num_streams] marks streams whose next observation starts an episode, and is kept
        up to date; None: all do.
        """
        self._size = size
        self._stacked = stacked
        self._starts: Bools = np.ones(len(stacked), np.bool_) if starts is None else starts

    def start(self, mask: Bools) -> None:
        """Forget the frames of the streams in `mask`: an episode starts."""
        self._starts |= mask

    def state(self) -> State:
        """Return the frames of the streams."""
        return {"stacked": self._stacked.copy(), "starts": self._starts.copy()}

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""
        self._stacked[...] = fitting(state, "stacked", self._stacked, FINITE)
        self._starts[...] = fitting(state, "starts", self._starts)

    def push(self, observations: Array, acts: Bools) -> int:
        """Add the newest observations [num_streams, size] of acting streams.

        Observations while others act are not frames: they are not in the experience. Returns a
        stream whose observation is not finite, or NONE.
        """
        if observations.dtype.kind == "f":
            found: int = _push_floats(self._stacked, observations, acts, self._starts, self._size)
            return found
        _push(self._stacked, observations, acts, self._starts, self._size)
        return NONE

    def of(self, streams: slice) -> FrameStack:
        """Return a view of some streams."""
        return FrameStack(self._stacked[streams], self._size, self._starts[streams])
