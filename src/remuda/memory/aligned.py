"""Arrays that begin on a cache line.

A matrix product adds up in another order where an operand does not begin on a cache line, so the
last bits of a result would depend on the allocator. Whatever a product reads is allocated here, or
copied into torch's own memory, which is aligned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from remuda.memory.shared import CACHE_LINE
from remuda.types import Array

if TYPE_CHECKING:
    import torch


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> Array:
    """Return zeros of this shape and dtype whose first byte is on a cache line."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    found: Array = memory[start : start + size].view(kind).reshape(shape)
    return found


def copied(array: Array, device: torch.device | str = "cpu") -> torch.Tensor:
    """Copy an array into torch's own memory, on a device."""
    import torch

    return torch.from_numpy(array).to(device, copy=True, memory_format=torch.contiguous_format)
