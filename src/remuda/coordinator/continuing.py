"""True if and how a run can be continued: the one source of that advice."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from remuda.errors import CheckpointError, RemudaError, RunDirectoryError
from remuda.pickled import is_pickled, names_in

if TYPE_CHECKING:
    from remuda.coordinator.run_directory import RunDirectory


def can_continue(run: RunDirectory) -> bool:
    """Return whether a run has a checkpoint to continue from, by its manifest.

    The resume itself verifies all files too, and falls back to an older checkpoint.
    """
    for number in reversed(run.checkpoints.numbers()):
        try:
            run.checkpoints.manifest(number)
        except CheckpointError:
            continue
        return True
    return False


def continues(run: RunDirectory, say: Callable[[str], None]) -> bool:
    """Return whether a directory holds a run to continue; move one without a checkpoint away."""
    if not run.config.exists():
        return False
    run.refuse_if_running()
    if can_continue(run):
        return True
    aside, number = run.path.with_name(f"{run.path.name}-given-up"), 1
    while aside.exists():
        number += 1
        aside = run.path.with_name(f"{run.path.name}-given-up-{number}")
    try:
        run.path.rename(aside)
    except OSError as error:
        raise RunDirectoryError(f"cannot move {run.path}: {error.strerror}") from None
    say(f"{run.path} has no checkpoint to continue from: it starts again, and {aside} keeps it")
    return False


def begin_anew(run: RunDirectory) -> str:
    """Return how to begin a new run with a run's configuration, as a clause."""
    config = shlex.quote(str(run.config))
    return f"begin a new run: remuda train --config {config} --run.directory NEW"


def way_on(run: RunDirectory) -> str:
    """Return what to do next with an unfinished run, as a clause."""
    path = shlex.quote(str(run.path))
    if not can_continue(run):
        return f"it has no checkpoint to continue from: {begin_anew(run)}"
    try:
        tree = run.read_config().model_dump(mode="json")
    except RemudaError:
        tree = {}
    if is_pickled(str(tree.get("game", ""))):  # its code must be passed again
        return f'continue with: remuda.train(THE GAME, resume="{run.path}")'
    if any(names_in(tree)):
        return f'pass its code again: remuda.train(..., resume="{run.path}")'
    return f"continue with: remuda train --resume {path}"
