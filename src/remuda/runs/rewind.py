"""Rewind the files of a run to a checkpoint, for a resume."""

from __future__ import annotations

import shutil
from pathlib import Path

from remuda.errors import RunDirectoryError
from remuda.population.ledger.ledger import copy_later
from remuda.runs.metrics import read_metrics
from remuda.runs.run_directory import RunDirectory, write_file, writing
from remuda.system.checkpoint.opening import ANY_SIZE, read_file


def rewind(run: RunDirectory, turns: int, records: int = 0, over: bool = False) -> list[int]:
    """Cut metrics to `turns` and the ledger to `records` for a resume; keep copies in earlier/.

    If the run is `over`, nothing is cut. Return the numbers of damaged lines of the metrics.
    """
    damaged: list[int] = []
    with writing(f"the run directory {run.path}"):
        base = run.path / "earlier"
        base.mkdir(exist_ok=True)
        taken = [int(path.name) for path in base.iterdir() if path.name.isdecimal()]
        earlier = base / str(max(taken, default=0) + 1)
        earlier.mkdir()
        shutil.copy2(run.config, earlier)
        for path in (run.weights, run.tensorboard):
            path.mkdir(exist_ok=True)  # missing in copies without empty directories
        if run.metrics.exists() and not over:
            _cut_metrics(run.metrics, turns, earlier, damaged)
        if run.ledger.exists() and not over:
            copy_later(run.ledger, records, earlier / run.ledger.name)
        if run.summary.exists():
            (shutil.copy2 if over else Path.rename)(run.summary, earlier / run.summary.name)
        (earlier / run.weights.name).mkdir()
        for path in () if over else run.weights.glob("*.safetensors"):
            path.rename(earlier / run.weights.name / path.name)
    return damaged


def _cut_metrics(metrics: Path, turns: int, earlier: Path, damaged: list[int]) -> None:
    """Remove later turns and a half-written line from the metrics, after saving a copy."""
    try:
        counts = [record.turns for record in read_metrics(metrics, damaged)]
    except ValueError as error:
        raise RunDirectoryError(
            f"{metrics} is damaged: {error}; move it away to resume without it"
        ) from None
    data = read_file(metrics, ANY_SIZE)
    if max(counts, default=0) <= turns and data.endswith(b"\n"):
        return
    shutil.copy2(metrics, earlier)
    turns_of_records = iter(counts)
    lines = [
        line
        for number, line in enumerate(data.splitlines(keepends=True), 1)
        if line.endswith(b"\n") and (number in damaged or next(turns_of_records) <= turns)
    ]
    write_file(metrics, b"".join(lines))
