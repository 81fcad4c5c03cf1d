"""Shared memory without a name, handed to spawned children."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Mapping
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.errors import RemudaError
from remuda.types import Array

CACHE_LINE = 64

Fields = Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]]
"""Arrays by name, each a shape and a dtype."""


class SharedArrays:
    """Named arrays in one block of memory that several processes see.

    What it guarantees:

    1. The block has no name: it is gone when the last process that maps it ends, by any signal.
       Nothing can be left behind, and nobody can unlink what another still uses.
    2. It crosses to a child only while that child is spawned, by its descriptor.
    3. Fresh memory holds zeros; each array starts on a cache line of its own.
    4. There is no lock in it. Who may write which array is said by the class that lays it out.
    """

    def __init__(self, fields: Fields, _descriptor: int | None = None) -> None:
        self._fields = {
            name: (tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in fields.items()
        }
        offsets: dict[str, int] = {}
        size = 0
        for name, (shape, dtype) in self._fields.items():
            offsets[name] = size
            length = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            size += -(-length // CACHE_LINE) * CACHE_LINE
        self.nbytes = max(size, CACHE_LINE)
        self._descriptor = _anonymous_file(self.nbytes) if _descriptor is None else _descriptor
        weakref.finalize(self, os.close, self._descriptor)
        memory = mmap.mmap(self._descriptor, self.nbytes)
        self._arrays: dict[str, Array] = {
            name: np.ndarray(shape, dtype, buffer=memory, offset=offsets[name])
            for name, (shape, dtype) in self._fields.items()
        }

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self._fields, DupFd(self._descriptor))


def _attach(fields: Fields, descriptor: Any) -> SharedArrays:
    return SharedArrays(fields, descriptor.detach())


def _anonymous_file(size: int) -> int:
    """A descriptor of `size` zero bytes that no path leads to."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("remuda", os.MFD_CLOEXEC)
    else:
        descriptor, path = tempfile.mkstemp(prefix="remuda-")
        os.unlink(path)
    try:
        os.ftruncate(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        raise RemudaError(
            f"no shared memory of {size / 2**20:.0f} MiB to be had ({error.strerror}); "
            "lower policy.experience.capacity or the number of policies"
        ) from None
    return descriptor
