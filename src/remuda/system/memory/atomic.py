"""Atomic loads and stores on shared 64-bit words, with the ordering that lock-free code needs.

Plain NumPy stores are ordered on x86 only. These functions compile to real atomic instructions on
every processor. Both Python and other compiled kernels can call them. A word is an element of a
one-dimensional, contiguous int64 array.

Nothing here takes a lock, so a process that dies between two calls blocks no other.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from remuda.system.kernels import njit
from remuda.types import Integers


def _is_words(array: Any) -> bool:
    return (
        isinstance(array, types.Array)
        and array.dtype == types.int64
        and array.ndim == 1
        and array.layout == "C"
    )


def _word_pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    index = context.cast(builder, args[1], signature.args[1], types.intp)
    return builder.gep(array.data, [index], inbounds=True)


def _loader(ordering: str) -> Any:
    @intrinsic
    def load(typing_context, array, index):  # type: ignore[no-untyped-def]  # noqa: ARG001
        if not _is_words(array):
            return None

        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            pointer = _word_pointer(context, builder, signature, args)
            return builder.load_atomic(pointer, ordering, 8, typ=ir.IntType(64))

        return types.int64(array, index), generate

    return load


def _writer(write: Callable[[Any, Any, Any], Any], result: Any) -> Any:
    @intrinsic
    def instruction(typing_context, array, index, value):  # type: ignore[no-untyped-def]  # noqa: ARG001
        if not _is_words(array):
            return None

        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            pointer = _word_pointer(context, builder, signature, args)
            word = context.cast(builder, args[2], signature.args[2], types.int64)
            found = write(builder, pointer, word)
            return context.get_dummy_value() if result is types.void else found

        return result(array, index, value), generate

    return instruction


def _exchanger(operation: str) -> Any:
    return _writer(lambda b, at, word: b.atomic_rmw(operation, at, word, "seq_cst"), types.int64)


def _fencer(ordering: str) -> Any:
    @intrinsic
    def fence(typing_context):  # type: ignore[no-untyped-def]  # noqa: ARG001
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]  # noqa: ARG001
            builder.fence(ordering)
            return context.get_dummy_value()

        return types.void(), generate

    return fence


def _address_loader(ordering: str) -> Any:
    @intrinsic
    def load(typing_context, address):  # type: ignore[no-untyped-def]  # noqa: ARG001
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]  # noqa: ARG001
            pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
            return builder.load_atomic(pointer, ordering, 8, typ=ir.IntType(64))

        return types.int64(types.int64), generate

    return load


_load_acquire = _loader("acquire")
_load_at = _address_loader("acquire")
_store_release = _writer(lambda b, at, word: b.store_atomic(word, at, "release", 8), types.void)
_exchange = _exchanger("xchg")
_fetch_add = _exchanger("add")
_fence_acquire = _fencer("acquire")
_fence_release = _fencer("release")
_fence_full = _fencer("seq_cst")

# Numba finds the intrinsics as globals of these functions and inlines them.


@njit(cache=True)
def load(words: Integers, index: int) -> int:
    """Read a word; later reads see everything that its writer stored before it (acquire)."""
    return _load_acquire(words, index)  # type: ignore[no-any-return]


@njit(cache=True)
def store(words: Integers, index: int, value: int) -> None:
    """Write a word; a reader that loads it sees all writes before it (release)."""
    _store_release(words, index, value)


@njit(cache=True)
def exchange(words: Integers, index: int, value: int) -> int:
    """Write a word and return its previous value, atomically."""
    return _exchange(words, index, value)  # type: ignore[no-any-return]


@njit(cache=True)
def fetch_add(words: Integers, index: int, value: int) -> int:
    """Add to a word and return its previous value, atomically."""
    return _fetch_add(words, index, value)  # type: ignore[no-any-return]


@njit(cache=True)
def fence_acquire() -> None:
    """Keep reads before the fence from moving after it, and later accesses from moving ahead."""
    _fence_acquire()


@njit(cache=True)
def fence_release() -> None:
    """Make all writes before the fence visible before any write after it."""
    _fence_release()


@njit(cache=True)
def fence_full() -> None:
    """Order writes before the fence against reads after it, as for a flag that both sides check."""
    _fence_full()


@njit(cache=True)
def load_all(addresses: Integers, out: Integers) -> None:
    """Read the words at these addresses into `out` [words], last to first, each like `load`."""
    for i in range(addresses.size - 1, -1, -1):
        out[i] = _load_at(addresses[i])


@njit(cache=True)
def first_difference(words: Integers, seen: Integers) -> int:
    """Return the first index at which `words`, read atomically, differ from `seen`, or -1."""
    for i in range(words.size):
        if _load_acquire(words, i) != seen[i]:
            return i
    return -1


def warm_up() -> None:
    """Compile every function here, or load it from the cache, before a run starts."""
    words = np.zeros(2, np.int64)
    store(words, 0, 1)
    load(words, 0)
    exchange(words, 0, 2)
    fetch_add(words, 0, 1)
    fence_acquire()
    fence_release()
    fence_full()
    first_difference(words, words.copy())
    load_all(words[:0], words[:0])
