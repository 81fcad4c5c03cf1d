"""How the program's own process begins a server: it loads what children need, and forks it off."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from remuda.forkserver import server
from remuda.forkserver.client import MODULES, ProcessState, begin
from remuda.forkserver.own_fork import OwnFork, ServerProcess


def is_the_program() -> None:
    """Tell that this process is the program's: only what is known here has run in it so far."""
    ProcessState.is_program = True


def load_and_begin(say: Callable[[str], None]) -> None:
    """Load what children are to have, and let the server of this process be a fork of it.

    So it is loaded once, and not twice side by side. For the program, which needs it itself and has
    done nothing yet; in any other process it is what `begin` does.

    Args:
        say: where it is told if something has to be compiled.
    """
    state = ProcessState
    fresh = threading.active_count() == 1 and "torch" not in sys.modules
    if state.is_program and fresh and sys.platform == "linux" and state.server is None:
        from remuda.compiling import telling_of_compiling

        with telling_of_compiling(say):  # in this process only, so the fork comes after it
            server.load(MODULES)
        begin(_fork)
    begin()


def _fork(requests: int, lifeline: int, said: int) -> ServerProcess:
    """A server that has what this process has."""
    return OwnFork(server.fork(requests, lifeline, said))
