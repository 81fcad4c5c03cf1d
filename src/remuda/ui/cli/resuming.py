"""Offers to resume an unfinished run when the same command is entered again."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from remuda.config import Config
from remuda.errors import RemudaError
from remuda.runs.metrics import read_metrics
from remuda.runs.run_directory import RunDirectory, can_continue, continues


def offer_to_resume(config: Config, base: Path = Path("runs")) -> Path | None:
    """Return the newest unfinished run of this configuration if the user agrees to resume it."""
    path = find_unfinished(config, base)
    if path is None:
        return None
    found = f"{path} was started by the same command and has not finished ({_progress(path)})"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(
            f"{found}; to resume it: remuda train --resume {path}, or the same command with "
            "--resume auto"
        )
        return None
    try:
        answer = input(f"{found}. Resume it? [Y/n] ")
    except (EOFError, OSError):  # Ctrl-D, or the terminal is closed
        print()
        return None
    return path if answer.strip().lower() in ("", "y", "yes") else None


def resume_at_once(config: Config, base: Path = Path("runs")) -> Path | None:
    """Return the run that `--resume auto` continues; None: start a new run."""
    named = config.run.directory
    if named is not None:
        return named if continues(RunDirectory(named), print) else None
    path = find_unfinished(config, base)
    if path is not None:
        print(f"{path} was started by the same command and has not finished ({_progress(path)})")
    return path


def find_unfinished(config: Config, base: Path) -> Path | None:
    """Return the newest unfinished run under `base` with this configuration and a checkpoint."""
    for path in sorted(base.glob("*/config.yaml"), reverse=True):
        run = RunDirectory(path.parent)
        try:
            same = without_directory(run.read_config()) == without_directory(config)
        except RemudaError:
            continue
        if same and can_continue(run) and not run.is_finished() and not run.is_running():
            return run.path
    return None


def _progress(path: Path) -> str:
    run = RunDirectory(path)
    number = run.checkpoints.numbers()[-1]
    try:
        turns = run.checkpoints.manifest(number).turns
    except RemudaError:
        turns = 0
        with suppress(OSError, ValueError):
            turns = max(record.turns for record in read_metrics(run.metrics))
    return f"{turns:,} turns"


def without_directory(config: Config) -> dict[str, Any]:
    """Return all settings of a run except its directory."""
    tree = config.resolved()
    tree["run"]["directory"] = None
    return tree
