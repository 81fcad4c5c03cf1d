"""The format and level of log files, and the logging of child processes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TAIL = 2**16  # bytes at the end of a file that `last_line` reads

_levels: list[str] = []  # levels of this process's log files (`run.log_level`); the last applies
_is_log: list[str] = []  # the level, if this process's output is a log file itself


@contextmanager
def level_of_children(name: str) -> Iterator[None]:
    """Set the level of the children's log files inside the `with` (`run.log_level`)."""
    _levels.append(name)
    try:
        yield
    finally:
        _levels.remove(name)


def level_of_child(has_log: bool) -> str | None:
    """Return the level that a child logs at; None if its output is not a log file."""
    if has_log:
        return (_levels or _is_log or ["info"])[-1]
    return _is_log[-1] if _is_log else None


def log_to_stderr(name: str) -> None:
    """Log only to stderr, which is a log file in this process.

    The user's script, or the parent process, may have added handlers: those that print are
    replaced, those that write the user's files stay.
    """
    _is_log[:] = [name]
    root, own = logging.getLogger(), logging.getLogger("remuda")
    own.propagate = True
    own.setLevel(logging.NOTSET)
    for handler in list(root.handlers):
        if _prints(handler):
            root.removeHandler(handler)
    level = logging.getLevelNamesMapping()[name.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    handler.setLevel(level)
    root.setLevel(min(level, root.level) if root.handlers else level)
    root.addHandler(handler)


def last_line(descriptor: int) -> str:
    """Return the last line of a file that is not blank; empty if there is none."""
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, TAIL, max(size - TAIL, 0)).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _prints(handler: logging.Handler) -> bool:
    if not isinstance(handler, logging.StreamHandler):
        return False
    try:
        return handler.stream.fileno() in (1, 2)
    except (AttributeError, OSError, ValueError):  # not a file, or closed
        return False
