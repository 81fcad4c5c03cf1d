"""What tests of kernels share: one thread, with which products are our own."""

import pytest
import torch


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
