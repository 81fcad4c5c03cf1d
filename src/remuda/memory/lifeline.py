"""How a child process ends with its parent, whatever the parent dies of."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import weakref
from multiprocessing.reduction import DupFd
from typing import Any


class Lifeline:
    """A pipe whose other end the parent alone holds: when it closes, that process is gone."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._closers = [weakref.finalize(self, os.close, fd) for fd in (self._read, self._write)]

    def close(self) -> None:
        """For the parent: let go."""
        for close in self._closers:
            close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _hold, (DupFd(self._read),)


def _hold(read: Any) -> int:
    descriptor: int = read.detach()
    return descriptor


def die_with_parent(lifeline: int) -> None:
    """For the child: end when the other end of the pipe closes, and by the kernel's own signal."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    parent = os.getppid()

    def watch() -> None:
        os.read(lifeline, 1)  # returns only when the other end is closed
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
