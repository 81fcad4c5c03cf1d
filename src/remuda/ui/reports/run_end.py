"""The end of a run: results in the terminal, and a GIF and a report written by child processes."""

from __future__ import annotations

import contextlib
import logging
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.coordinator.logs import log_to
from remuda.errors import RemudaError
from remuda.runs.run_directory import RunDirectory
from remuda.runtime.child import last_line
from remuda.system.memory.waiting import Wakeup
from remuda.system.processes import client as forkserver
from remuda.system.processes.process import UNKNOWN

if TYPE_CHECKING:
    from remuda.system.processes.process import Process

log = logging.getLogger(__name__)


def show_results(run: RunDirectory) -> list[str]:
    """Print the results of a run; return notes on failures."""
    from remuda.ui.reports.results import print_results

    notes = []
    try:
        print_results(run.path)
    except RemudaError as error:
        notes = [f"no table: {error}"]
    sys.stdout.flush()
    return notes


def show_files(
    run: RunDirectory, notes: Sequence[str] = (), preparation: Preparation | None = None
) -> None:
    """Make the GIF and the report of a run; print the paths of the run's files and `notes`."""
    from remuda.ui.reports.results import print_files

    notes = [*notes, *make_report(run, preparation)]
    print_files(run.path)
    for note in notes:
        print(f"note: {note}")


def make_report(run: RunDirectory, preparation: Preparation | None = None) -> list[str]:
    """Write the GIF of the policies playing, then the report; return notes on failures."""
    preparation = preparation or Preparation()
    try:
        summary = run.read_summary()
    except RemudaError as error:
        return [f"no report: {error}"]
    if not summary.get("turns"):
        return []
    notes: list[str] = []
    level = "info"
    with contextlib.suppress(RemudaError):  # `write_report` reads the configuration, and reports it
        level = run.read_config().run.log_level
    with log_to(run.logs / "coordinator.log", level):
        try:
            failed = preparation.picture()
            if failed is None:
                draw_picture(run)
            elif failed:
                notes.append(f"no picture: {failed}")
        except Exception as error:  # code of the user's game draws it
            notes.append(_note("no picture", error))
        try:
            if not preparation.report():
                from remuda.ui.reports.report import write_report  # its libraries load slowly

                write_report(run.path)
        except Exception as error:
            notes.append(_note("no report", error))
    return notes


def draw_picture(run: RunDirectory) -> None:
    """Write `play.gif` of a run, if its game can be drawn."""
    draw_play(
        run,
        run.recording,
        turns=100,
        seed=run.read_config().seed,
        frames_per_second=8,
        seconds=10.0,
    )


def draw_play(
    run: RunDirectory,
    path: Path,
    *,
    turns: int,
    seed: int,
    frames_per_second: int,
    checkpoint: int | str = "final",
    seconds: float | None = None,
    sampled: bool | None = None,
) -> bool:
    """Write a GIF or video of a run's policies playing; return whether the game can be drawn."""
    from remuda.evaluation.evaluate import record
    from remuda.runs.saved_weights import load_run
    from remuda.ui.plots.recording import check_format, write_recording

    check_format(path)
    spec, snapshots = load_run(run, checkpoint)
    try:
        frames = record(spec, snapshots, turns=turns, seed=seed, seconds=seconds, sampled=sampled)
    except NotImplementedError:
        return False
    write_recording(frames, path, frames_per_second)
    return True


def _note(what: str, error: Exception) -> str:
    if isinstance(error, RemudaError):
        return f"{what}: {error}"
    log.error("%s", what, exc_info=error)
    return " ".join(f"{what}: {type(error).__name__}: {error}".split())


LIMIT = 60.0  # seconds to wait for the GIF
DYING = 60.0  # seconds to wait for a killed process


class Preparation:
    """Two child processes: one draws the GIF, one the report's charts, and writes it at the end.

    1. A child writes only its own files (whole or not at all) and a log.
    2. A child ends when this process ends.
    3. If a child cannot start, this process does its work; the report's errors too are its own.
    """

    def __init__(self) -> None:
        self._drawing: tuple[Process, RunDirectory, Path] | None = None
        self._writing: tuple[Process, Wakeup, Path] | None = None
        self._began = 0.0

    def begin(self, run: RunDirectory, has_picture: bool) -> None:
        """Start the children, after the weights are saved and before the final evaluation."""
        if forkserver.server_pid() is None:
            return
        # If the system refuses a process, this process does the work later.
        with contextlib.suppress(OSError):
            if has_picture:
                self._began = _modified(run.recording)
                log = run.logs / "picture.log"
                process = forkserver.start(_draw, (run.path,), name="picture", log=str(log))
                self._drawing = process, run, log
        with contextlib.suppress(OSError, RemudaError):
            evaluated, log = Wakeup(), run.logs / "report.log"
            process = forkserver.start(_write, (run.path, evaluated), name="report", log=str(log))
            self._writing = process, evaluated, log

    def end(self) -> None:
        """Kill a child that waits for an evaluation that never came."""
        if self._writing is not None:
            self._writing[0].kill()
            self._writing[0].close()
            self._writing = None

    def report(self) -> bool:
        """Let the child write the report, after the evaluation; return whether it did."""
        if self._writing is None:
            return False
        (process, evaluated, log), self._writing = self._writing, None
        try:
            evaluated.ring()
            if not process.join(LIMIT):
                process.kill()
                process.join(DYING)
            if process.exitcode != 0:
                return False
            log.unlink(missing_ok=True)
            return True
        finally:
            process.close()

    def picture(self) -> str | None:
        """Wait for the GIF; return the child's error (empty: none), or None if no child drew."""
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
                code = 0  # the fork server, which knows exit codes, has died
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
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _draw(path: Path) -> None:
    try:
        draw_picture(RunDirectory.open(path))
    except RemudaError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from None


def _write(path: Path, evaluated: Wakeup) -> None:
    from remuda.ui.reports.report import draw_parts, write_report

    parts = draw_parts(path)
    while not evaluated.was_rung():
        select.select([evaluated], [], [])
    write_report(path, parts)
