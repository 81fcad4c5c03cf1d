"""PlayProgress of evaluation and of matches, while they run."""

from __future__ import annotations

import sys
import time
from typing import IO

PATIENCE = 2.0
"""Seconds before the first line."""
TERMINAL_EVERY, PLAIN_EVERY = 0.2, 10.0
"""Seconds between two lines; a terminal overwrites its last one."""


class PlayProgress:
    """Reports play that takes longer than a moment, and how to end it."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._what = ""
        self._begun = self._printed = 0.0
        self._is_open = False

    def __call__(self, what: str, done: int, wanted: int) -> None:
        """Report the episodes that are over, and those wanted."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._begun = what, now
        on_terminal = self._out.isatty()
        every = TERMINAL_EVERY if on_terminal else PLAIN_EVERY
        if done >= wanted:
            self.close()
        elif now - self._begun >= PATIENCE and now - self._printed >= every:
            self._printed = now
            words = f"{what}: {done:,} of {wanted:,} episodes (Ctrl-C ends it)"
            line = f"\r{words}" if on_terminal else f"{words}\n"
            print(line, end="", file=self._out, flush=True)
            self._is_open = on_terminal

    def close(self) -> None:
        """Clear the line of a terminal."""
        if self._is_open:
            print("\r\x1b[K", end="", file=self._out, flush=True)
            self._is_open = False
