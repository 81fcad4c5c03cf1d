"""The process that analyses a population during a run: it is asked, and answers, by a socket."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from remuda.coordinator.analysis_messages import LONGEST, answer, failure, requested
from remuda.coordinator.population_measures import measure
from remuda.coordinator.recent_payoffs import RecentPayoffs

NICE = 15
"""How far it steps back in the scheduler's queue: behind learners, which step back by 3."""


def serve(asked: socket.socket, ledger: Path, sides: Sequence[int]) -> None:
    """Answer until the other end is closed."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    use_one_thread()
    payoffs = RecentPayoffs(ledger, sides)
    while message := asked.recv(LONGEST):
        try:
            members = requested(message)
            payoffs.look_at(members)
            payoffs.read()
            asked.send(answer(*measure(payoffs.payoffs(), members[:, 1] < 0)))
        except OSError:
            return  # the coordinator does not listen any more
        except Exception as error:  # the next analysis may do
            traceback.print_exc()
            asked.send(failure(error))


def use_one_thread() -> None:
    """Let the libraries of linear algebra that are loaded here compute with one thread.

    Their own variables (`OPENBLAS_NUM_THREADS`) are read while they are loaded, which the fork
    server has done. HiGHS solves the linear programs of an analysis with its serial simplex method.
    """
    for set_threads in openblas_functions("set_num_threads"):
        set_threads(1)


def openblas_functions(name: str) -> Iterator[Any]:
    """The functions `openblas_NAME` of all copies of OpenBLAS that are loaded: NumPy's, SciPy's.

    Wheels give them another prefix or suffix.
    """
    with contextlib.suppress(OSError):  # systems without /proc
        maps = Path("/proc/self/maps").read_text()
        for path in sorted(set(re.findall(r"/\S*openblas\S*\.so\S*", maps))):
            library = ctypes.CDLL(path)
            for prefix in ("", "scipy_"):
                for suffix in ("", "64_", "_64"):
                    found = getattr(library, f"{prefix}openblas_{name}{suffix}", None)
                    if found is not None:
                        yield found
