"""GPUs to test with: the real ones where there are, or else some that compute on the processor."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from devices.fake_gpus import TRANSFERS, GPUTensor, fake_gpus

REAL = torch.cuda.device_count()
"""How many real ones there are."""
ROUNDING = 1e-5 if not REAL else 1e-3
"""By how much numbers may differ after a few updates: a real one adds up in another order."""


class RealGPUs(TorchDispatchMode):
    """Counts what is computed where, as `FakeGPUs` does."""

    def __init__(self):
        super().__init__()
        self.on_cpu, self.on_gpu = Counter(), Counter()

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else the compiler is loaded, which takes seconds, to be told not to compile

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if func not in TRANSFERS and not func.is_view:
            held = [t for t in tree_leaves((args, kwargs, found)) if isinstance(t, torch.Tensor)]
            gpu = any(t.is_cuda for t in held)
            (self.on_gpu if gpu else self.on_cpu)[func._schema.name.removeprefix("aten::")] += 1
        return found


@contextmanager
def gpus(count=1):
    """Let there be GPUs: the real ones, or so many fakes."""
    if REAL:
        with RealGPUs() as found:
            yield found
    else:
        with fake_gpus(count) as found:
            yield found


def is_there(tensor):
    """Whether a tensor is on a GPU."""
    return tensor.is_cuda if REAL else isinstance(tensor, GPUTensor)
