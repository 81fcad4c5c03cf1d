"""What belongs to this run of the tests on a machine that others use too."""

import os
import time
from pathlib import Path

import psutil

MARK = "TESTS_OF"
"""An environment variable that all children inherit, whoever becomes their parent..."""
MINE = f"{os.getpid()}-{time.time_ns()}"
"""...with a value that no other run of the tests has."""


def processes():
    """All processes that descend from this one, those that lost their parents too."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == MINE:
                found.add(process.pid)
        except psutil.Error:
            continue  # gone meanwhile, or another user's
    return found | {child.pid for child in psutil.Process().children(recursive=True)}


def named_memory(*pids):
    """Shared memory with a name that these processes, or this one, have mapped: it may be left."""
    found = set()
    for pid in pids or ("self",):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if " /dev/shm/" in line and not line.endswith(" (deleted)"):
                found.add(line.split(maxsplit=5)[5])
    return found
