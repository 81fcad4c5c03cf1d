"""Frame stacking: the last observations of a stream (one agent of one copy) are one input."""

from __future__ import annotations

import numpy as np

from remuda.envs.checks import NONE
from remuda.system.checkpoint.fitting import FINITE, fitting
from remuda.system.kernels import njit
from remuda.system.memory.packing import Packing, packed, write_rows
from remuda.types import Array, Bools, Floats, State


@njit(cache=True, fastmath={"reassoc", "contract"})  # may reorder sums; keeps NaN and infinity
def _push(
    stacked: Floats, observations: Array, acts: Bools, starts: Bools, size: int, checks: bool
) -> int:
    """Stack the newest observations; return a stream with NaN or infinity, or -1."""
    last = stacked.shape[1] - size
    zero = stacked.dtype.type(0.0)
    found = NONE
    for stream in range(observations.shape[0]):
        if not acts[stream]:
            continue
        # Row by row, because the compiler cannot rule out that whole arrays overlap.
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
            if checks:
                total += value * zero  # 0 or NaN
        if total != zero:
            found = stream
    return found


class FrameStack:
    """The newest `n_frames` observations of each stream, oldest first, padded with zeros."""

    def __init__(
        self,
        stacked: Floats,
        size: int,
        starts: Bools | None = None,
        packing: Packing | None = None,  # of observations
        unpacked: Floats | None = None,  # room for unpacked observations, [num_streams, size]
    ) -> None:
        """Write network inputs into `stacked`, [num_streams, n_frames * size].

        `starts` [num_streams] marks streams whose next observation starts an episode. The stack
        updates it.
        """
        self._size, self._packing = size, packing
        if unpacked is None:
            unpacked = np.zeros((len(stacked), size if packing else 0), np.float32)
        self._unpacked: Floats = unpacked
        self._stacked = stacked
        self._starts: Bools = np.ones(len(stacked), np.bool_) if starts is None else starts

    def start(self, mask: Bools) -> None:
        self._starts |= mask

    def state(self) -> State:
        return {"stacked": self._stacked.copy(), "starts": self._starts.copy()}

    def restore(self, state: State) -> None:
        self._stacked[...] = fitting(state, "stacked", self._stacked, FINITE)
        self._starts[...] = fitting(state, "starts", self._starts)

    def push(self, observations: Array, acts: Bools) -> int:
        """Stack acting streams' inputs [num_streams, size]; return one with NaN or inf, or -1."""
        if self._packing is not None:
            rows = (observations, *packed(self._packing, observations))
            write_rows(*rows, acts, self._unpacked)
            observations = self._unpacked
        floats = observations.dtype.kind == "f"
        found: int = _push(self._stacked, observations, acts, self._starts, self._size, floats)
        return found

    def of(self, streams: slice) -> FrameStack:
        return FrameStack(
            self._stacked[streams],
            self._size,
            self._starts[streams],
            self._packing,
            self._unpacked[streams],
        )
