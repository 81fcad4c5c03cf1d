"""Metrics: records of each interval of a run, stored as JSON lines.

The JSON lines are authoritative; TensorBoard, the live view and the report use the same records.
`records.py` declares their columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from remuda.checkpoint.opening import open_stream
from remuda.coordinator.member_record import MemberRecord
from remuda.coordinator.records import AXES, SHOWN_OF_MEMBER, SHOWN_OF_RUN, PolicyRecord, Record

__all__ = [
    "Goal",
    "MemberRecord",
    "PolicyRecord",
    "Record",
    "View",
    "groups",
    "read_metrics",
    "row_of",
    "scalars",
    "with_all_members",
]


def read_metrics(path: Path, damaged: list[int] | None = None) -> Iterator[Record]:
    """Read the records of a file; skip damaged lines and a half-written last one."""
    found, faults = 0, []
    with open_stream(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                break
            try:
                record = Record.from_json(line)
            except ValueError as error:
                faults.append((number, error))
                continue
            found += 1
            yield record
    if faults and not found:
        raise ValueError(f"no line of it is a record; line {faults[0][0]}: {faults[0][1]}")
    if damaged is not None:
        damaged += [number for number, _ in faults]


def with_all_members(records: Sequence[Record]) -> Record | None:
    """Return the newest record that holds all frozen copies; None if there is none."""
    return next((record for record in reversed(records) if record.is_whole), None)


def scalars(record: Record) -> Iterator[tuple[str, float]]:
    """Iterate over a record's numbers by tag: `run/...`, `game/...`, `agent_0/...`."""
    for group, numbers in groups(record):
        for name, value in numbers.items():
            if value is not None:
                yield f"{group}/{name}", float(value)


def groups(record: Record) -> Iterator[tuple[str, Mapping[str, float | None]]]:
    """Iterate over a record's numbers by group and name, as in TensorBoard; None: no value."""
    yield "run", {name: getattr(record, name) for name in SHOWN_OF_RUN}
    yield "actor", record.shares
    yield "game", record.episode_metrics
    if record.population:
        yield "population", record.population
    for name, member in record.members.items():
        if member.learns:
            yield name, {column: getattr(member, column) for column in SHOWN_OF_MEMBER}
    for policy, values in record.policies.items():
        yield policy, vars(values)


def row_of(record: Record) -> dict[str, float]:
    """Return a record as one row of columns: axes by their names, others as `group/name`.

    NaN: no value.
    """
    found: dict[str, float | None] = {axis: getattr(record, name) for name, axis in AXES.items()}
    for group, values in groups(record):
        found |= {f"{group}/{name}": value for name, value in values.items()}
    return {name: math.nan if x is None else float(x) for name, x in found.items()}


@dataclass(frozen=True)
class Goal:
    """The target of a run, for a view to show what is left."""

    game: str
    schedule: str
    directory: Path
    turns: int | None
    seconds: float | None
    layout: str  # one line: the processes, their policies and devices

    def share_done(self, record: Record) -> float:
        """Return the share of the run that is done, 0 to 1, by the nearer limit."""
        shares = [0.0]
        if self.turns:
            shares.append(record.turns / self.turns)
        if self.seconds:
            shares.append(record.seconds / self.seconds)
        return min(max(shares), 1.0)


class View(Protocol):
    """Displays a run."""

    def start(self, goal: Goal) -> None:
        """The run is about to begin."""

    def show(self, record: Record) -> None:
        """A new record, up to a few times a second."""

    def log(self, record: Record) -> None:
        """A record that was also written to the metrics, every `run.log_every` seconds."""

    def say(self, message: str) -> None:
        """A message for the user."""

    def close(self) -> None:
        """The run is over."""
