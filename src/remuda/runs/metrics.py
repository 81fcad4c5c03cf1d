"""Metrics: a record for each interval of a run, stored as JSON lines.

The JSON lines are authoritative; TensorBoard, the live view and the report use the same records.
Each field of `Record`, `PolicyRecord` and `MemberRecord`, and each key of `population_record`, has
a line in the table `columns.md`, or contains other records. `scoreboard_reader.py` computes the
records. To add a metric of the learner, add an entry to `scoreboard.Learn`, a field here, and a
line to `columns.md`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Protocol

import numpy as np

from remuda.runs.columns import COLUMNS
from remuda.system.checkpoint.opening import checked, checked_all, kinds_of, open_stream
from remuda.system.scoreboard import Play

UNSET: Any = None  # the default of a required field; JSON lines without the field are refused


@dataclass
class PolicyRecord:
    """One policy in one interval; do not change it after creation.

    The dataclass is not frozen: hundreds may be created four times a second, and frozen dataclasses
    are slower to create. If the learner was restarted in the interval, its numbers of the interval
    are None.
    """

    mean_return: float | None = None
    episodes: int = UNSET
    loss: float | None = None
    updates: int = UNSET
    updates_per_second: float | None = None
    version: int = UNSET
    staleness: float | None = None
    steps: int = UNSET
    replay_fill: float = UNSET
    replay_ratio: float | None = None
    redrawn: int = UNSET
    epsilon: float | None = UNSET
    busy: float | None = None
    nonfinite: int = UNSET
    halted: bool = UNSET
    behind: int | None = None
    trained: int = 0
    lost: int = 0
    staleness_max: int = 0
    entropy: float | None = None
    kl: float | None = None
    batch: float | None = None
    effective: float | None = None
    staleness_low: float | None = None
    staleness_high: float | None = None
    clipped: float | None = None
    policy_loss: float | None = None
    value_loss: float | None = None
    others: float | None = None
    others_weight: float | None = None
    return_min: float | None = None
    return_max: float | None = None
    return_deviation: float | None = None
    episode_length: float | None = None
    gradient_norm: float | None = None
    learning_rate: float | None = None
    explained_variance: float | None = None
    entropy_cost: float | None = None
    total_reward: float | None = None
    mean_q: float | None = None
    temperature: float | None = None


@dataclass
class MemberRecord:
    """One member of a population; do not change it after creation."""

    games: int = UNSET
    mean_return: float | None = None
    rating: float = UNSET
    uncertainty: float = UNSET
    learns: bool = UNSET
    win_rate: float | None = None
    total_reward: float | None = None
    welfare: float | None = None
    parent: str | None = None
    born: int = 0
    hyperparameters: dict[str, float] = field(default_factory=dict)
    payoff: float | None = None
    nash: float | None = None


@dataclass(frozen=True)
class AnalysisNumbers:
    """The numbers of an analysis of the payoffs; None if too few members have met."""

    analysed: int | None = None
    unmet: float | None = None
    diversity: float | None = None
    nash_support: int | None = None
    nash_entropy: float | None = None
    nash_live: float | None = None
    transitive_share: float | None = None
    exploitability: float | None = None


def population_record(
    returns: Collection[float | None],
    staleness: Iterable[float | None],
    matches: int | None,
    analysis: AnalysisNumbers | None,
    age: float | None,
) -> dict[str, float | None]:
    """Return the columns of a population; empty for a single policy without a matchmaker."""
    if len(returns) < 2 and matches is None:
        return {}
    known = np.array([each for each in returns if each is not None], np.float64)
    stale = [each for each in staleness if each is not None]
    return vars(analysis or AnalysisNumbers()) | {
        "fitness_mean": float(known.mean()) if len(known) else None,
        "fitness_best": float(known.max()) if len(known) else None,
        "fitness_spread": float(known.std()) if len(known) else None,
        "staleness": sum(stale) / len(stale) if stale else None,
        "matches": matches,
        "analysis_age": age if analysis is not None else None,
    }


@dataclass(frozen=True)
class Record:
    """The whole run in one interval."""

    seconds: float = UNSET
    turns: int = UNSET
    agent_steps: int = UNSET
    turns_per_second: float = UNSET
    agent_steps_per_second: float = UNSET
    waits: int = UNSET
    wait_seconds: float = UNSET
    overtaken: int = UNSET
    shares: dict[str, float] = field(default_factory=dict)  # of the actors' time, by `SHARES`
    policies: dict[str, PolicyRecord] = field(default_factory=dict)
    episode_metrics: dict[str, float | None] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)  # those that the run has changed
    logged: dict[str, float] = field(default_factory=dict)  # by callbacks
    members: dict[str, MemberRecord] = field(default_factory=dict)
    """Keys are `policy`, or `policy@version` for a frozen copy. If there are many frozen copies,
    only some records contain them: see `with_all_members`."""
    frozen: int | None = None
    matches: int = 0
    node_bytes_per_second: float | None = None
    node_messages_per_second: float | None = None
    node_bytes_per_step: float | None = None
    population: dict[str, float | None] = field(default_factory=dict)  # see `population_record`

    @property
    def playing(self) -> dict[str, PolicyRecord]:
        """The policies that play: those whose slot in the population is not empty."""
        if not self.members:
            return self.policies
        return {name: policy for name, policy in self.policies.items() if name in self.members}

    @property
    def num_live(self) -> int:
        return sum(member.learns for member in self.members.values())

    @property
    def num_frozen(self) -> int:
        return len(self.members) - self.num_live if self.frozen is None else self.frozen

    @property
    def is_whole(self) -> bool:
        """Return whether `members` contains all frozen copies."""
        return len(self.members) - self.num_live >= self.num_frozen

    @staticmethod
    def from_json(line: str | bytes) -> Record:
        try:
            data = checked(json.loads(line), {"policies": dict})
            policies = _records(PolicyRecord, data.pop("policies"))
            members = _records(MemberRecord, data.pop("members", {}))
            record = Record(policies=policies, members=members, **data)
            checked(vars(record), kinds_of(Record))
            for numbers in (record.episode_metrics, record.population, record.logged):
                checked(numbers, dict.fromkeys(numbers, (int, float, NoneType)))
            if record.seconds - record.seconds != 0.0:  # infinite, or not a number
                raise ValueError("seconds are not finite")
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a line of metrics: {error}") from None
        return record


def _records(kind: type, data: object) -> dict[str, Any]:
    records = {name: kind(**values) for name, values in checked_all(data, {}).items()}
    checked_all({name: vars(record) for name, record in records.items()}, kinds_of(kind))
    return records


@dataclass(frozen=True)
class Share:
    """An activity of the actors, whose share of their time is reported."""

    of: Play
    meaning: str


SHARES: Mapping[str, Share] = {
    "env": Share(Play.SECONDS_ENV, "Stepping the environments."),
    "infer": Share(Play.SECONDS_INFER, "Choosing actions."),
    "write": Share(Play.SECONDS_WRITE, "Writing experience and updating counters."),
    "weights": Share(Play.SECONDS_WEIGHTS, "Checking for newer weights and loading them."),
    "wait": Share(Play.WAIT_SECONDS, "Waiting for learners."),
}

POLICY_COLUMNS = COLUMNS["policy"]
MEMBER_COLUMNS = COLUMNS["member"]
RUN_COLUMNS = COLUMNS["run"]
AXES = {name: each.axis for name, each in RUN_COLUMNS.items() if each.axis is not None}
"""Fields of `Record` that are x-axes of plots, and the names of the axes."""
GROUPS = ("run", "actor", "game", "env_options", "population", "logged")
*_, LOGGED = GROUPS
"""The group of the metrics that callbacks log."""
SHOWN_OF_RUN = [name for name, each in RUN_COLUMNS.items() if each.shown and not each.axis]
SHOWN_OF_MEMBER = [name for name, each in MEMBER_COLUMNS.items() if each.shown]


def read_metrics(path: Path, damaged: list[int] | None = None) -> Iterator[Record]:
    """Read the records of a file; skip damaged lines and a half-written last line."""
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
        raise ValueError(f"it has no valid record; line {faults[0][0]}: {faults[0][1]}")
    if damaged is not None:
        damaged += [number for number, _ in faults]


def with_all_members(records: Sequence[Record]) -> Record | None:
    """Return the newest record with all frozen copies; None if there is none."""
    return next((record for record in reversed(records) if record.is_whole), None)


def groups(record: Record) -> Iterator[tuple[str, Mapping[str, float | None]]]:
    """Iterate over a record's numbers by TensorBoard group and name; None without a value."""
    yield "run", {name: getattr(record, name) for name in SHOWN_OF_RUN}
    yield "actor", record.shares
    yield "game", record.episode_metrics
    options = {name: x for name, x in record.env_options.items() if type(x) in (int, float)}
    if options:
        yield "env_options", options
    if record.logged:
        yield LOGGED, record.logged
    if record.population:
        yield "population", record.population
    for name, member in record.members.items():
        if member.learns:
            yield name, {column: getattr(member, column) for column in SHOWN_OF_MEMBER}
    for policy, values in record.policies.items():
        yield policy, vars(values)


def is_column(name: str, policies: Collection[str]) -> bool:
    """Return whether a column of the metrics, or all those of a group, have this name."""
    group, _, column = name.rpartition("/")
    of_policy = group in policies and column in (*POLICY_COLUMNS, *MEMBER_COLUMNS)
    return of_policy or name in AXES.values() or name.partition("/")[0] in GROUPS


def row_of(record: Record) -> dict[str, float]:
    """Return a record as one row: axes and columns `group/name`; NaN without a value."""
    found: dict[str, float | None] = {axis: getattr(record, name) for name, axis in AXES.items()}
    for group, values in groups(record):
        found |= {f"{group}/{name}": value for name, value in values.items()}
    return {name: math.nan if x is None else float(x) for name, x in found.items()}


@dataclass(frozen=True)
class Goal:
    """The target of a run, from which a view displays the progress."""

    game: str
    schedule: str
    directory: Path
    turns: int | None
    seconds: float | None
    layout: str  # one line: the processes, their policies and devices

    def share_done(self, record: Record) -> float:
        """Return the finished share of the run, 0 to 1: the larger of turns and seconds."""
        shares = [0.0]
        if self.turns:
            shares.append(record.turns / self.turns)
        if self.seconds:
            shares.append(record.seconds / self.seconds)
        return min(max(shares), 1.0)


class View(Protocol):
    """A display of a run."""

    def start(self, goal: Goal) -> None:
        """Prepare for a run that is about to start."""

    def show(self, record: Record) -> None:
        """Display a new record; called up to a few times a second."""

    def log(self, record: Record) -> None:
        """Display a record that is also written to the metrics, every `run.log_every` seconds."""

    def say(self, message: str) -> None:
        """Display a message for the user."""

    def close(self) -> None:
        """Close the view; the run has ended."""
