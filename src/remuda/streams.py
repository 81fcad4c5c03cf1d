"""Seeded random streams: one for each role and policy, none shared, all from the run's one seed.

A stream is named, never numbered by order of creation, so that the same actor or learner draws the
same numbers whether it lives alone, in one process with the others, or after a restart.
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


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The NumPy stream of `names`, for example `stream(7, "learner", "agent_0")`."""
    return np.random.Generator(np.random.PCG64DXSM(_sequence(seed, *names)))


def torch_stream(seed: int, *names: str | int) -> "torch.Generator":
    """The torch stream of `names`, on the CPU."""
    import torch

    state = _sequence(seed, *names).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def seed_libraries(seed: int, *names: str | int) -> None:
    """Seed the global generators of Python, NumPy and torch, which environments may draw from.

    Each process of a run takes names of its own. Torch is imported: a process that imports it later
    would begin with torch's fixed default seed, as every other process.
    """
    import torch  # noqa: F401

    _seed_libraries(_sequence(seed, *names, "libraries"))


def scatter_libraries() -> None:
    """Seed those that are loaded from the system, so that no two processes draw the same."""
    _seed_libraries(np.random.SeedSequence())


def _seed_libraries(sequence: np.random.SeedSequence) -> None:
    words = sequence.generate_state(6, np.uint32)
    np.random.seed(words[:4])
    random.seed(int.from_bytes(words[:4].tobytes(), "little"))
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(int(words[4]) << 32 | int(words[5]))


@contextmanager
def libraries_kept() -> Iterator[None]:
    """Put the global generators back as they were at the end; also a decorator.

    For what seeds them in a process that is the user's own.
    """
    import torch

    python, numpy, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torchs)
