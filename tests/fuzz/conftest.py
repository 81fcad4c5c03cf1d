"""What the fuzz of kernels shares."""

import pytest
import torch


@pytest.fixture
def one_thread():
    """With one thread, matrix products are Remuda's own."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
