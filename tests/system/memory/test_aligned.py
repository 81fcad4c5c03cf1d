"""Arrays that products read begin on a cache line."""

import numpy as np
import pytest
import torch

from remuda.system.memory.shared import CACHE_LINE, aligned_zeros, copied


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (7, 11, 13)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.bool_])
def test_arrays_begin_on_a_cache_line(shape, dtype):
    held = [aligned_zeros(shape, dtype) for _ in range(20)]
    for array in held:
        assert array.ctypes.data % CACHE_LINE == 0
        assert array.shape == shape
        assert array.dtype == dtype
        assert not array.any()
    held[0][...] = 1
    assert not any(array.any() for array in held[1:])


@pytest.mark.parametrize("start", range(0, 8, 3))
def test_copies_begin_on_a_cache_line_and_are_contiguous(start):
    whole = np.random.default_rng(0).standard_normal((4, 9, 6)).astype(np.float32)
    part = whole[1:3, start:, ::2]
    tensor = copied(part)
    assert tensor.data_ptr() % CACHE_LINE == 0
    assert tensor.is_contiguous()
    assert np.array_equal(tensor.numpy(), part)
    tensor.zero_()
    assert whole.all()
    assert isinstance(tensor, torch.Tensor)
