"""What the end of a run needs, made ready beside greedy play."""

from __future__ import annotations

import contextlib
import signal
import sys
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from remuda.forkserver import client as forkserver
from remuda.runtime.child import last_line
from remuda.ui.ending import draw_picture

if TYPE_CHECKING:
    from remuda.coordinator.run_directory import RunDirectory
    from remuda.forkserver.process import Process

LIMIT = 60.0
"""Seconds that the picture may take besides."""


class Preparation:
    """The libraries of the report are loaded by a thread, the picture is drawn by a child.

    The child writes nothing but the picture, whole or not at all, and its log. It ends with this
    process; whatever else becomes of it, the picture is drawn by this process then.
    """

    def __init__(self) -> None:
        self._loading: Thread | None = None
        self._drawing: tuple[Process, Path] | None = None

    def begin(self, run: RunDirectory, has_picture: bool) -> None:
        """The weights are saved, and greedy play is about to begin."""
        self._loading = Thread(target=_load, args=("remuda.ui.charts",), daemon=True)
        self._loading.start()
        if has_picture and forkserver.server_pid() is not None:
            log = run.logs / "picture.log"
            with contextlib.suppress(OSError):
                process = forkserver.start(_draw, (run.path,), name="picture", log=str(log))
                self._drawing = process, log

    def end(self) -> None:
        """Wait for what has begun to be loaded: no import is left to the end of the process."""
        if self._loading is not None:
            self._loading.join()
            self._loading = None

    def picture(self) -> str | None:
        """Wait for the picture; returns what it failed by, nothing if it did not.

        None: nobody has tried, or it was lost by no fault of its own.
        """
        if self._drawing is None:
            return None
        (process, log), self._drawing = self._drawing, None
        try:
            if not process.join(LIMIT):
                process.kill()
                process.join(LIMIT)
                return f"it took more than {LIMIT:.0f} s"
            if process.exitcode == 0:
                log.unlink(missing_ok=True)
                return ""
            if process.was_lost:
                return None
            code = process.exitcode or 0
            if code < 0:
                return f"its process was killed by {signal.Signals(-code).name}"
            return last_line(log)
        finally:
            process.close()


def _draw(path: Path) -> None:
    """In the child: draw the picture."""
    from remuda.coordinator.run_directory import RunDirectory
    from remuda.errors import RemudaError

    try:
        draw_picture(RunDirectory.open(path))
    except RemudaError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from None


def _load(module: str) -> None:
    with contextlib.suppress(Exception):  # whoever needs it will tell
        import_module(module)
