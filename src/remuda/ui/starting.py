"""Ctrl-C while libraries load: it ends the process at once, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType

INTERRUPTED = 130


@contextmanager
def ends_at_once() -> Iterator[None]:
    """Inside the `with`, Ctrl-C is told in one line and ends the process with code 130.

    As an exception it would have to pass through the native code of a library that is halfway
    loaded: some abort, some swallow it, and some are broken from then on. Only for times when this
    process has made nothing yet that somebody would have to clear away. In the main thread; where
    the signal is ignored, as in the background of a shell, it stays ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def load(*modules: str) -> None:
    """Import modules, so that importing them later takes no time."""
    with ends_at_once():
        for module in modules:
            import_module(module)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    sys.stdout.flush()
    os.write(sys.stderr.fileno(), b"remuda: interrupted\n")
    os._exit(INTERRUPTED)
