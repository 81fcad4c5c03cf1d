"""Compare runs of one game, and summarise their common measures.

Policies of different runs never met, so no payoffs between them are known. Instead, each
run is measured separately and the measures are compared. Runs that differ only by their seed are
samples, whose spread shows how far you can trust a single run (Agarwal et al. 2021, "Deep
reinforcement learning at the edge of the statistical precipice").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from remuda.analysis.as_json import Summary, figures
from remuda.analysis.payoffs.payoffs import check_level
from remuda.analysis.population_report import Analysis
from remuda.analysis.roles_report import RolesAnalysis


@dataclass(frozen=True)
class RunSpread(Summary):
    """A measure over several runs."""

    values: tuple[float, ...]  # [runs]; NaN for a run without the measure
    mean: float  # over the runs with the measure; NaN: no run has it
    deviation: float  # standard deviation over runs; NaN with fewer than two
    interval: tuple[float, float]  # of the mean, by Student's t; NaN with fewer than two
    level: float = 0.95


def spread(values: Sequence[float], level: float = 0.95) -> RunSpread:
    """Return the mean of a measure over runs, and its spread; `values`: [runs], NaN if unknown."""
    check_level(level)
    known = np.array([value for value in values if math.isfinite(value)])
    if not len(known):
        return RunSpread(tuple(values), math.nan, math.nan, (math.nan, math.nan), level)
    mean = float(known.mean())
    if len(known) == 1:
        return RunSpread(tuple(values), mean, math.nan, (math.nan, math.nan), level)
    deviation = float(known.std(ddof=1))
    half = float(stats.t.ppf(0.5 + level / 2.0, len(known) - 1)) * deviation / math.sqrt(len(known))
    return RunSpread(tuple(values), mean, deviation, (mean - half, mean + half), level)


@dataclass(frozen=True)
class Several:
    """The analyses of several runs of one game."""

    labels: tuple[str, ...]
    analyses: tuple[Analysis | RolesAnalysis, ...]

    @property
    def members(self) -> tuple[str, ...]:
        """All policies, as `run/policy`."""
        return tuple(
            f"{label}/{name}"
            for label, found in zip(self.labels, self.analyses, strict=True)
            for name in found.payoffs.names
        )

    @property
    def common(self) -> dict[str, RunSpread]:
        """The spread of each measure over the runs."""
        measures = [found.measures for found in self.analyses]
        names = dict.fromkeys(name for each in measures for name in each)
        return {name: spread([each.get(name, math.nan) for each in measures]) for name in names}

    @property
    def by_policy(self) -> dict[str, RunSpread]:
        """The spread of each policy's payoff against others of its run; empty if names differ."""
        names = self.analyses[0].scores
        if any(set(found.scores) != set(names) for found in self.analyses):
            return {}
        return {name: spread([found.scores[name] for found in self.analyses]) for name in names}

    def as_summary(self) -> dict[str, Any]:
        """Return the contents of `analysis.json` for several runs."""
        return {
            "analysis": 1,
            "runs": {
                label: found.as_summary()
                for label, found in zip(self.labels, self.analyses, strict=True)
            },
            "members": list(self.members),
            "never_met": "policies of different runs",
            "common": {name: found.as_summary() for name, found in self.common.items()},
            "by_policy": {name: found.as_summary() for name, found in self.by_policy.items()},
            "in_words": self.in_words(),
        }

    def in_words(self) -> dict[str, str]:
        """Return one sentence for each measure, and one about the runs."""
        words = {
            "runs": (
                f"{len(self.labels)} runs; policies of different runs never met, so each run "
                "is ranked separately (`remuda tournament` lets them meet)."
            )
        }
        for name, found in self.common.items():
            if math.isnan(found.mean):
                words[name] = "Unknown: no run has this measure."
            elif math.isnan(found.deviation):
                words[name] = f"{figures(found.mean)}, from the only run with this measure."
            else:
                low, high = found.interval
                known = sum(math.isfinite(value) for value in found.values)
                words[name] = (
                    f"{figures(found.mean)} on average over {known} runs "
                    f"({found.level:.0%} interval {figures(low, 2)} to {figures(high, 2)}); the "
                    f"standard deviation between runs is {figures(found.deviation, 2)}."
                )
        return words
