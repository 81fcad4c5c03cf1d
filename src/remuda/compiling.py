"""Tells when a process compiles, which is neither play nor silence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event


class CompileListener(event.Listener):
    """Calls `tell(True)` when Numba begins to compile a function, `tell(False)` when it is done.

    What was compiled before is loaded from the disk, and is not told.
    """

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._depth = 0
        self._tells = False
        """Whether it tells just now: what telling itself needs to be compiled for is not told."""

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        """A function is compiled, maybe for another that calls it."""
        self._depth += 1
        self._say(True)

    def on_end(self, event: Any) -> None:  # noqa: ARG002
        """It is done."""
        self._depth -= 1
        if not self._depth:
            self._say(False)

    def _say(self, compiles: bool) -> None:
        if self._tells:
            return
        self._tells = True
        try:
            self._tell(compiles)
        finally:
            self._tells = False


EVERY = 5.0
"""Seconds between two words on how far compiling is."""


class Progress:
    """Says now and then how many functions were compiled, from the first one on."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told, self._due = 0, 0.0

    def see(self, compiled: int) -> None:
        """Say it, if there are more and it is time."""
        if compiled > self._told and time.monotonic() >= self._due:
            count = "" if compiled == 1 else f", {compiled} functions so far"
            self._say(f"compiling, once for this installation{count}")
            self._told, self._due = compiled, time.monotonic() + EVERY


class _Teller(event.Listener):
    """Tells of what is compiled in this process."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._compiled = progress, 0

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        """A function is compiled."""
        self._compiled += 1
        self._progress.see(self._compiled)

    def on_end(self, event: Any) -> None:
        """It is done."""


@contextmanager
def telling_of_compiling(say: Callable[[str], None]) -> Iterator[None]:
    """Inside the `with`, say how far it is while this process compiles."""
    with event.install_listener("numba:compile", _Teller(Progress(say))):
        yield


def tell_compiling(tell: Callable[[bool], None]) -> None:
    """From now on, call `tell(True)` and `tell(False)` around what this process compiles."""
    event.register("numba:compile", CompileListener(tell))  # type: ignore[no-untyped-call]
