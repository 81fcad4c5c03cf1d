"""Start the server from the program's process: load what children need, and fork it off."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from remuda.forkserver import server
from remuda.forkserver.client import MODULES, ProcessState, begin
from remuda.forkserver.own_fork import OwnFork, ServerProcess


def is_the_program() -> None:
    """Note that this process is the program's: it has run nothing but Remuda's start so far."""
    ProcessState.is_program = True


def load_and_begin(say: Callable[[str], None]) -> None:
    """Load what children need, and make the server of this process a fork of it.

    So the program, which needs the same itself, loads it once. In any other process it is `begin`.
    """
    state = ProcessState
    fresh = threading.active_count() == 1 and "torch" not in sys.modules
    if state.is_program and fresh and sys.platform == "linux" and state.server is None:
        from remuda.compiling import reporting_compiling

        with reporting_compiling(say):  # in this process only, so the fork comes after it
            server.load(MODULES)
        begin(_fork)
    begin()


def _fork(requests: int, lifeline: int, output: int) -> ServerProcess:
    """Return a server that has loaded the same as this process."""
    return OwnFork(server.fork(requests, lifeline, output))
