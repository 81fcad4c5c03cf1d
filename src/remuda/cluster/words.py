"""Words of shared memory that a bridge synchronises between two nodes.

A word is an aligned 64-bit number that only one role writes. A reader may miss intermediate values,
but never sees a half-written word. The sender reads words before it copies other data, and the
receiver writes words after the other data. A restarted bridge receives all words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remuda.errors import RemudaError
from remuda.system.kernels import njit
from remuda.system.memory.atomic import fence_release, load_all, store
from remuda.types import Array, Integers


class Words:
    """An ordered list of shared words that one node sends to another.

    The receiver writes only changed words, in this order.
    """

    def __init__(self, parts: Sequence[tuple[Array, Sequence[int] | slice]]) -> None:
        self._arrays = [_words_of(array) for array, _ in parts]
        self._places = [
            np.arange(array.size)[where] if isinstance(where, slice) else np.array(where, np.int64)
            for array, (_, where) in zip(self._arrays, parts, strict=True)
        ]
        self._begins = np.cumsum([0, *(len(places) for places in self._places)])
        size = int(self._begins[-1])
        pairs = list(zip(self._arrays, self._places, strict=True))
        for array, places in pairs:
            assert not places.size or 0 <= places.min() <= places.max() < array.size
        found = [array.ctypes.data + array.itemsize * places for array, places in pairs]
        # The addresses stay valid while `_arrays` refers to the arrays.
        self._addresses: Integers = np.concatenate([*found, np.zeros(0, np.int64)])
        self._now: Integers = np.zeros(size, np.int64)
        # Start with a value that no word has, so every word is sent once.
        self._sent: Integers = np.full(size, -(2**63), np.int64)
        self._at: Integers = np.zeros(size, np.int64)
        self._values: Integers = np.zeros(size, np.int64)

    def __len__(self) -> int:
        return len(self._now)

    def read(self) -> Integers:
        """Read all words, last to first; the result is valid until the next call."""
        load_all(self._addresses, self._now)
        return self._now

    @property
    def has_new_last(self) -> bool:
        """True if the last word, as last read, is not sent yet."""
        return bool(self._now[-1] != self._sent[-1])

    def changed(self) -> Integers:
        """Return the indices, then the values, of words that were not sent yet; they now are."""
        count = _changed(self._now, self._sent, self._at, self._values)
        return np.concatenate((self._at[:count], self._values[:count]))

    def write(self, at: Integers, values: Integers) -> None:
        if len(at) and (at[0] < 0 or at[-1] >= len(self) or (at[1:] <= at[:-1]).any()):
            raise RemudaError("received words that do not exist here")
        fence_release()
        ends = np.searchsorted(at, self._begins)
        for i in np.flatnonzero(np.diff(ends)):
            own = slice(ends[i], ends[i + 1])
            _put(self._arrays[i], self._places[i][at[own] - self._begins[i]], values[own])


def _words_of(array: Array) -> Integers:
    assert array.dtype.itemsize == 8
    assert array.flags.c_contiguous
    words: Integers = array.reshape(-1).view(np.int64)
    return words


@njit(cache=True)
def _changed(words: Integers, sent: Integers, at: Integers, values: Integers) -> int:
    """Find words that differ from `sent`; fill `at` and `values`, and return their number."""
    count = 0
    for i in range(words.size):
        if words[i] != sent[i]:
            at[count], values[count] = i, words[i]
            sent[i] = words[i]
            count += 1
    return count


@njit(cache=True)
def _put(words: Integers, places: Integers, values: Integers) -> None:
    for i in range(places.size):
        store(words, places[i], values[i])
