"""Ctrl-C, SIGTERM and SIGHUP: they end the program at once, except inside `ends_in_order`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from remuda import output
from remuda.forkserver.child import STOPPING_SIGNALS

INTERRUPTED = 130
HALTED = 3
"""Exit code of a run in which a policy stopped learning: too many updates were not finite."""

AFTER_A_PICTURE = b"\x1b[?25h\r\n"
"""Shows the cursor, which the live view hides, and moves below the picture's last line."""

_hints: list[str] = []
"""Printed at the end."""


def end_at_once() -> None:
    """Make Ctrl-C, SIGTERM and SIGHUP print one line and end the process (codes 130, 143, 129).

    An exception would have to pass through the native code of a library that is halfway loaded, or
    through a callback or finalizer: some abort, some swallow it, and some are broken from then on.
    The program survives an end at any moment anyway, as by `kill -9`. A run (`Signals`) and a
    picture in the terminal (`ends_in_order`) handle signals themselves. For the main thread; a
    signal that is ignored, as SIGINT in the background of a shell, stays ignored.
    """
    for number in STOPPING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def set_exit_hints(*words: str) -> None:
    """Set what is printed, besides the signal, when a signal ends the process."""
    _hints[:] = words


def exit_message(number: int = signal.SIGINT) -> str:
    """Return the line printed when a signal ends the process."""
    what = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    return "; ".join([f"remuda: {what}", *_hints])


@contextmanager
def ends_in_order() -> Iterator[None]:
    """Make Ctrl-C a `KeyboardInterrupt` inside the `with`, so that cleanup runs first."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    # A write may be interrupted, or the outputs may be closed.
    output.never_fail()
    with suppress(RuntimeError, OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError):
        if os.isatty(1):
            output.write_at_once(1, AFTER_A_PICTURE)
    output.write_at_once(2, f"{exit_message(number)}\n".encode())
    os._exit(128 + number)
