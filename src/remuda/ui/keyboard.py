"""Keys of a terminal, one at a time, without Enter."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import tty
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
"""Arrow keys by the last character of the sequence that a terminal sends."""
ENTER, BACKSPACE, END = "enter", "backspace", ""
"""`END`: the terminal is gone, or the user typed Ctrl-D."""
SEQUENCE_SECONDS = 0.1
"""The longest wait for the rest of an arrow key."""
KEY = re.compile(r"(\x1b[\[O][^A-Za-z~]*[A-Za-z~]?)|(.)", re.DOTALL)
"""An escape sequence or a character."""
NAMED = {"\n": ENTER, "\r": ENTER, "\x7f": BACKSPACE, "\b": BACKSPACE, "\x04": END}


class Keyboard:
    """The keys of a terminal, inside `reading`."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._waiting: deque[str] = deque()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Inside the `with`, keys arrive at once and are not echoed; Ctrl-C works as always.

        The terminal is restored at the end, and before SIGTERM or SIGHUP take effect.
        """
        before = termios.tcgetattr(self._descriptor)

        def restore() -> None:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

        tty.setcbreak(self._descriptor, termios.TCSANOW)
        try:
            with _before_signals(restore):
                yield
        finally:
            restore()

    def key(self) -> str:
        """Return the next key: a character, an arrow of `ARROWS`, `ENTER`, `BACKSPACE` or `END`."""
        while not self._waiting:
            data = self._read()
            if not data:
                return END
            self._waiting.extend(self._keys(data))
        return self._waiting.popleft()

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 64)
        except OSError:  # the other end of a pseudo-terminal was closed
            return b""

    def _keys(self, data: bytes) -> Iterator[str]:
        while data.endswith((b"\x1b", b"\x1b[", b"\x1bO")):  # the rest of an arrow key may come
            if not select.select([self._descriptor], [], [], SEQUENCE_SECONDS)[0]:
                break
            more = self._read()
            if not more:
                break
            data += more
        for sequence, character in KEY.findall(data.decode("ascii", "ignore")):
            if sequence[-1:] in ARROWS:
                yield ARROWS[sequence[-1]]
            elif character in NAMED:
                yield NAMED[character]
            elif character.isprintable() and character:
                yield character


@contextmanager
def _before_signals(restore: Callable[[], None]) -> Iterator[None]:
    """Call a function before SIGTERM and SIGHUP take effect; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}

    def end(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        restore()
        signal.signal(signum, before[signal.Signals(signum)])
        signal.raise_signal(signum)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
