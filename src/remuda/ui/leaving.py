"""The end of the program's process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def leave(code: str | int | None) -> NoReturn:
    """End the process as `sys.exit` does, but for taking libraries apart object by object.

    That is a second of work, or more, for memory which the system takes back at once. What was
    registered to be done at the end is done, and threads that are no daemons are waited for.

    Args:
        code: as for `sys.exit`: None is 0, words are told and are 1.
    """
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads any more, or the disk is full
            code = code or 120  # as the interpreter says it
    os._exit((code or 0) & 0xFF)
