"""Find the runs in a directory, and read a summary of each from its plain files.

Configurations are not validated: that would import the user's code, and unpickle files.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.config import Config, read_tree
from remuda.coordinator.run_directory import RunDirectory
from remuda.coordinator.status import read_status
from remuda.errors import RemudaError, RunDirectoryError
from remuda.evaluation import way_of
from remuda.ui.numbers import NOTHING, number

if TYPE_CHECKING:
    from rich.console import Console

DEPTH = 3
"""Levels of directories that are searched for runs."""
BESIDE = 71
"""Characters of all columns beside the path. In a narrower terminal the game is left out: most
paths name it."""
LONGEST = 18
"""Characters of a game's name that are shown."""
TRACES = ("metrics.jsonl", "checkpoints", "summary.json", "status.json")
"""Files that show that a directory was a run, even without a configuration."""


@dataclass(frozen=True)
class FoundRun:
    """A short summary of a run. None: not known."""

    path: Path
    game: str = NOTHING
    last: float | None = None
    """The time of its last activity (Unix time)."""
    turns: int | None = None
    state: str = ""
    """How it ended, or that it is running."""
    best: float | None = None
    """The best mean return over its agents: of its checkpoints, or at its end."""
    damaged: str = ""
    """The files that could not be read, and why."""

    def as_summary(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {**vars(self), "path": str(self.path)}


def find_runs(base: Path, depth: int = DEPTH) -> list[Path]:
    """Return the run directories in a directory, itself included, sorted by path."""
    if (base / "config.yaml").is_file() or any((base / name).exists() for name in TRACES):
        return [base]
    if depth == 0:
        return []
    try:
        inside = sorted(entry.path for entry in os.scandir(base) if entry.is_dir())
    except OSError:
        return []
    return [found for path in inside for found in find_runs(Path(path), depth - 1)]


def list_runs(base: Path) -> list[FoundRun]:
    """Return the runs in a directory, the most recently active last."""
    if not base.is_dir():
        raise RunDirectoryError(f"there is no directory {base}; name the one that runs are in")
    return sorted(map(summarise, find_runs(base)), key=lambda run: (run.last or 0.0, str(run.path)))


def summarise(path: Path) -> FoundRun:
    """Return a short summary of a run, with all that is not damaged."""
    files, faults = RunDirectory(path), []
    found: dict[str, Any] = {"last": _modified(path)}
    try:
        found["game"] = _game_of(files.config)
    except (RemudaError, OSError, UnicodeDecodeError) as error:
        faults.append(_fault(path, error))
    running = files.is_running()
    found["state"] = "is running" if running else "did not end in order"
    if not files.status.exists() and not files.summary.exists() and not running:
        found["state"] = "did not begin"
    for read in (_by_status, _by_summary):
        try:
            found |= read(files, running)
        except (RemudaError, OSError) as error:
            faults.append(_fault(path, error))
    measured = found.pop("measured", None)
    best = _best_of(measured, files.checkpoints.best())
    return FoundRun(path, best=best, damaged="; ".join(faults), **found)


def _best_of(measured: Mapping[str, Any] | None, best: Mapping[str, Any] | None) -> float | None:
    """Return the best mean return of the last evaluation and of the best checkpoint.

    If one was greedy and the other sampled, the evaluation's own counts.
    """
    agents = (measured or {}).get("agents", {}).values()
    means = [each["mean"] for each in agents if each.get("episodes") != 0]
    found = [] if best is None else [float(best["mean_return"])]
    if means and None not in means:  # None: some return was not finite
        found = [*(found if way_of(best) == way_of(measured) else ()), sum(means) / len(means)]
    return max(filter(math.isfinite, found), default=None)


def _game_of(path: Path) -> str:
    """Return the game's name in a run's configuration; it may be missing or damaged."""
    if not path.exists():
        raise RunDirectoryError("it has no config.yaml")
    tree = read_tree(path)
    if not tree:
        raise RunDirectoryError(f"{path} is damaged: it is empty")
    game = tree.get("game", Config.model_fields["game"].default)
    if not isinstance(game, str):
        raise RunDirectoryError(f"{path} is damaged: its game is {game!r}, and no name")
    return game


def _by_status(files: RunDirectory, running: bool) -> dict[str, Any]:
    if not files.status.exists():
        return {}
    status = read_status(files.status)
    found: dict[str, Any] = {"last": status["time"], "turns": status["turns"]}
    if status["ended"] and not running:
        found["state"] = status["ended"]
    return found


def _by_summary(files: RunDirectory, running: bool) -> dict[str, Any]:
    """Read the summary; while the run is running, it is of an earlier session."""
    if not files.summary.exists() or running:
        return {}
    summary = files.read_summary()
    found: dict[str, Any] = {"turns": summary["turns"], "state": summary["ended"]}
    return found | {"measured": summary["evaluation"]}


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _fault(path: Path, error: Exception) -> str:
    """Return an error in one line, without the directory, which is printed beside it."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words.replace(f"{path}{os.sep}", "")


def print_runs(base: Path, runs: Sequence[FoundRun], console: Console | None = None) -> None:
    """Print a table of runs, then a line for each that is damaged."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    if not runs:
        console.print(Text(f"there is no run in {base}"))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    longest = max(len(_short(run.path, base)) for run in runs)
    least = min(longest, console.width * 3 // 8)
    wide = console.width >= least + BESIDE
    table.add_column("path", overflow="fold", min_width=least)
    if wide:
        table.add_column("game", style="bold", no_wrap=True, max_width=LONGEST)
    for heading in ("last active", "turns", "best return"):
        table.add_column(heading, justify="right", no_wrap=True)
    ended = None if console.width >= 140 else 11  # otherwise rich shortens the paths
    table.add_column("ended", overflow="fold", min_width=8, max_width=ended)
    for run in runs:
        style = "red" if run.damaged else ""
        table.add_row(
            Text(_short(run.path, base)),
            *([Text(run.game)] if wide else []),
            NOTHING if run.last is None else _when(run.last),
            NOTHING if run.turns is None else f"{run.turns:,}",
            number(run.best),
            Text("damaged" if run.damaged else run.state, style),
        )
    console.print(Text(f"runs in {base}"))
    console.print(table)
    for run in runs:
        if run.damaged:
            console.print(Text(f"{run.path} is damaged: {run.damaged}", "red"))


def _short(path: Path, base: Path) -> str:
    """Return a path relative to the directory that was named."""
    return str(path) if path == base else str(path.relative_to(base))


def _when(seconds: float) -> str:
    when = time.localtime(seconds)
    same_year = when.tm_year == time.localtime().tm_year
    return time.strftime("%d %b %H:%M" if same_year else "%d %b %Y", when)
