"""Declarations of the metrics columns, from the table `columns.md`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from remuda.system.checkpoint.opening import read_file
from remuda.system.scoreboard import Learn


@dataclass(frozen=True)
class Source:
    """The computation of a column from a learner's counters.

    `mean`: the growth of `of` in an interval divided by that of `over`; None if that is 0.
    `total`: `of` since the start of the run. `newest`: the newest value of `of`; None before a
    learner has started.
    """

    kind: str
    of: Learn
    over: Learn = Learn.ACCEPTED  # the number of accepted updates


ON_POLICY = "PPO"  # algorithms trained on rollouts; other algorithms leave these columns empty
REPLAY = "DQN, IQN, SAC"  # algorithms trained on replay; other algorithms leave these columns empty


@dataclass(frozen=True)
class Column:
    """A column of the metrics."""

    name: str
    meaning: str
    unit: str
    over: str  # total, newest, interval, episodes or updates (see ui/templates/metrics.md)
    source: Source | None  # None if `scoreboard_reader.py` computes it
    kind: str  # the algorithms that report it, or "all"
    axis: str | None  # the name of the x-axis that this column is in plots, if any
    shown: bool  # true: in `Run.metrics()` and TensorBoard too; false: only in `metrics.jsonl`


def _read_table(text: str) -> dict[str, dict[str, Column]]:
    """Return the columns by the heading of their table (run, policy, ...) and their name."""
    found: dict[str, dict[str, Column]] = {}
    for line in text.splitlines():
        if line.startswith("## "):
            columns = found[line.removeprefix("## ")] = {}
        elif line.startswith("| ") and not line.startswith(("| column ", "| --- ")):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            name, unit, over, source, kind, drawn, meaning = cells
            axis = None if drawn in ("yes", "no") else drawn
            columns[name] = Column(
                name, meaning, unit, over, _source(source), kind, axis, drawn != "no"
            )
    return found


def _source(text: str) -> Source | None:
    """Return the source in a cell such as `mean SAMPLES / UPDATES`; None for an empty cell."""
    if not text:
        return None
    kind, counts = text.split(" ", 1)
    return Source(kind, *(Learn[name] for name in counts.split(" / ")))


COLUMNS = _read_table(read_file(Path(__file__).with_name("columns.md")).decode())
