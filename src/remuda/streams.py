"""Seeded random streams: one for each role and policy, none shared, all from the run's one seed.

A stream is named, never numbered by order of creation, so that the same actor or learner draws the
same numbers whether it lives alone, in one process with the others, or after a restart.
"""

import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def _sequence(seed: int, *names: str | int) -> np.random.SeedSequence:
    words = [n if isinstance(n, int) else zlib.crc32(n.encode()) for n in names]
    return np.random.SeedSequence(seed, spawn_key=words)


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The NumPy stream of `names`, for example `stream(7, "learner", "agent_0")`."""
    return np.random.Generator(np.random.PCG64DXSM(_sequence(seed, *names)))


def torch_stream(seed: int, *names: str | int) -> "torch.Generator":
    """The torch stream of `names`, on the CPU."""
    import torch

    state = _sequence(seed, *names).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))
