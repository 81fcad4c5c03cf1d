"""The process that analyses a population during a run: it answers requests from a pipe."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from remuda.coordinator.population_measures import measure
from remuda.coordinator.recent_payoffs import RecentPayoffs

NICE = 15  # lower priority than learners, whose niceness is 3


def serve(pipe: Connection, ledger: Path, sides: Sequence[int]) -> None:
    """Answer each request, [N, 2] members, until the other end is closed."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    use_one_thread()
    payoffs = RecentPayoffs(ledger, sides)
    found: Any
    with contextlib.suppress(EOFError, OSError):
        while True:
            members = pipe.recv()
            try:
                payoffs.look_at(members)
                payoffs.read()
                found = measure(payoffs.payoffs(), members[:, 1] < 0)
            except Exception as error:  # the next analysis may work
                traceback.print_exc()
                found = f"{type(error).__name__}: {error}"[:500]
            pipe.send(found)


def use_one_thread() -> None:
    """Let every loaded OpenBLAS compute with one thread.

    The fork server has loaded them already, so `OPENBLAS_NUM_THREADS` would come too late.
    """
    for set_threads in openblas_functions("set_num_threads"):
        set_threads(1)


def openblas_functions(name: str) -> Iterator[Any]:
    """Find `openblas_NAME` in all loaded copies of OpenBLAS; wheels add prefixes and suffixes."""
    with contextlib.suppress(OSError):  # systems without /proc
        maps = Path("/proc/self/maps").read_text()
        for path in sorted(set(re.findall(r"/\S*openblas\S*\.so\S*", maps))):
            library = ctypes.CDLL(path)
            for prefix in ("", "scipy_"):
                for suffix in ("", "64_", "_64"):
                    found = getattr(library, f"{prefix}openblas_{name}{suffix}", None)
                    if found is not None:
                        yield found
