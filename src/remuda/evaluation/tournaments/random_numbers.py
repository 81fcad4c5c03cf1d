"""Random numbers that depend only on the match, whichever environment copy plays it.

Each number is computed from the seed, the match number, the turn, the seat and the count of earlier
draws, by the finalizer of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom
number generators", figure 17). So an interrupted match is replayed exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.system.kernels import njit
from remuda.types import Integers

Keys = npt.NDArray[np.uint64]
GOLDEN = 0x9E3779B97F4A7C15
CALL, TURN = 1 << 16, 1 << 24  # counter strides that keep calls and turns distinct


@njit(cache=True)
def _mixed(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def _derive(keys: Keys, names: Integers, out: Keys) -> None:
    for i in range(len(out)):
        name = np.uint64(names[i]) + np.uint64(1)
        out[i] = _mixed(_mixed(keys[i]) + name * np.uint64(GOLDEN))


@njit(cache=True)
def _uniform(keys: Keys, turns: Integers, rows: Integers, first: int, out: np.ndarray) -> None:
    for i in range(out.shape[0]):
        at = np.uint64(turns[rows[i]]) * np.uint64(TURN) + np.uint64(first)
        for j in range(out.shape[1]):
            z = keys[rows[i]] + (at + np.uint64(j + 1)) * np.uint64(GOLDEN)
            out[i, j] = (_mixed(z) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


def derive(keys: Keys | int, names: Integers) -> Keys:
    """Derive keys [M] from parent keys and the integers `names` [M]."""
    out: Keys = np.zeros(len(names), np.uint64)
    broad = np.broadcast_to(np.asarray(keys, np.uint64), out.shape)
    _derive(np.ascontiguousarray(broad), np.ascontiguousarray(names, dtype=np.int64), out)
    return out


class MatchRandom(np.random.Generator):
    """A generator that draws each row of numbers from its own match.

    This holds for uniform, normal and integer draws with a row for each stream (one agent in one
    environment copy). All other draws work as in any generator, and depend on previous draws.
    """

    def __init__(
        self,
        keys: Keys,
        turns: Integers,
        rest: np.random.Generator,
        streams: Integers | None = None,
    ) -> None:
        """Keep references to the keys [M] and turns [M] of streams; both may change later.

        `streams`: the indices of the streams that use this generator; None: all.
        """
        super().__init__(rest.bit_generator)
        self._keys, self._turns = keys, turns
        self._streams = np.arange(len(keys)) if streams is None else streams
        self.aim(np.arange(len(self._streams)))

    def aim(self, rows: Integers) -> None:
        """Draw for these streams from now on, in this order; restart the count of draws."""
        self._rows: Integers = self._streams[rows]
        self._calls = 0

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        shape = _shape(size) if out is None else out.shape
        if not self._are_rows(shape):
            return super().random(size, dtype, out)
        return _written(self._drawn(shape), dtype, out)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        shape = _shape(size)
        if not self._are_rows(shape):
            return super().uniform(low, high, size)
        return low + (np.asarray(high) - low) * self._drawn(shape)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Draw standard normal numbers (Box and Muller 1958)."""
        shape = _shape(size) if out is None else out.shape
        if not self._are_rows(shape):
            return super().standard_normal(size, dtype, out)
        radius = np.sqrt(-2.0 * np.log1p(-self._drawn(shape)))
        return _written(radius * np.cos(2.0 * np.pi * self._drawn(shape)), dtype, out)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        if not self._are_rows(_shape(size)):
            return super().normal(loc, scale, size)
        return loc + scale * self.standard_normal(size)

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> Any:
        """Draw integers; by rows if the bounds are scalars."""
        shape = _shape(size)
        if not (self._are_rows(shape) and np.ndim(low) == 0 and np.ndim(high) == 0):
            return super().integers(low, high, size, dtype, endpoint)
        low, high = (0, low) if high is None else (low, high)
        count = int(high) - int(low) + int(endpoint)
        return (low + np.floor(self._drawn(shape) * count)).astype(dtype)

    def _are_rows(self, shape: tuple[int, ...]) -> bool:
        return len(shape) > 0 and shape[0] == len(self._rows)

    def _drawn(self, shape: tuple[int, ...]) -> Any:
        out = np.zeros((shape[0], int(np.prod(shape[1:], dtype=np.int64))))
        _uniform(self._keys, self._turns, self._rows, self._calls * CALL, out)
        self._calls += 1
        return out.reshape(shape)


class MatchSeeds(np.random.Generator):
    """Episode seeds by environment copy, from the matches that the copies play next."""

    def __init__(self, keys: Keys, rest: np.random.Generator) -> None:
        """Keep a reference to the keys of the copies' matches, [num_envs]."""
        super().__init__(rest.bit_generator)
        self._matches = keys

    def integers(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - the actor's call
        """Return seeds of 63 bits: [num_envs] int64."""
        return (self._matches >> np.uint64(1)).astype(np.int64)


def _written(drawn: Any, dtype: Any, out: Any) -> Any:
    if out is None:
        return drawn.astype(dtype, copy=False)
    out[...] = drawn
    return out


def _shape(size: Any) -> tuple[int, ...]:
    if size is None:
        return ()
    return tuple(size) if np.iterable(size) else (int(size),)
