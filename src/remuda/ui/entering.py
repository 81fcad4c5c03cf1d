"""The beginning of the program's process."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Open what is closed of stdin, stdout and stderr, so that it leads nowhere.

    A shell closes them by `>&-`. Else Python has None in their place, and files that are opened
    later get their numbers, by which children would write into them.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # The least that is free: those below are open by now.
            os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            stream = open(  # noqa: SIM115
                number, mode, encoding="utf-8", errors="backslashreplace", closefd=False
            )
            setattr(sys, name, stream)
