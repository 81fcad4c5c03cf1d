"""Declarations of metrics columns; `records.py` lists them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from remuda.scoreboard import Learn


@dataclass(frozen=True)
class Mean:
    """The mean of a learner's counts over the interval; None without counts."""

    of: Learn
    over: Learn = Learn.ACCEPTED  # the count to divide by; by default updates


@dataclass(frozen=True)
class Total:
    """The total of a learner's count since the start of the run."""

    of: Learn


@dataclass(frozen=True)
class Newest:
    """The newest value of a learner's count; None before a learner has begun."""

    of: Learn


Source = Mean | Total | Newest

TOTAL = "total"
"""Counts from the start of the run; all else is of the interval since the previous record."""
NEWEST = "newest"
INTERVAL = "interval"
EPISODES = "episodes"  # episodes that ended in the interval
UPDATES = "updates"  # the mean over the updates of the interval

EVERY = "all"  # reported by algorithms of every kind
ON_POLICY = "PPO"  # algorithms trained on rollouts; None for the others
REPLAY = "DQN, IQN"  # algorithms trained on drawn transitions; None for the others


@dataclass(frozen=True)
class Column:
    """A column of the metrics."""

    name: str
    meaning: str
    unit: str
    over: str  # its extent: `TOTAL`, `NEWEST`, `INTERVAL`, `EPISODES` or `UPDATES`
    source: Source | None  # its source; None: `coordinator/scoreboard_reader.py` computes it
    kind: str  # the algorithms that report it
    axis: str | None  # its name if other columns are drawn over it
    shown: bool  # true if it is a column and a tag; else it is only in `metrics.jsonl`


def column(
    meaning: str,
    unit: str,
    over: str | None = None,
    source: Source | None = None,
    *,
    kind: str = EVERY,
    axis: str | None = None,
    shown: bool = True,
    default: Any = None,
    factory: Callable[[], Any] | None = None,
) -> Any:
    """Declare a field of a record as a `Column`; means of learners may be None."""
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
    """Declare a field that holds other records or named numbers."""
    return field(default_factory=dict)


def columns_of(record: type) -> dict[str, Column]:
    """Return the named columns of a kind of records, in order."""
    found = {}
    for each in fields(record):
        declared = each.metadata.get("column")
        if declared is not None:
            found[each.name] = Column(**{**vars(declared), "name": each.name})
    return found
