"""Keys of a terminal, one by one, without Enter."""

from __future__ import annotations

import os
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
"""By the last character of what a terminal sends for them."""
ENTER, BACKSPACE, END = "enter", "backspace", ""
"""`END`: the terminal is gone, or its user typed Ctrl-D."""
SEQUENCE_SECONDS = 0.1
"""How long the rest of an arrow key may take to arrive."""
NAMED = {"\n": ENTER, "\r": ENTER, "\x7f": BACKSPACE, "\b": BACKSPACE, "\x04": END}


class Keyboard:
    """Reads keys from a terminal, while `reading` lasts."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Read from a file descriptor; None: from standard input."""
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._waiting: deque[str] = deque()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Inside the `with`, keys come at once and are not echoed; Ctrl-C works as always.

        The terminal is put back at its end, and by SIGTERM, before that does what it did.
        """
        before = termios.tcgetattr(self._descriptor)

        def put_back() -> None:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

        tty.setcbreak(self._descriptor, termios.TCSANOW)
        try:
            with _first_at_sigterm(put_back):
                yield
        finally:
            put_back()

    def key(self) -> str:
        """The next key: a character, `up`, `down`, `left`, `right`, `ENTER`, `BACKSPACE`, `END`."""
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
        text = data.decode("ascii", "ignore")
        at = 0
        while at < len(text):
            if text[at] == "\x1b" and text[at + 1 : at + 2] in ("[", "O"):
                end = at + 2
                while end < len(text) - 1 and not text[end].isalpha() and text[end] != "~":
                    end += 1
                if text[end : end + 1] in ARROWS:
                    yield ARROWS[text[end]]
                at = end + 1
                continue
            if text[at] in NAMED:
                yield NAMED[text[at]]
            elif text[at].isprintable():
                yield text[at]
            at += 1


@contextmanager
def _first_at_sigterm(put_back: Callable[[], None]) -> Iterator[None]:
    """Do this first at SIGTERM and SIGHUP; nothing in other threads than the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}

    def end(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        put_back()
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
