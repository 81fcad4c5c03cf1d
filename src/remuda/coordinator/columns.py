"""What a column of the metrics is declared as; the table of them all is `records.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from remuda.scoreboard import Learn


@dataclass(frozen=True)
class Mean:
    """Of a learner's counts: the mean over the interval; None where nothing was counted."""

    of: Learn
    over: Learn = Learn.ACCEPTED
    """What is counted beside it: updates, unless it says something else."""


@dataclass(frozen=True)
class Total:
    """Of a learner's counts: a whole number, since the start of the run."""

    of: Learn


@dataclass(frozen=True)
class Newest:
    """Of a learner's counts: as it stands now; None: no learner has begun."""

    of: Learn


Source = Mean | Total | Newest

TOTAL = "total"
"""Counts from the start of the run; everything else is of the interval since the record before."""
NEWEST = "newest"
INTERVAL = "interval"
EPISODES = "episodes"
"""Of the episodes that ended in the interval."""
UPDATES = "updates"
"""The mean over the updates of the interval."""

EVERY = "all"
"""Algorithms of every kind tell of it."""
ON_POLICY = "PPO"
"""Those that are trained on rollouts; None with the others."""
REPLAY = "DQN, IQN"
"""Those that are trained on drawn transitions; None with the others."""


@dataclass(frozen=True)
class Column:
    """A number of the metrics."""

    name: str
    meaning: str
    """One or more sentences, with when it is None."""
    unit: str
    over: str
    """What it is of: `TOTAL`, `NEWEST`, `INTERVAL`, `EPISODES` or `UPDATES`."""
    source: Source | None
    """Where it is read; None: `coordinator/scoreboard_reader.py` works it out."""
    kind: str
    """Which algorithms tell of it."""
    axis: str | None
    """Its name where it is what others are drawn over."""
    shown: bool
    """Whether it is a column and a tag; else it stands in the lines of `metrics.jsonl` only."""


def column(
    meaning: str,
    unit: str,
    over: str | None = None,
    source: Source | None = None,
    *,
    kind: str = EVERY,
    axis: str | None = None,
    shown: bool = True,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
) -> Any:
    """Declare a field of a record as a `Column`; what is read from a learner's mean may be None."""
    if over is None:
        words = {Mean: UPDATES, Total: TOTAL, Newest: NEWEST}
        if source is None:
            raise ValueError(f"say what this column is of: {meaning}")
        over = words[type(source)]
    found = Column("", meaning, unit, over, source, kind, axis, shown)
    if factory is not None:
        return field(default_factory=factory, metadata={"column": found})
    return field(default=default, metadata={"column": found})


def part() -> Any:
    """Declare a field that holds other records or numbers by name, and has no default."""
    return field()


def columns_of(record: type) -> dict[str, Column]:
    """The columns of a kind of records, by name, in order; containers of them are none."""
    found = {}
    for each in fields(record):
        declared = each.metadata.get("column")
        if declared is not None:
            found[each.name] = Column(**{**vars(declared), "name": each.name})
    return found
