"""Anonymous shared memory, passed to children when they start; arrays start on cache lines."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Mapping
from multiprocessing.reduction import DupFd
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from remuda.errors import RemudaError
from remuda.system.memory.descriptors import explained, nameless_file
from remuda.types import Array

if TYPE_CHECKING:
    import torch

CACHE_LINE = 64
PAGE = 4096  # each set of arrays starts on a new page, so its alignment is always the same
SMALLEST_FILE = 64 * 2**20  # bytes of an arena's first file. Untouched pages take no memory.

Fields = Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]]  # shapes and dtypes of named arrays


class MappedFile:
    """An anonymous file, mapped once in each process that receives it."""

    def __init__(self, size: int, _descriptor: int | None = None) -> None:
        self.size = size
        self._descriptor = _anonymous_file(size) if _descriptor is None else _descriptor
        weakref.finalize(self, os.close, self._descriptor)
        with explained():
            self.memory = mmap.mmap(self._descriptor, size)

    def __reduce__(self) -> tuple[Any, ...]:
        return _map, (self.size, DupFd(self._descriptor))


class Arena:
    """An allocator of many sets of arrays from few files.

    Open files are scarce (often 1,024 for a process), and each mapping needs two. Files double in
    size, so their number grows with the logarithm of the allocated bytes. The coordinator
    allocates; its children receive each file once. Memory is freed with the last array of its file.
    """

    def __init__(self, sparse: bool = False) -> None:
        """Start empty; if `sparse`, only some arrays are used, so none is filled in advance."""
        self.sparse = sparse
        self._file: MappedFile | None = None
        self._used = 0

    def cut(self, size: int) -> tuple[MappedFile, int]:
        """Allocate `size` zero bytes; return their file and offset."""
        size = -(-size // PAGE) * PAGE
        if self._file is None or self._used + size > self._file.size:
            last = self._file.size if self._file is not None else SMALLEST_FILE // 2
            self._file, self._used = MappedFile(max(2 * last, size)), 0
        offset = self._used
        self._used += size
        return self._file, offset


class SharedArrays:
    """Named arrays in one block of memory that several processes share.

    1. The block has no name: the system frees it when the last process that maps it ends, however
       it ends. Nothing is left behind, and no process can unlink a block that another still uses.
    2. A child can receive the block only when it starts, by the file's descriptor.
    3. Fresh memory holds zeros; each array starts on a new cache line.
    4. It contains no lock. The class that defines the arrays states which process may write each.
    5. All arrays of an arena share its descriptors.
    """

    def __init__(
        self,
        fields: Fields,
        arena: Arena | None = None,
        _block: tuple[MappedFile, int] | None = None,
    ) -> None:
        self._fields = {name: (tuple(s), np.dtype(dtype)) for name, (s, dtype) in fields.items()}
        offsets: dict[str, int] = {}
        size = 0
        for name, (shape, dtype) in self._fields.items():
            offsets[name] = size
            length = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            size += -(-length // CACHE_LINE) * CACHE_LINE
        self.nbytes = max(size, CACHE_LINE)
        if _block is None:
            _block = arena.cut(self.nbytes) if arena else (MappedFile(self.nbytes), 0)
        self._file, self._offset = _block
        self.names = tuple(self._fields)
        self._arrays: dict[str, Array] = {
            name: np.ndarray(shape, dtype, self._file.memory, self._offset + offsets[name])
            for name, (shape, dtype) in self._fields.items()
        }

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedArrays, (self._fields, None, (self._file, self._offset))


def _map(size: int, descriptor: Any) -> MappedFile:
    return MappedFile(size, descriptor.detach())


def _anonymous_file(size: int) -> int:
    """Return a descriptor of a file of `size` zero bytes without a path."""
    with explained():
        descriptor = nameless_file("remuda")
    try:
        os.ftruncate(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        raise RemudaError(
            f"cannot allocate {size / 2**20:.0f} MiB of shared memory ({error.strerror}); "
            "lower policy.experience.capacity or the number of policies"
        ) from None
    return descriptor


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> Array:
    """Return zeros of this shape and dtype whose first byte is on a cache line.

    A matrix product sums in another order if an operand is aligned differently, so the last bits
    of a result would depend on the allocator. Allocate all operands here, or copy them by `copied`.
    """
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    array: Array = memory[start : start + size].view(kind).reshape(shape)
    return array


def copied(array: Array, device: torch.device | str = "cpu") -> torch.Tensor:
    """Copy an array to a device, into memory that torch allocates and aligns."""
    import torch

    return torch.from_numpy(array).to(device, copy=True, memory_format=torch.contiguous_format)
