"""The same command again: a run that was not finished is offered to be gone on with."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from remuda.config import Config
from remuda.config.resolved import resolved
from remuda.coordinator.continuing import can_continue, continues
from remuda.coordinator.metrics import read_metrics
from remuda.coordinator.run_directory import RunDirectory
from remuda.errors import RemudaError
from remuda.ui.commands.configuration import AUTO


def offer_to_resume(config: Config, base: Path = Path("runs")) -> Path | None:
    """The newest unfinished run of this very configuration, if the user wants to go on with it.

    Where the user cannot be asked, it is only told, and None is returned.
    """
    path = find_unfinished(config, base)
    if path is None:
        return None
    told = f"{path} was started by the same command and not finished ({_progress(path)})"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(
            f"{told}; to go on with it: remuda train --resume {path}, or the same command with "
            f"--resume {AUTO}"
        )
        return None
    try:
        answer = input(f"{told}. Go on with it? [Y/n] ")
    except (EOFError, OSError):  # Ctrl-D, or the terminal is gone: there will be no answer
        print()
        return None
    return path if answer.strip().lower() in ("", "y", "yes") else None


def resume_at_once(config: Config, base: Path = Path("runs")) -> Path | None:
    """The run that `--resume auto` continues; None: a new one begins.

    That of the directory which the command names, else the newest unfinished one of this very
    configuration.

    Raises:
        RunDirectoryError: another process is running the one that is named.
    """
    named = config.run.directory
    if named is not None:
        return named if continues(RunDirectory(named), print) else None
    path = find_unfinished(config, base)
    if path is not None:
        print(f"{path} was started by the same command and not finished ({_progress(path)})")
    return path


def find_unfinished(config: Config, base: Path) -> Path | None:
    """The newest run under `base` of this configuration that has a checkpoint and can go on."""
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
    """All settings of a run but where it is kept."""
    tree = resolved(config)
    tree["run"]["directory"] = None
    return tree
