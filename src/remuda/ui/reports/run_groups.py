"""Groups of runs that differ only by their seed, and their mean scores."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from remuda.analysis.aggregates import bootstrap_interval, interquartile_mean
from remuda.config import by_leaf, load_config
from remuda.errors import ConfigError, UsageError
from remuda.ui.reports.group_names import compared, labelled_names
from remuda.ui.reports.summary import MEAN, PolicySummary, RunSummary
from remuda.ui.terminal.numbers import with_error


@dataclass(frozen=True)
class Score:
    """A mean over runs."""

    mean: float
    standard_error: float | None
    """Standard error of the mean over runs: s / sqrt(n). None: a single run."""
    runs: int
    values: tuple[float, ...] = field(default=(), compare=False, repr=False)
    """The value of each run: [runs]."""

    @staticmethod
    def of(values: Sequence[float]) -> Score | None:
        """Return the mean over runs, from a value for each run; None: no values."""
        if not values:
            return None
        several = len(values) > 1
        error = statistics.stdev(values) / math.sqrt(len(values)) if several else None
        return Score(statistics.fmean(values), error, len(values), tuple(values))

    @property
    def iqm(self) -> float:
        """The interquartile mean over runs; with fewer than four runs, their mean."""
        return float(interquartile_mean(self.values))

    def interval(self, level: float = 0.95, *, iqm: bool = False) -> tuple[float, float] | None:
        """Return the bootstrap interval of the mean, or of the IQM; None: a single run."""
        statistic = interquartile_mean if iqm else np.mean
        return bootstrap_interval(self.values, statistic, level) if self.runs > 1 else None

    def as_summary(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {
            "mean": self.mean,
            "standard_error": self.standard_error,
            "interval": self.interval(),
            "iqm": self.iqm,
            "iqm_interval": self.interval(iqm=True),
            "runs": self.runs,
        }

    @property
    def words(self) -> str:
        """The mean and its standard error as text."""
        return with_error(self.mean, self.standard_error)


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only by their seed."""

    name: str
    """The name that the user gave, or the settings in which the group differs from the others."""
    runs: tuple[RunSummary, ...]
    """Sorted by seed."""
    label: str = ""
    """The name that the user gave; several groups have it if their settings differ."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(run.ending["seed"] for run in self.runs)

    @property
    def way(self) -> str:
        """How policies play in evaluation: `greedy`, or `sampled` (with exploration)."""
        return self.runs[0].way_configured

    @property
    def game(self) -> str:
        """The game of the runs."""
        return str(self.runs[0].ending["game"])

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that all runs of the group have."""
        first, *others = ([policy.name for policy in run.policies] for run in self.runs)
        return tuple(name for name in first if all(name in other for other in others))

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents whose returns all runs of the group have.

        Runs without shared policies have them as returns of the policies.
        """
        first, *others = (run.agents or run.policies for run in self.runs)
        others_have = [{each.name for each in other} for other in others]
        return tuple(each.name for each in first if all(each.name in o for o in others_have))

    def evaluated(self, policy: str = MEAN) -> Score | None:
        """Return the mean return of a policy, or of an agent, in the final evaluation.

        `mean`: the mean over all policies.

        Runs that were last evaluated in another way (greedy or sampled) than `way` do not count.

        Raises:
            UsageError: no run of the group has such a policy.
        """
        runs = [run for run in self.runs if run.way == self.way]
        return self._score(policy, lambda found: found.evaluated_return, runs)

    def in_training(self, policy: str = MEAN) -> Score | None:
        """Return the mean return of a policy, or of an agent, in the last tenth of training.

        `mean`: the mean over all policies.

        Raises:
            UsageError: no run of the group has such a policy.
        """
        return self._score(policy, lambda found: found.training_return, self.runs)

    def _score(
        self,
        policy: str,
        value: Callable[[PolicySummary], float | None],
        runs: Sequence[RunSummary],
    ) -> Score | None:
        known_names = dict.fromkeys(each.name for run in self.runs for each in run.policies)
        if policy != MEAN and not any(run.named(policy) for run in self.runs):
            raise UsageError(
                f"there is no policy {policy!r} in {self.name}; there are {', '.join(known_names)} "
                f"and {MEAN!r}, the mean of all"
            )
        found = []
        for run in runs:
            values = [value(each) for each in run.named(policy)]
            known = [each for each in values if each is not None]
            if known:
                found.append(statistics.fmean(known))
        return Score.of(found)


def groups_of(runs: Sequence[tuple[str, RunSummary]]) -> Iterator[RunGroup]:
    """Yield the groups of runs that differ only by their seed, from pairs of a label and a run."""
    groups: dict[tuple[str, str], tuple[Mapping[str, Any], list[RunSummary]]] = {}
    for label, run in runs:
        settings = settings_of(run)
        groups.setdefault((label, repr(settings)), (settings, []))[1].append(run)
    labels = [label for label, _ in groups]
    names = labelled_names(labels, [settings for settings, _ in groups.values()])
    for label, name, (_, members) in zip(labels, names, groups.values(), strict=True):
        yield RunGroup(name, tuple(sorted(members, key=lambda run: run.ending["seed"])), label)


def settings_of(run: RunSummary) -> dict[str, Any]:
    """Return a run's settings by key, without those that may differ in a group."""
    try:
        tree = load_config(run.config, known=run.files.read_entries()).resolved()
    except ConfigError:
        tree = run.config
    return compared(by_leaf(tree))
