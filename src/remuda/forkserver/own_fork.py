"""A fork of this process, with the interface of `subprocess.Popen`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Protocol

UNKNOWN = 255  # exit code of a fork whose end `waitpid` did not see
PAUSE = 0.002  # seconds between two looks for an end


class ServerProcess(Protocol):
    """The part of `subprocess.Popen` that a server's process needs."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return its exit code, negative the signal that killed it; None while it lives."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code, or raise `subprocess.TimeoutExpired`."""

    def kill(self) -> None: ...


class OwnFork:
    """A child that this process forked."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._code: int | None = None

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        return self._look(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        if timeout is not None:
            limit = time.monotonic() + timeout
            while self.poll() is None:
                if time.monotonic() > limit:
                    raise subprocess.TimeoutExpired("a fork of this process", timeout)
                time.sleep(PAUSE)
        code = self._look(0)
        assert code is not None
        return code

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _look(self, options: int) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self._pid, options)
            except ChildProcessError:  # a game waited for all children, or ignores SIGCHLD
                self._code = UNKNOWN
            else:
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
        return self._code
