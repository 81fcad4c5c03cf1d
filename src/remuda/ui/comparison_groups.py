"""Groups of runs that differ only by their seed, and the scores of their policies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from remuda.coordinator.run_directory import write_file
from remuda.errors import RunDirectoryError, UsageError
from remuda.ui.html import with_pictures
from remuda.ui.numbers import NOTHING, with_error
from remuda.ui.summary import PolicySummary, RunSummary

FEW = 4
"""The most policies that are shown one by one; of more, the mean is shown."""
MEAN = "mean"
"""The name of the mean over all policies."""


@dataclass(frozen=True)
class Score:
    """A mean over runs."""

    mean: float
    standard_error: float | None
    """Standard error of the mean, over runs: s / sqrt(n). None: there is one run."""
    runs: int

    @staticmethod
    def of(values: Sequence[float]) -> Score | None:
        """Return the mean of one number for each run; None: there are none."""
        if not values:
            return None
        error = None
        if len(values) > 1:
            error = statistics.stdev(values) / math.sqrt(len(values))
        return Score(statistics.fmean(values), error, len(values))

    @property
    def words(self) -> str:
        """The mean and its standard error in words."""
        return with_error(self.mean, self.standard_error)


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only by their seed."""

    name: str
    """The settings in which it differs from the other groups."""
    runs: tuple[RunSummary, ...]
    """In the order of their seeds."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of its runs."""
        return tuple(run.ending["seed"] for run in self.runs)

    @property
    def way(self) -> str:
        """How policies play in evaluation: `greedy`, or `sampled` (with exploration)."""
        return self.runs[0].way_configured

    @property
    def policies(self) -> tuple[str, ...]:
        """Policies that all of its runs have."""
        first, *others = ([policy.name for policy in run.policies] for run in self.runs)
        return tuple(name for name in first if all(name in other for other in others))

    def evaluated(self, policy: str = MEAN) -> Score | None:
        """Return the return of a policy in the evaluation after training; `MEAN`: of all policies.

        Runs whose last evaluation was greedy although the group's are sampled, or the reverse, do
        not count.

        Raises:
            UsageError: no run of the group has such a policy.
        """
        runs = [run for run in self.runs if run.way == self.way]
        return self._score(policy, lambda found: found.evaluated_return, runs)

    def in_training(self, policy: str = MEAN) -> Score | None:
        """Return the return of a policy in the last tenth of training; `MEAN`: of all policies.

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
        there = dict.fromkeys(each.name for run in self.runs for each in run.policies)
        if policy != MEAN and policy not in there:
            raise UsageError(
                f"there is no policy {policy!r} in {self.name}; there are {', '.join(there)}, and "
                f"{MEAN!r} of all"
            )
        found = []
        for run in runs:
            values = [value(each) for each in run.policies if policy in (MEAN, each.name)]
            known = [each for each in values if each is not None]
            if known:
                found.append(statistics.fmean(known))
        return Score.of(found)


@dataclass(frozen=True)
class Comparison:
    """Groups of runs, in the order in which they were named."""

    groups: tuple[RunGroup, ...]

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """The rows of each group: the policies that all groups have, or `MEAN`."""
        first, *others = (group.policies for group in self.groups)
        if not first or len(first) > FEW or any(set(first) != set(other) for other in others):
            return (MEAN,)
        return first

    def report(self, directory: Path | str) -> Path:
        """Write a page with a table and learning curves; returns its path.

        Raises:
            RunDirectoryError: the directory is a run's, or cannot be written.
        """
        from remuda.ui.comparison_page import draw_curves, page_of  # matplotlib is slow to import

        directory = Path(directory)
        if (directory / "config.yaml").exists():
            raise RunDirectoryError(f"{directory} is a run; name another directory for the report")
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(f"cannot make {directory}: {error.strerror}") from None
        write_file(directory / "learning.png", draw_curves(self))
        page = directory / "report.html"
        write_file(page, with_pictures(page_of(self), directory).encode())
        return page

    def as_summary(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {"groups": [_summary(group, self.policies) for group in self.groups]}


def _summary(group: RunGroup, policies: Sequence[str]) -> dict[str, Any]:
    def plain(score: Score | None) -> dict[str, Any] | None:
        return None if score is None else dict(vars(score))

    return {
        "name": group.name,
        "runs": [str(run.files.path) for run in group.runs],
        "seeds": list(group.seeds),
        "play": group.way,
        "policies": {
            name: {
                "evaluated": plain(group.evaluated(name)),
                "in_training": plain(group.in_training(name)),
            }
            for name in dict.fromkeys((*policies, *group.policies))
        },
    }


def way_words(comparison: Comparison) -> str:
    """Return how policies play in evaluation: `greedy`, `sampled`, or both."""
    return " or ".join(dict.fromkeys(group.way for group in comparison.groups))


def without_common(comparison: Comparison) -> list[str]:
    """Return a note if the runs have no policy in common, so that means are shown."""
    shared = set.intersection(*(set(group.policies) for group in comparison.groups))
    if shared or sum(len(group.runs) for group in comparison.groups) < 2:
        return []
    return [
        "these runs have no policy in common: each row is the mean over the policies of a run; "
        "`remuda report RUN` shows them one by one"
    ]


def same_seeds(comparison: Comparison) -> list[str]:
    """Return notes on runs of one group that have the same seed."""
    found = []
    for group in comparison.groups:
        twice = sorted({seed for seed in group.seeds if group.seeds.count(seed) > 1})
        if twice:
            seeds = ", ".join(map(str, twice))
            found.append(f"{group.name}: several runs have the seed {seeds}; each counts as a run")
    return found


def rows_of(comparison: Comparison) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the rows of the table: the group, named once, the policy, and cells in words."""
    for group in comparison.groups:
        turns = [run.ending["turns"] for run in group.runs]
        span = f"{min(turns):,}" + (f" to {max(turns):,}" if min(turns) < max(turns) else "")
        way = f", {group.way}" if " or " in way_words(comparison) else ""
        for i, name in enumerate(comparison.policies):
            evaluated, training = group.evaluated(name), group.in_training(name)
            count = len(group.runs[0].policies)
            shown = f"mean of {count}" if name == MEAN and MEAN not in group.policies else name
            yield (
                group.name if i == 0 else "",
                shown,
                (
                    str(len(group.runs)),
                    NOTHING if evaluated is None else _counted(evaluated, group) + way,
                    NOTHING if training is None else _counted(training, group),
                    span,
                ),
            )


def _counted(score: Score, group: RunGroup) -> str:
    """Return a score in words, with its number of runs if that is not all of the group."""
    of = "" if score.runs == len(group.runs) else f" (of {score.runs})"
    return score.words + of
