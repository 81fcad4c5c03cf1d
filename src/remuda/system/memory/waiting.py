"""`Wakeup`: a process sleeps in the kernel until another process rings.

If writers ring only on request, the waiter stores its request in shared memory, checks for new
data, and then sleeps. A writer commits its data, checks for a request, and then rings. Each side
has a full fence between the store and the check, so at least one of them sees the other.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
import weakref
from collections.abc import Callable
from multiprocessing.reduction import DupFd
from typing import Any

from remuda.system.memory.descriptors import explained


class Wakeup:
    """A wake-up of one waiting process; any process may ring it.

    1. No wake-up is lost: a ring between the check of the predicate and the sleep ends the sleep.
       The kernel counts rings, and the count is cleared only before the predicate is checked.
    2. A wait cannot spin: each return from the sleep uses up at least one ring.
    3. It is not a lock. A process that dies ringing or waiting leaves it usable for all others,
       because each process has it open. Ringing never blocks, with or without a waiter.
    4. Every wait has a time limit.
    5. It uses one open file (an eventfd), or two (a pipe) on systems without eventfd.
    """

    def __init__(self, _descriptors: tuple[int, ...] = ()) -> None:
        if not _descriptors:
            with explained():
                if hasattr(os, "eventfd"):
                    _descriptors = (os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK),)
                else:
                    _descriptors = os.pipe()
                    for descriptor in _descriptors:
                        os.set_blocking(descriptor, False)
        self._descriptors = _descriptors
        self._read, self._write = _descriptors[0], _descriptors[-1]
        self._ring = (1).to_bytes(8, sys.byteorder) if len(_descriptors) == 1 else b"\0"
        for descriptor in _descriptors:
            weakref.finalize(self, os.close, descriptor)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)

    def ring(self) -> None:
        """Wake the waiter, or the next one to wait. Never blocks."""
        with contextlib.suppress(BlockingIOError):  # full: it is ringing already
            os.write(self._write, self._ring)

    def fileno(self) -> int:
        """Return a descriptor to poll with others; when it is readable, call `was_rung`."""
        return self._read

    def was_rung(self) -> bool:
        """Return whether it was rung since the last call; only its one waiter may call this."""
        rung = False
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                rung = True
        return rung

    def wait(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Sleep until `predicate` holds, at most `timeout` seconds; return whether it holds.

        The predicate is called at the start and after each ring. If others ring only on request,
        the predicate must store the request before it checks for data.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.was_rung()
            if predicate():
                return True
            remaining = deadline - time.monotonic()
            if remaining <= 0.0:
                return False
            self._poll.poll(remaining * 1000.0)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, tuple(DupFd(descriptor) for descriptor in self._descriptors)


def _attach(*descriptors: Any) -> Wakeup:
    return Wakeup(tuple(descriptor.detach() for descriptor in descriptors))
