"""Compute records from two readings of the scoreboard's counters."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda.coordinator.analysing import PopulationAnalysis
from remuda.envs.live_options import LiveEnvOptions
from remuda.experience.store import ExperienceStore
from remuda.population.ledger.records import (
    GAMES,
    MEETINGS,
    PLAYED,
    RATING,
    REWARD,
    UNCERTAINTY,
    WELFARE,
    WINS,
)
from remuda.population.members.table import MemberRow, Table
from remuda.population.members.table_parts import MATCHES
from remuda.runs.columns import ON_POLICY, REPLAY, Column
from remuda.runs.metrics import (
    POLICY_COLUMNS,
    SHARES,
    MemberRecord,
    PolicyRecord,
    Record,
    population_record,
)
from remuda.system.scoreboard import EpisodeTotals, Learn, Play, Policy, Row, Scoreboard, added_up
from remuda.types import Bools

Numbers = list[float | None]


def spread_of(rows: Row, mark: float, means: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return minimum, maximum and standard deviation of each policy's returns; None if unknown.

    Combines the actors' counts of interval `mark`; sums of squares as in Chan et al. 1983.

    An episode that ends during the reading, or just before the interval, may be in the mean but not
    in the extremes, or the reverse. So the extremes are extended to include the mean.
    """
    fresh = (rows[..., Policy.MARK] == mark) & (rows[..., Policy.RETURNS] > 0)
    count = np.where(fresh, rows[..., Policy.RETURNS], 0.0)
    total = count.sum(0)
    divisor = np.maximum(total, 1.0)
    above = np.where(fresh, rows[..., Policy.ABOVE_SUM], 0.0)
    above_mean = above / np.maximum(count, 1.0)
    mean = np.where(fresh, rows[..., Policy.FIRST] + above_mean, 0.0)
    joined = (count * mean).sum(0) / divisor
    squares = np.where(fresh, rows[..., Policy.ABOVE_SQUARES] - above * above_mean, 0.0)
    squares = np.maximum(squares, 0.0) + count * np.square(mean - joined)
    deviation = np.sqrt(squares.sum(0) / divisor)
    low = np.where(fresh, rows[..., Policy.LOW], np.inf).min(0)
    high = np.where(fresh, rows[..., Policy.HIGH], -np.inf).max(0)
    interval_means = np.array(means, np.float64)  # NaN: unknown
    known = (total > 0.0) & ~np.isnan(interval_means)
    low, high = np.fmin(low, interval_means), np.fmax(high, interval_means)
    return _where(low, known), _where(high, known), _where(deviation, known)


@dataclass(frozen=True)
class Reading:
    """The values of all counters at one moment."""

    time: float  # seconds on a monotonic clock
    play: Row
    actors: Row  # [actors, policies, fields by `Policy`]
    policy: Row  # sums over actors: [policies, fields by `Policy` before `MARK`]
    learn: Row  # [policies, fields by `Learn`]
    episode_totals: Row
    mark: float  # number of the interval of return extremes (`Scoreboard.mark`)
    begun: float  # the time of the reading that started this interval
    traffic: tuple[int, int] | None  # bytes and messages between nodes so far; None with one node


FEW = 100  # a record that is not `whole` omits frozen copies if there are more than this


class ScoreboardReader:
    """The reader of a run's counters, in time linear in the number of policies."""

    def __init__(
        self,
        scoreboard: Scoreboard,
        experience: Mapping[str, ExperienceStore],
        seconds: float = 0.0,
        table: Table | None = None,
        options: LiveEnvOptions | None = None,
        sampling: Collection[str] = (),  # policies that sample actions: no exploration rate
    ) -> None:
        self.scoreboard, self._table, self._options = scoreboard, table, options
        self._explores = np.array([name not in sampling for name in scoreboard.policies], np.bool_)
        self.experience = experience
        self.earlier = seconds  # of play in earlier sessions
        self.analysis: PopulationAnalysis | None = None
        self.traffic: tuple[int, int] | None = None
        self.logged: dict[str, float] = {}  # by callbacks
        self._begun = 0.0
        self.start = self.read()
        self.mark(self.start)

    def read(self) -> Reading:
        board = self.scoreboard
        rows = board.arrays["policy"].copy()
        return Reading(
            time.perf_counter(),
            board.played(),
            rows,
            added_up(rows),
            board.all_learned(),
            board.all_episode_totals(),
            float(board.mark[0]),
            self._begun,
            self.traffic,
        )

    def mark(self, reading: Reading) -> None:
        """Start an interval of return extremes at the newest reading."""
        self.scoreboard.mark_interval()
        self._begun = reading.time

    def seconds(self, reading: Reading) -> float:
        """Return the seconds of play until a reading, including earlier sessions."""
        return self.earlier + reading.time - self.start.time

    def between(self, earlier: Reading, later: Reading, whole: bool = False) -> Record:
        """Return the record between two readings; totals are from the later one."""
        seconds = max(later.time - earlier.time, 1e-9)
        play = later.play
        change = play - earlier.play
        policies, members = self._policies(earlier, later, seconds), self._members(whole)
        playing = [p for name, p in policies.items() if not members or name in members]
        matches = self._table.word(MATCHES) if self._table is not None else 0
        analysis = self.analysis
        totals = (later.episode_totals - earlier.episode_totals)[len(EpisodeTotals) :]
        metrics = _means(*np.split(totals, 2))
        return Record(
            seconds=self.seconds(later),
            turns=int(play[Play.TURNS]),
            agent_steps=int(play[Play.AGENT_STEPS]),
            turns_per_second=float(change[Play.TURNS] / seconds),
            agent_steps_per_second=float(change[Play.AGENT_STEPS] / seconds),
            waits=int(play[Play.WAITS]),
            wait_seconds=float(play[Play.WAIT_SECONDS]),
            overtaken=int(play[Play.OVERTAKEN]),
            shares=_shares(change),
            policies=policies,
            episode_metrics=dict(zip(self.scoreboard.episode_metrics, metrics, strict=True)),
            env_options=self._options.in_force(int(play[Play.TURNS])) if self._options else {},
            logged=dict(self.logged),
            members=members,
            frozen=self._table.occupants.frozen if self._table is not None else 0,
            matches=matches,
            population=population_record(
                [policy.mean_return for policy in playing],
                [policy.staleness for policy in playing],
                None if self._table is None else matches,
                None if analysis is None else analysis.numbers,
                None if analysis is None else time.monotonic() - analysis.requested_at,
            ),
            **_traffic(earlier, later, seconds),
        )

    def _members(self, whole: bool) -> dict[str, MemberRecord]:
        if self._table is None:
            return {}
        rows = self._table.rows(whole or self._table.occupants.frozen <= FEW)
        found = {str(row[0]): member_record(row, self._table) for row in rows}
        if self.analysis is not None:
            for name, (payoff, nash) in self.analysis.of_members.items():
                if name in found:
                    found[name].payoff, found[name].nash = payoff, nash
        return found

    def _policies(
        self, earlier: Reading, later: Reading, seconds: float
    ) -> dict[str, PolicyRecord]:
        """Return records by policy, computed by column for all policies at once."""
        names = self.scoreboard.policies
        rings = [self.experience[name] for name in names]
        policy, learn = later.policy, later.learn
        with np.errstate(invalid="ignore"):  # the sums of a policy that diverged are infinite
            played, learned = policy - earlier.policy, learn - earlier.learn
        # If a learner was restored in between, its two readings cannot be compared.
        known = learned[:, Learn.RESTORED] == 0.0
        learned[~known] = 0.0
        busy = learned[:, Learn.SECONDS_SAMPLE : Learn.SECONDS_PUBLISH + 1].sum(1) / seconds
        written, samples = [ring.written for ring in rings], learn[:, Learn.SAMPLES].tolist()
        begun = [
            steps - (0 if ring.rollout else ring.config.learning_starts)
            for steps, ring in zip(written, rings, strict=True)
        ]
        means = _means(played[:, Policy.RETURN_SUM], played[:, Policy.EPISODES])
        low: Numbers = [None] * len(means)
        high = deviation = low
        if later.begun == earlier.time:  # the interval is the marked one
            low, high, deviation = spread_of(later.actors, later.mark, means)
        own: dict[str, Sequence[Any]] = {
            "mean_return": means,
            "return_min": low,
            "return_max": high,
            "return_deviation": deviation,
            "total_reward": _where(
                policy[:, Policy.RETURN_SUM], np.isfinite(policy[:, Policy.RETURN_SUM])
            ),
            "episode_length": _means(played[:, Policy.TURNS_SUM], played[:, Policy.EPISODES]),
            "episodes": policy[:, Policy.EPISODES].astype(np.int64).tolist(),
            "updates_per_second": _where(
                np.maximum(learned[:, Learn.UPDATES] / seconds, 0.0), known
            ),
            "steps": written,
            "replay_fill": [ring.fill for ring in rings],
            "replay_ratio": [n / m if m > 0 else None for n, m in zip(samples, begun, strict=True)],
            "behind": [_behind(*each) for each in zip(rings, written, learn, strict=True)],
            "lost": [_lost(*each) for each in zip(rings, written, learn, strict=True)],
            "epsilon": _where(policy[:, Policy.EPSILON], self._explores),
            "busy": _where(busy, known),
            "halted": (learn[:, Learn.HALTED] != 0).tolist(),
        }
        on_policy = [bool(ring.rollout) for ring in rings]
        rows = zip(
            *(
                own[name] if name in own else _read(column, learned, learn, on_policy)
                for name, column in POLICY_COLUMNS.items()
            ),
            strict=True,
        )
        return {name: PolicyRecord(*row) for name, row in zip(names, rows, strict=True)}


def _read(column: Column, learned: Row, learn: Row, on_policy: list[bool]) -> Sequence[Any]:
    source = column.source
    assert source is not None, f"column {column.name} is not computed"
    if source.kind == "total":
        total: list[int] = learn[:, source.of].astype(np.int64).tolist()
        return total
    if source.kind == "mean":
        found = _means(learned[:, source.of], learned[:, source.over])
    else:
        found = _where(learn[:, source.of], learn[:, Learn.RESTORED] != 0.0)
    if column.kind in (ON_POLICY, REPLAY):
        wanted = column.kind == ON_POLICY
        return [x if is_on == wanted else None for x, is_on in zip(found, on_policy, strict=True)]
    return found


def _shares(change: Row) -> dict[str, float]:
    """Return shares of the actors' time by activity, which add up to 1; empty: no time counted."""
    seconds = {name: max(float(change[share.of]), 0.0) for name, share in SHARES.items()}
    total = sum(seconds.values())
    return {name: each / total for name, each in seconds.items()} if total > 0.0 else {}


def member_record(row: MemberRow, table: Table) -> MemberRecord:
    ref, parent, born, slot, numbers = row
    return MemberRecord(
        int(numbers[GAMES]),
        numbers[REWARD] / numbers[GAMES] if numbers[GAMES] else None,
        numbers[RATING],
        numbers[UNCERTAINTY],
        not ref.is_frozen,
        numbers[WINS] / numbers[MEETINGS] if numbers[MEETINGS] else None,
        numbers[REWARD] if math.isfinite(numbers[REWARD]) else None,
        numbers[WELFARE] / numbers[PLAYED]
        if numbers[PLAYED] and math.isfinite(numbers[WELFARE])
        else None,
        None if parent is None else str(parent),
        born,
        {} if ref.is_frozen else table.hyperparameters.of(slot),
    )


def _behind(experience: ExperienceStore, written: int, learn: Row) -> int | None:
    if experience.rollout:
        passed = experience.passed  # including steps taken for the current update
        training = 0 if passed is None else int(passed - learn[Learn.TRAINED] - learn[Learn.LOST])
        return experience.untaken + max(training, 0)
    ratio = experience.config.replay_ratio
    if ratio is None:
        return None
    paid = int(learn[Learn.SAMPLES] / ratio) + experience.config.learning_starts
    begins = experience.lost + experience.config.learning_starts
    return max(written - max(begins, paid), 0)


def _lost(experience: ExperienceStore, written: int, learn: Row) -> int:
    """Return the steps that no learner trained on, with all steps after a policy was halted."""
    if experience.rollout and learn[Learn.HALTED]:
        return int(written - learn[Learn.TRAINED])
    return int(learn[Learn.LOST])


def _where(values: Row, known: Bools) -> Numbers:
    return [x if k else None for x, k in zip(values.tolist(), known.tolist(), strict=True)]


def _means(totals: Row, counts: Row) -> Numbers:
    counted = counts > 0
    return _where(np.divide(totals, counts, out=np.zeros_like(totals), where=counted), counted)


def _traffic(earlier: Reading, later: Reading, seconds: float) -> dict[str, float | None]:
    if later.traffic is None:
        return {}
    before = earlier.traffic or (0, 0)  # None: read before anything was sent
    size, messages = (b - a for a, b in zip(before, later.traffic, strict=True))
    if size < 0 or messages < 0:  # a node was lost or restarted in between, with its counts
        return {}
    trained = float((later.learn - earlier.learn)[:, Learn.TRAINED].sum())
    return {
        "node_bytes_per_second": size / seconds,
        "node_messages_per_second": messages / seconds,
        "node_bytes_per_step": size / trained if trained > 0 else None,
    }
