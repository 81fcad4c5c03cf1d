"""Preparation of the end of a run, beside the final evaluation."""

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
"""Seconds to wait for the picture."""
DYING = 60.0
"""Seconds to wait for a killed process."""


class Preparation:
    """A thread that loads the libraries of the report, and a child that draws the picture.

    1. The child writes the picture, whole or not at all, and its log, and nothing else.
    2. The child ends with this process.
    3. If the child cannot start, this process draws the picture.
    """

    def __init__(self) -> None:
        self._loading: Thread | None = None
        self._drawing: tuple[Process, RunDirectory, Path] | None = None
        self._began = 0.0

    def begin(self, run: RunDirectory, has_picture: bool) -> None:
        """Start both; the weights are saved, and the final evaluation is about to begin."""
        # If the system refuses a thread or process, this process does the work later.
        with contextlib.suppress(OSError, RuntimeError):
            loading = Thread(target=_load, args=("remuda.ui.charts",), daemon=True)
            loading.start()
            self._loading = loading
        with contextlib.suppress(OSError, RuntimeError):
            if has_picture and forkserver.server_pid() is not None:
                self._began = _modified(run.recording)
                log = run.logs / "picture.log"
                process = forkserver.start(_draw, (run.path,), name="picture", log=str(log))
                self._drawing = process, run, log

    def end(self) -> None:
        """Wait for the imports: none may run while the interpreter ends."""
        if self._loading is not None:
            self._loading.join()
            self._loading = None

    def picture(self) -> str | None:
        """Wait for the picture; return its error, or an empty string.

        None: no child has drawn it, so this process must.
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
            if code == UNKNOWN and _modified(run.recording) != self._began:
                code = 0  # the server, which knows exit codes, died meanwhile
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


def _modified(file: Path) -> float:
    """Return the time of the last change; 0: the file is missing."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _draw(path: Path) -> None:
    """Draw the picture, in the child."""
    from remuda.coordinator.run_directory import RunDirectory
    from remuda.errors import RemudaError

    try:
        draw_picture(RunDirectory.open(path))
    except RemudaError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from None


def _load(module: str) -> None:
    with contextlib.suppress(Exception):  # the report imports it again, and raises
        import_module(module)
