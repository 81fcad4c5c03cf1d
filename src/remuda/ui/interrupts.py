"""Ctrl-C, SIGTERM and SIGHUP end the program at once, but for what must be put right first."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from remuda import output
from remuda.forkserver.signals import STOPPING_SIGNALS

INTERRUPTED = 130
HALTED = 3
"""Exit code of a run in which a policy stopped learning: too many updates were not finite."""

AFTER_A_PICTURE = b"\x1b[?25h\r\n"
"""Shows the cursor of a terminal, which the live view hides, and leaves the picture's last line."""

_hints: list[str] = []
"""What is told besides, from when on."""


def end_at_once() -> None:
    """From now on Ctrl-C, SIGTERM and SIGHUP are told in one line and end the process.

    Their exit codes are 130, 143 and 129.

    As an exception it would have to pass through the native code of a library that is halfway
    loaded, or through a callback or finalizer: some abort, some swallow it, so that the program
    goes on as if nothing had been said, and some are broken from then on. The program stands an
    end at any moment anyway, as by `kill -9`. What shall end in order says so: a run that is under
    way (`Signals`), and a picture in the terminal (`ends_in_order`). For the main thread; where
    a signal is ignored, as SIGINT in the background of a shell, it stays ignored.
    """
    for number in STOPPING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def tell_at_the_end(*words: str) -> None:
    """From now on a signal that ends the process is told with these words besides."""
    _hints[:] = words


def told_at_the_end(number: int = signal.SIGINT) -> str:
    """What a signal that ends the process is told with."""
    what = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    return "; ".join([f"remuda: {what}", *_hints])


@contextmanager
def ends_in_order() -> Iterator[None]:
    """Inside the `with`, Ctrl-C is a `KeyboardInterrupt`, so that things are put right first."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    # It may come in the middle of a write, or nothing may read the outputs any more.
    output.never_fail()
    with suppress(RuntimeError, OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError):
        if os.isatty(1):
            output.write_at_once(1, AFTER_A_PICTURE)
    output.write_at_once(2, f"{told_at_the_end(number)}\n".encode())
    os._exit(128 + number)
