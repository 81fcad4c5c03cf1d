"""The end of a run in the terminal: its results first, then a picture and the report."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from remuda.coordinator.logs import log_to
from remuda.coordinator.run_directory import RunDirectory
from remuda.errors import RemudaError

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

PICTURE_SECONDS = 10.0
"""Seconds of play after which a picture gets no more frames."""
PICTURE_TURNS = 100
FRAMES_PER_SECOND = 8


def show_results(run: RunDirectory) -> list[str]:
    """Print the results of a run; returns notes on why that failed."""
    from remuda.ui.results import print_results

    notes = []
    try:
        print_results(run.path)
    except RemudaError as error:
        notes = [f"no table: {error}"]
    sys.stdout.flush()
    return notes


def show_files(
    run: RunDirectory, notes: Sequence[str] = (), drawn: Callable[[], str | None] = lambda: None
) -> None:
    """Make the picture and the report of a run, and print the paths of its files, and notes."""
    from remuda.ui.results import print_files

    notes = [*notes, *make_report(run, drawn)]
    print_files(run.path)
    for note in notes:
        print(f"note: {note}")


def make_report(run: RunDirectory, drawn: Callable[[], str | None] = lambda: None) -> list[str]:
    """Make a picture of play, then the report; returns notes on what failed, and why.

    A run without a turn has neither. `drawn` waits for a child that draws the picture, and returns
    its error (empty: none), or None if there is no child and this process must draw.
    """
    try:
        summary = run.read_summary()
    except RemudaError as error:
        return [f"no report: {error}"]
    if not summary.get("turns"):
        return []
    notes: list[str] = []
    with log_to(run.logs / "coordinator.log", _log_level(run)):
        try:
            failed = drawn()
            if failed is None:
                draw_picture(run)
            elif failed:
                notes.append(f"no picture: {failed}")
        except Exception as error:  # the user's game draws it
            notes.append(_note("no picture", error))
        try:
            write_report(run.path)
        except Exception as error:
            notes.append(_note("no report", error))
    return notes


def _log_level(run: RunDirectory) -> str:
    try:
        return run.read_config().run.log_level
    except RemudaError:  # reported by the report, which needs the configuration
        return "info"


def draw_picture(run: RunDirectory) -> None:
    """Write the picture of play that belongs to a run, if its game can be drawn."""
    draw_play(
        run,
        run.recording,
        turns=PICTURE_TURNS,
        seed=run.read_config().seed,
        frames_per_second=FRAMES_PER_SECOND,
        seconds=PICTURE_SECONDS,
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
    """Write a GIF or a film of a run's policies at play; returns whether the game can be drawn."""
    from remuda.evaluate import record
    from remuda.saved_weights import load_run
    from remuda.ui.recording import check_format, write_recording

    check_format(path)
    config, snapshots = load_run(run, checkpoint)
    try:
        frames = record(config, snapshots, turns=turns, seed=seed, seconds=seconds, sampled=sampled)
    except NotImplementedError:
        return False
    write_recording(frames, path, frames_per_second)
    return True


def write_report(run: Path) -> Path:
    """Write the report; its libraries are slow to load, and are imported here."""
    from remuda.ui.report import write_report as write

    return write(run)


def _note(what: str, error: Exception) -> str:
    if isinstance(error, RemudaError):
        return f"{what}: {error}"
    log.error("%s", what, exc_info=error)
    return " ".join(f"{what}: {type(error).__name__}: {error}".split())
