"""The results of a run, read from its directory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.config import read_config
from remuda.coordinator.metrics import MemberRecord, Record
from remuda.coordinator.run_directory import RunDirectory
from remuda.evaluation import WAYS, way_of
from remuda.ui.numbers import NOTHING, with_error

END = 0.1
"""The training return is averaged over this last share of the turns."""


@dataclass(frozen=True)
class PolicySummary:
    """The results of one policy. None: not measured."""

    name: str
    evaluated_return: float | None = None
    """Mean over the episodes of the evaluation."""
    standard_error: float | None = None
    training_return: float | None = None
    """Mean over the episodes of the last tenth of training, with exploration."""
    episodes: int = 0
    updates: int = 0
    version: int = 0
    staleness: float | None = None
    """Mean over all updates."""
    replay_ratio: float | None = None
    member: MemberRecord | None = None
    """Its record in a population whose seats are dealt."""
    scripted: str = ""
    """The scripted policy of its seat (`env.scripted`); empty: none."""

    @property
    def title(self) -> str:
        """Its name, and the scripted policy of its seat."""
        return f"{self.name} ({self.scripted})" if self.scripted else self.name

    @property
    def rating(self) -> str:
        """Its rating and uncertainty in words."""
        found = self.member
        return NOTHING if found is None else f"{found.rating:.1f} ± {found.uncertainty:.1f}"

    @property
    def evaluated(self) -> str:
        """The return of the evaluation in words."""
        return with_error(self.evaluated_return, self.standard_error)


@dataclass(frozen=True)
class EpisodeMetric:
    """One of the environment's episode metrics. None: not measured."""

    name: str
    evaluated: float | None
    """Mean over the episodes of the evaluation."""
    standard_error: float | None
    training: float | None
    """Mean over the last tenth of training, with exploration."""

    @property
    def words(self) -> str:
        """The name without underscores."""
        return self.name.replace("_", " ")

    @property
    def evaluated_words(self) -> str:
        """The mean of the evaluation in words."""
        return with_error(self.evaluated, self.standard_error)


@dataclass(frozen=True)
class RunSummary:
    """The results of a run."""

    files: RunDirectory
    config: dict[str, Any]
    """The content of `config.yaml`."""
    ending: dict[str, Any]
    """The content of `summary.json`."""
    records: tuple[Record, ...]
    """The content of `metrics.jsonl`."""
    policies: tuple[PolicySummary, ...]
    episode_metrics: tuple[EpisodeMetric, ...] = ()
    damaged: int = 0
    """Lines of `metrics.jsonl` that could not be read."""

    @property
    def earlier(self) -> float:
        """Seconds before the last session; 0: the run was not resumed."""
        return float(self.ending.get("earlier", 0.0))

    @property
    def way(self) -> str:
        """How policies played in the evaluation: `greedy`, or `sampled` (with exploration)."""
        evaluation = self.ending.get("evaluation")
        return way_of(evaluation) if evaluation else self.way_configured

    @property
    def way_configured(self) -> str:
        """How policies are to play by the configuration; an older evaluation may differ."""
        return WAYS[bool((self.config.get("run") or {}).get("evaluate_sampled"))]

    @property
    def episodes_evaluated(self) -> int:
        """Episodes played after training."""
        return int((self.ending.get("evaluation") or {}).get("episodes", 0))


def read_run(path: Path) -> RunSummary:
    """Read the results of a run; missing or damaged files are a `RunDirectoryError`."""
    files = RunDirectory.open(path)
    ending, config = files.read_summary(), read_config(files.config)
    damaged: list[int] = []
    records = files.read_metrics(damaged)
    return RunSummary(
        files,
        config,
        ending,
        records,
        tuple(_policies(ending, records, (config.get("env") or {}).get("scripted") or {})),
        tuple(_episode_metrics(ending, records)),
        len(damaged),
    )


def _episode_metrics(ending: dict[str, Any], records: Sequence[Record]) -> Iterator[EpisodeMetric]:
    evaluated = (ending.get("evaluation") or {}).get("episode_metrics", {})
    trained = records[-1].episode_metrics if records else {}
    for name in trained or evaluated:
        found = evaluated.get(name, {})
        begin = (1 - END) * records[-1].turns if records else 0
        at_end = [r.episode_metrics.get(name) for r in records if r.turns >= begin]
        yield EpisodeMetric(
            name,
            _finite(found.get("mean")),
            _finite(found.get("standard_error")),
            weighted_mean([(value, 1) for value in at_end if value is not None]),
        )


def _policies(
    ending: dict[str, Any], records: Sequence[Record], scripted: Mapping[str, str]
) -> Iterator[PolicySummary]:
    evaluation = ending.get("evaluation") or {}
    evaluated = evaluation.get("policies") or evaluation.get("agents", {})
    trained = records[-1].playing if records else {}
    members = records[-1].members if records else {}
    away = [name for name in evaluation.get("policies", {}) if name not in trained]
    # Policies that are absent at the end keep the order of the beginning.
    order = {name: at for at, name in enumerate(records[0].playing if records else ())}
    listed = sorted([*trained, *away], key=lambda name: order.get(name, len(order)))
    for name in listed or evaluated:
        found = evaluated.get(name, {})
        mean, error = _finite(found.get("mean")), _finite(found.get("standard_error"))
        if name not in trained:
            yield PolicySummary(name, mean, error)
            continue
        last = trained[name]
        begin = (1 - END) * records[-1].turns
        at_end = [(x, n) for turns, x, n in returns(records, name) if turns >= begin]
        staleness = _intervals(records, name, "staleness", "updates")
        yield PolicySummary(
            name,
            mean,
            error,
            weighted_mean(at_end),
            last.episodes,
            last.updates,
            last.version,
            weighted_mean([(x, n) for _, x, n in staleness]),
            last.replay_ratio,
            members.get(name),
            # In a population a scripted policy is a member.
            str(scripted.get(name, "")) if not members else "",
        )


def returns(records: Sequence[Record], policy: str) -> Iterator[tuple[int, float, int]]:
    """Yield turns, mean return and number of episodes of each interval with an episode's end."""
    return _intervals(records, policy, "mean_return", "episodes")


def _intervals(
    records: Sequence[Record], policy: str, value: str, count: str
) -> Iterator[tuple[int, float, int]]:
    """Yield turns, a value that is not None, and how far a count rose, of each interval."""
    before = 0
    for record in records:
        numbers = record.policies.get(policy)
        if numbers is None:
            continue
        if getattr(numbers, value) is not None:
            yield record.turns, getattr(numbers, value), max(getattr(numbers, count) - before, 1)
        before = getattr(numbers, count)


def weighted_mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the mean of the first of each pair, weighted by the second; None: no pairs."""
    if not pairs:
        return None
    return sum(x * weight for x, weight in pairs) / sum(weight for _, weight in pairs)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
