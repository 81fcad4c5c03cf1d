"""A pipe that ends child processes when their parent dies, for whatever reason."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import threading
import weakref


class Lifeline:
    """A pipe whose write end only the parent holds; it closes when the parent dies."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._closers = [weakref.finalize(self, os.close, fd) for fd in (self._read, self._write)]

    @property
    def descriptor(self) -> int:
        """The end that children inherit."""
        return self._read

    def close(self) -> None:
        """Close both ends, in the parent."""
        for close in self._closers:
            close()


def die_with_parent(lifeline: int, thread: bool = True) -> int | None:
    """Kill this child by SIGKILL when the pipe closes; on Linux even if it is stopped."""
    own = _be_signalled(lifeline) if sys.platform == "linux" else None
    if thread:
        threading.Thread(target=_watch, args=(lifeline,), name="lifeline", daemon=True).start()
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    if poll.poll(0):  # it closed before this process watched it
        os.kill(os.getpid(), signal.SIGKILL)
    return own


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns only when the other end is closed
    os.kill(os.getpid(), signal.SIGKILL)


def _be_signalled(lifeline: int) -> int | None:
    """Let the kernel send SIGKILL in place of SIGIO."""
    f_setsig = 10
    own = None
    try:
        # Inherited descriptors share a file description, which has one owner of signals: reopen it.
        own = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, f_setsig, signal.SIGKILL)
        fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:  # the thread kills the child instead
        if own is not None:
            os.close(own)
        return None
    return own
