"""Seeded random number generators, for each role and policy, derived from the run's seed.

A generator is derived from names, never from the order of creation. So the same actor or learner
draws the same numbers in any process, alone or with other roles, and after a restart.
"""

import random
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def _sequence(seed: int, *names: str | int) -> np.random.SeedSequence:
    words = [n if isinstance(n, int) else zlib.crc32(n.encode()) for n in names]
    return np.random.SeedSequence(seed, spawn_key=words)


def make_rng(seed: int, *names: str | int) -> np.random.Generator:
    """Return the NumPy generator of `names`, for example `make_rng(7, "learner", "agent_0")`."""
    return np.random.Generator(np.random.PCG64DXSM(_sequence(seed, *names)))


def torch_rng(seed: int, *names: str | int) -> "torch.Generator":
    """Return the torch generator of `names`, on the CPU."""
    import torch

    state = _sequence(seed, *names).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def seed_libraries(seed: int, *names: str | int) -> None:
    """Seed the global generators of Python, NumPy and torch, which environments may draw from.

    Each process of a run has different names. Torch is imported first: if it were imported later,
    it would start with torch's default seed, the same in every process.
    """
    import torch  # noqa: F401

    _seed_libraries(_sequence(seed, *names, "libraries"))


def scatter_libraries() -> None:
    """Seed the global generators from the system: no two processes draw the same numbers."""
    _seed_libraries(np.random.SeedSequence())


def _seed_libraries(sequence: np.random.SeedSequence) -> None:
    words = sequence.generate_state(6, np.uint32)
    np.random.seed(words[:4])
    random.seed(int.from_bytes(words[:4].tobytes(), "little"))
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(int(words[4]) << 32 | int(words[5]))


@contextmanager
def libraries_kept() -> Iterator[None]:
    """Restore the global generators at the end; also a decorator."""
    import torch

    python, numpy, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torchs)
