"""Reports of compilation, during which a process neither plays nor counts as hanging."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from numba.core import event


class CompileListener(event.Listener):
    """A listener that calls `tell(True)` when Numba starts to compile, `tell(False)` at the end.

    Functions that are loaded from the disk are not reported.
    """

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._depth = 0
        self._is_telling = False
        """True while `tell` runs: functions that it compiles itself are not reported."""

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        """Count a function, which may be compiled as part of another."""
        self._depth += 1
        self._call(True)

    def on_end(self, event: Any) -> None:  # noqa: ARG002
        """Count the end of a function's compilation."""
        self._depth -= 1
        if not self._depth:
            self._call(False)

    def _call(self, compiles: bool) -> None:
        if self._is_telling:
            return
        self._is_telling = True
        try:
            self._tell(compiles)
        finally:
            self._is_telling = False


class Progress:
    """A report of the number of compiled functions, at most every five seconds."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._reported, self._due = 0, 0.0

    def see(self, compiled: int) -> None:
        """Report the number if it grew and a report is due."""
        if compiled > self._reported and time.monotonic() >= self._due:
            so_far = "" if compiled == 1 else f", {compiled} functions so far"
            self._say(f"compiling, once for this installation{so_far}")
            self._reported, self._due = compiled, time.monotonic() + 5.0


@contextmanager
def reporting_compiling(say: Callable[[str], None]) -> Iterator[None]:
    """Report progress while this process compiles inside the `with`."""
    progress, compiled = Progress(say), count(1)

    def tell(compiles: bool) -> None:
        if compiles:
            progress.see(next(compiled))

    with event.install_listener("numba:compile", CompileListener(tell)):
        yield


@contextmanager
def compiling() -> Iterator[None]:
    """Report to the listeners of this process that it compiles something other than Numba's."""
    event.start_event("numba:compile")  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        event.end_event("numba:compile")  # type: ignore[no-untyped-call]


def tell_compiling(tell: Callable[[bool], None]) -> None:
    """From now on, call `tell(True)` and `tell(False)` around each compilation in this process."""
    event.register("numba:compile", CompileListener(tell))  # type: ignore[no-untyped-call]
