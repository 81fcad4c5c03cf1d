"""A quick end of the program's process."""

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
    """End the process as `sys.exit(code)` does, without freeing the memory of libraries.

    That would take a second or more. Functions registered with `atexit` run, threads that are not
    daemons are joined, and files that the user's game still has open are flushed.
    """
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    failed = _flush_outputs()
    _end_files()
    if _flush_outputs() or failed:  # the output was closed, or the disk is full
        code = code or 120  # the interpreter's exit code for this
    os._exit((code or 0) & 0xFF)


def output_is_gone() -> bool:
    """Return whether nothing reads standard output any more."""
    output = select.poll()
    output.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def _flush_outputs() -> bool:
    """Flush standard output and error; returns whether one of them failed."""
    failed = False
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception:  # a game may have put anything there
            failed = True
    return failed


def _end_files() -> None:
    """Flush open files, and close archives and temporary files, as the interpreter does."""
    # The concrete base class of all files: a check against `io.IOBase`, which is abstract, takes a
    # tenth of a millisecond for each type.
    kinds: tuple[type, ...] = (_io._IOBase,)
    if "tempfile" in sys.modules:
        from tempfile import _TemporaryFileCloser, _TemporaryFileWrapper  # type: ignore[attr-defined]

        kinds += (_TemporaryFileCloser, _TemporaryFileWrapper)
    if "zipfile" in sys.modules:
        from zipfile import ZipFile

        kinds += (ZipFile,)
    gc.unfreeze()  # frozen objects are not among `get_objects`
    objects = gc.get_objects()
    # Each type is checked once: there are some thousand of them, and a million objects.
    file_types = {each for each in set(map(type, objects)) if issubclass(each, kinds)}
    left = [found for found in objects if type(found) in file_types]
    for file in _inwards(left, kinds):
        # `__del__` closes it, as the interpreter would. Plain files stay open, since others may
        # write into them when they are closed.
        closes = type(file).__module__ != "_io" and hasattr(file, "__del__")
        with suppress(BaseException):
            file.__del__() if closes else file.flush()


def _inwards(files: Sequence[Any], kinds: tuple[type, ...]) -> list[Any]:
    """Return these files and those that they write to, each before those that it writes to."""
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
