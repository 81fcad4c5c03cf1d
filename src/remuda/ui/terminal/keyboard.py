"""Single key presses from a terminal, without Enter."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from remuda.ui.cli.program import before_end

ARROWS = {  # keys are the last letters of escape sequences
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
}
ENTER, BACKSPACE, END = "enter", "backspace", ""  # `END`: no terminal, or Ctrl-D
SEQUENCE_SECONDS = 0.1  # maximum wait for the rest of an escape sequence
KEY = re.compile(r"(\x1b[\[O][^A-Za-z~]*[A-Za-z~]?)|(.)", re.DOTALL)  # escape sequence or character
NAMED = {"\n": ENTER, "\r": ENTER, "\x7f": BACKSPACE, "\b": BACKSPACE, "\x04": END}


class Keyboard:
    """The key presses of a terminal; use inside `reading`."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._waiting: deque[str] = deque()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Deliver keys without Enter; restore the terminal at the end, or on a signal."""
        before = termios.tcgetattr(self._descriptor)

        def restore() -> None:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

        tty.setcbreak(self._descriptor, termios.TCSANOW)
        before_end.append(restore)
        try:
            yield
        finally:
            before_end.remove(restore)
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
        # The rest of an escape sequence may follow.
        while data.endswith((b"\x1b", b"\x1b[", b"\x1bO")):
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
