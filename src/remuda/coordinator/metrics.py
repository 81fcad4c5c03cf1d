"""Metrics: what a run did in each interval, as records that go to a file of JSON lines.

The JSON lines are the truth; TensorBoard, the live view and the report are made from the same
records. Numbers marked *total* count from the start of the run, all others are of the interval
since the record before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Protocol, TypeVar

from remuda.checkpoint.plain import Kinds, checked, checked_all, kinds_of

R = TypeVar("R")


@dataclass
class PolicyRecord:
    """One policy in one interval; nobody changes it.

    It is not declared frozen: hundreds are made four times a second, and frozen ones take longer
    to make.
    """

    mean_return: float | None
    """Mean over the episodes that ended of one agent's undiscounted return; None: none ended."""
    episodes: int
    """Total."""
    loss: float | None
    """Mean over the updates of the mean loss of a batch; None: no update."""
    updates: int
    """Total."""
    updates_per_second: float | None
    """None, as all else that is of the interval of its learner: that was restarted in it, and went
    back to a saved state, so that there is nothing to compare."""
    version: int
    """The newest published version."""
    staleness: float | None
    """Mean over updates of the version trained minus the versions that acted in the batch."""
    steps: int
    """Total of steps committed to the policy's replay."""
    replay_fill: float
    """Share of the replay's capacity in use, 0 to 1."""
    replay_ratio: float | None
    """Training samples per collected step, from the first update on; None: no update yet."""
    redrawn: int
    """Total of samples that were overwritten while they were copied, and drawn again."""
    epsilon: float
    """The exploration rate the actor uses."""
    busy: float | None
    """Share of the interval that the learner spent on this policy, 0 to 1. None: as above."""
    nonfinite: int
    """Total of updates whose loss or weights were not finite, and that were undone."""
    halted: bool
    """Whether there were too many of these in a row, so that the policy learns no more."""
    behind: int | None = None
    """Steps that were collected and that its learner has not trained on: those that wait, and those
    that it has taken for an update that goes on; off-policy, those beyond what its updates have
    paid for by the replay ratio. None: it trains without a ratio."""
    trained: int = 0
    """On-policy: total of steps that were trained on, each counted once."""
    lost: int = 0
    """On-policy: total of steps that nobody trained on: overwritten, too old, not brought along by
    a resumed run, or trained on by an update that was undone. All steps are trained, behind, lost,
    or in segments that are being written."""
    staleness_max: int = 0
    """The greatest staleness so far of any step that was trained on."""
    entropy: float | None = None
    """On-policy: the policy's mean entropy, in nats."""
    kl: float | None = None
    """On-policy: how far an update moved the policy, in nats."""
    batch: float | None = None
    """Mean over the updates of the samples in one; a time budget makes it less."""
    effective: float | None = None
    """On-policy: effective sample size as a share of the steps, 0 to 1; less as they get older."""
    staleness_low: float | None = None
    """Mean over the updates of the least staleness in a batch..."""
    staleness_high: float | None = None
    """...and of the greatest."""
    clipped: float | None = None
    """On-policy: the share of steps whose probability ratio was clipped, 0 to 1."""
    policy_loss: float | None = None
    """On-policy: what of the loss is the policy's own, the negative clipped objective."""
    value_loss: float | None = None
    """On-policy: half the squared error of the values, before `ppo.value_cost` weighs it."""
    others: float | None = None
    """Mean over the updates of the share of their steps that others of the group chose, 0 to 1."""
    others_weight: float | None = None
    """On-policy: mean weight of these steps in an update, where a fresh step of its own weighs 1:
    how likely the policy is to choose as they did, within the limit of `ppo.correction`. None:
    there were none."""


@dataclass
class MemberRecord:
    """One member of a population, since it came; nobody changes it."""

    games: int
    """Seats that it has taken in matches that are over."""
    mean_return: float | None
    """Mean over these of the undiscounted return; None: it has not played."""
    rating: float
    """What is believed of its skill, on openskill's scale, which begins at 25."""
    uncertainty: float
    """The standard deviation of that."""
    learns: bool
    """Whether its weights still change."""
    win_rate: float | None = None
    """The share of meetings with others that it won, draws halved; None: it has met nobody."""
    parent: str | None = None
    """Whose weights it began with."""
    born: int = 0
    """Matches that were over then."""
    hyperparameters: dict[str, float] = field(default_factory=dict)
    """Of one that learns, those that it may hand on to its children."""


@dataclass(frozen=True)
class Record:
    """The whole run in one interval."""

    seconds: float
    """Total, since play began."""
    turns: int
    """Total, over all copies."""
    agent_steps: int
    """Total."""
    turns_per_second: float
    agent_steps_per_second: float
    waits: int
    """Total of times an actor waited for a learner."""
    wait_seconds: float
    """Total, over all actors."""
    overtaken: int
    """Total of snapshot copies that were overtaken and thrown away."""
    shares: dict[str, float]
    """Where the actors' time went: env, infer, write, weights, wait; shares of the interval."""
    policies: dict[str, PolicyRecord]
    """By policy."""
    facts: dict[str, float | None] = field(default_factory=dict)
    """By name, what the game tells of episodes: the mean over those that ended; None: none."""
    members: dict[str, MemberRecord] = field(default_factory=dict)
    """Of a population whose seats are dealt: `policy`, or `policy@version` for a frozen copy. Where
    there are many frozen copies, they stand in some records only: see `with_all_members`."""
    frozen: int | None = None
    """How many frozen copies there are; None: as many as are among the members."""
    matches: int = 0
    """Total of matches that are over, where seats are dealt."""

    @property
    def playing(self) -> dict[str, PolicyRecord]:
        """The policies that play: not those whose place in the population is empty."""
        if not self.members:
            return self.policies
        return {name: policy for name, policy in self.policies.items() if name in self.members}

    @property
    def num_live(self) -> int:
        """How many members learn."""
        return sum(member.learns for member in self.members.values())

    @property
    def num_frozen(self) -> int:
        """How many frozen copies there are."""
        return len(self.members) - self.num_live if self.frozen is None else self.frozen

    @property
    def is_whole(self) -> bool:
        """Whether all frozen copies that there are stand among the members."""
        return len(self.members) - self.num_live >= self.num_frozen

    def plain(self) -> dict[str, Any]:
        """The record as plain data, for JSON; what is nested in it is its own."""
        policies = {name: vars(policy) for name, policy in self.policies.items()}
        members = {name: vars(member) for name, member in self.members.items()}
        return {**vars(self), "policies": policies, "members": members}

    def to_json(self) -> str:
        """One line."""
        return json.dumps(self.plain())

    @staticmethod
    def from_json(line: str | bytes) -> Record:
        """The record of one line.

        Raises:
            ValueError: the line is no record.
        """
        try:
            data = checked(json.loads(line), {"policies": dict})
            policies = _records(PolicyRecord, kinds_of(PolicyRecord), data.pop("policies"))
            members = _records(MemberRecord, kinds_of(MemberRecord), data.pop("members", {}))
            record = Record(policies=policies, members=members, **data)
            checked(vars(record), kinds_of(Record))
            checked(record.facts, dict.fromkeys(record.facts, (int, float, NoneType)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a line of metrics: {error}") from None
        return record


def _records(make: Callable[..., R], kinds: Kinds, data: object) -> dict[str, R]:
    """Records by name; a `TypeError` or `ValueError` where they are none."""
    made = {name: make(**values) for name, values in checked_all(data, {}).items()}
    checked_all({name: vars(record) for name, record in made.items()}, kinds)
    return made


def read_metrics(path: Path, damaged: list[int] | None = None) -> Iterator[Record]:
    """The records of a file; damaged lines are passed over, and a half-written last one.

    Args:
        path: the file.
        damaged: the numbers of the damaged lines, from 1, are added to it.

    Raises:
        ValueError: no line of it is a record.
    """
    found, faults = 0, []
    with path.open("rb") as lines:
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
    """The newest record that holds all frozen copies there were; None: there is none."""
    return next((record for record in reversed(records) if record.is_whole), None)


def scalars(record: Record) -> Iterator[tuple[str, float]]:
    """A record as named numbers: `run/...`, `game/...`, `agent_0/...`."""
    for group, numbers in groups(record):
        for name, value in numbers.items():
            if value is not None:
                yield f"{group}/{name}", float(value)


def groups(record: Record) -> Iterator[tuple[str, Mapping[str, float | None]]]:
    """A record's numbers as TensorBoard shows them, by group and name; None: there is none."""
    totals = ("turns_per_second", "agent_steps_per_second", "wait_seconds", "overtaken")
    yield "run", {name: getattr(record, name) for name in totals}
    yield "actor", record.shares
    yield "game", record.facts
    for name, member in record.members.items():
        if member.learns:
            yield name, {"rating": member.rating, "games": member.games}
    for policy, values in record.policies.items():
        yield policy, vars(values)


@dataclass(frozen=True)
class Goal:
    """What a run works towards, for a view to show what is left."""

    game: str
    schedule: str
    directory: Path
    turns: int | None
    seconds: float | None
    layout: str
    """One line: which roles live in which processes, on which devices."""

    def share_done(self, record: Record) -> float:
        """How much of the run is behind, 0 to 1, by whichever end is nearer."""
        shares = [0.0]
        if self.turns:
            shares.append(record.turns / self.turns)
        if self.seconds:
            shares.append(record.seconds / self.seconds)
        return min(max(shares), 1.0)


class View(Protocol):
    """Where a run is watched."""

    def start(self, goal: Goal) -> None:
        """The run is about to begin."""

    def show(self, record: Record) -> None:
        """A new record; called often, up to a few times a second."""

    def log(self, record: Record) -> None:
        """A record that was also written to the metrics; called every `run.log_every` seconds."""

    def say(self, message: str) -> None:
        """Something happened that the user should know."""

    def close(self) -> None:
        """The run is over."""
