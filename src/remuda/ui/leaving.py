"""The end of the program's process."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn


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
    _flush_files()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # nobody reads any more, or the disk is full
            code = code or 120  # as the interpreter says it
    os._exit((code or 0) & 0xFF)


def _flush_files() -> None:
    """Write out what files hold that nobody closed."""
    gc.unfreeze()  # what is laid aside from the garbage collector is not among its objects
    for found in gc.get_objects():
        if issubclass(type(found), io.IOBase) and found not in (sys.stdout, sys.stderr):
            with suppress(Exception):
                found.flush()
