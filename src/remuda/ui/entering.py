"""Standard streams at the start of the program."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Open /dev/null in place of a standard stream that the shell closed (`>&-`).

    Otherwise a file opened later gets its descriptor, and child processes write into that file.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # It gets the smallest free descriptor: those below are open by now.
            os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            stream = open(  # noqa: SIM115
                number, mode, encoding="utf-8", errors="backslashreplace", closefd=False
            )
            setattr(sys, name, stream)
