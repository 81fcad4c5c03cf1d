"""The end of the program's process."""

from __future__ import annotations

import _io
import atexit
import gc
import os
import select
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn


def leave(code: str | int | None) -> NoReturn:
    """End the process as `sys.exit` does, but for taking libraries apart object by object.

    That is a second of work, or more, for memory which the system takes back at once. What was
    registered to be done at the end is done, threads that are no daemons are waited for, and what
    was written to files that a game of the user's holds open is not lost.

    Args:
        code: as for `sys.exit`: None is 0, words are told and are 1.
    """
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    failed = _flush_outputs()
    _end_files()
    if _flush_outputs() or failed:  # the output has no reader any more, or the disk is full
        code = code or 120  # as the interpreter says it
    os._exit((code or 0) & 0xFF)


def output_is_gone() -> bool:
    """Whether what is printed has no reader any more."""
    output = select.poll()
    output.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def _flush_outputs() -> bool:
    """Write what the outputs hold, as they are now; returns whether one of them could not be."""
    failed = False
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception:  # a game may have put anything there
            failed = True
    return failed


def _end_files() -> None:
    """Do with files that are still open what an interpreter does when it ends.

    What they hold is written. Those that are more than a file of the system's are closed, as a
    packed one needs an end, and a temporary one is not to stay.
    """
    # The class of the interpreter that all files are of: to ask `io.IOBase`, an abstract one, takes
    # a tenth of a millisecond for each type.
    kinds: tuple[type, ...] = (_io._IOBase,)
    if "tempfile" in sys.modules:
        from tempfile import _TemporaryFileCloser, _TemporaryFileWrapper  # type: ignore[attr-defined]

        kinds += (_TemporaryFileCloser, _TemporaryFileWrapper)
    if "zipfile" in sys.modules:
        from zipfile import ZipFile

        kinds += (ZipFile,)
    gc.unfreeze()  # what is laid aside from the garbage collector is not among its objects
    objects = gc.get_objects()
    # A type is asked once: there are some thousand of them, and a million objects.
    asked = {each for each in set(map(type, objects)) if issubclass(each, kinds)}
    left = [found for found in objects if type(found) in asked]
    for file in _inwards(left, kinds):
        # What `__del__` does is what an interpreter does: close it. A file of the system's is left
        # open, as are the outputs, since whatever is closed after it may write into it.
        closes = type(file).__module__ != "_io" and hasattr(file, "__del__")
        with suppress(BaseException):
            file.__del__() if closes else file.flush()


def _inwards(files: Sequence[Any], kinds: tuple[type, ...]) -> list[Any]:
    """These and what they write to, each before those that it writes to."""
    found: list[Any] = []
    seen: set[int] = set()

    def visit(file: Any) -> None:
        seen.add(id(file))
        for held in gc.get_referents(file, getattr(file, "__dict__", None)):
            if issubclass(type(held), kinds) and id(held) not in seen:
                visit(held)
        found.append(file)

    for file in files:
        if id(file) not in seen:
            with suppress(Exception):
                visit(file)
    return found[::-1]
