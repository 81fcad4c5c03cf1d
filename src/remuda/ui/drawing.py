"""What the end of a run needs, made ready beside the play that measures."""

from __future__ import annotations

import contextlib
import signal
import sys
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from remuda.forkserver import client as forkserver
from remuda.forkserver.process import UNKNOWN
from remuda.runtime.child import last_line
from remuda.ui.ending import draw_picture

if TYPE_CHECKING:
    from remuda.coordinator.run_directory import RunDirectory
    from remuda.forkserver.process import Process

LIMIT = 60.0
"""Seconds that the picture may take besides."""
DYING = 60.0
"""Seconds that a process which was killed may take to be gone."""


class Preparation:
    """The libraries of the report are loaded by a thread, the picture is drawn by a child.

    The child writes nothing but the picture, whole or not at all, and its log. It ends with this
    process. Where it could not begin, this process draws the picture; what it failed by is told.
    """

    def __init__(self) -> None:
        self._loading: Thread | None = None
        self._drawing: tuple[Process, RunDirectory, Path] | None = None
        self._began = 0.0

    def begin(self, run: RunDirectory, has_picture: bool) -> None:
        """The weights are saved, and the play that measures is about to begin."""
        # What the system refuses here is done later, by this process.
        with contextlib.suppress(OSError, RuntimeError):
            loading = Thread(target=_load, args=("remuda.ui.charts",), daemon=True)
            loading.start()
            self._loading = loading
        with contextlib.suppress(OSError, RuntimeError):
            if has_picture and forkserver.server_pid() is not None:
                self._began = _changed(run.recording)
                log = run.logs / "picture.log"
                process = forkserver.start(_draw, (run.path,), name="picture", log=str(log))
                self._drawing = process, run, log

    def end(self) -> None:
        """Wait for what has begun to be loaded: no import is left to the end of the process."""
        if self._loading is not None:
            self._loading.join()
            self._loading = None

    def picture(self) -> str | None:
        """Wait for the picture; returns what it failed by, nothing if it did not.

        None: no child was to draw it, or it could not begin.
        """
        if self._drawing is None:
            return None
        (process, run, log), self._drawing = self._drawing, None
        try:
            if not process.join(LIMIT):
                process.kill()
                process.join(DYING)
                return f"it took more than {LIMIT:.0f} s"
            code = process.exitcode
            if code == UNKNOWN and _changed(run.recording) != self._began:
                code = 0  # the server died meanwhile, which tells how a process ended
            if code == 0:
                log.unlink(missing_ok=True)
                return ""
            if process.was_lost or process.failure or code in (None, UNKNOWN):
                return None
            if code < 0:
                return f"its process was killed by {signal.Signals(-code).name}"
            return last_line(log)
        finally:
            process.close()


def _changed(file: Path) -> float:
    """When it was written last; 0: it is not there."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


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
    with contextlib.suppress(Exception):  # the report, which needs it, will tell
        import_module(module)
