"""Compare runs of one game, and summarise what they have in common.

Policies of different runs never met, so no payoff between them is known; runs are compared by
measures of each. Runs that differ by their seed are samples of one setting, and their spread says
how far a single run can be trusted (Agarwal et al. 2021, "Deep reinforcement learning at the edge
of the statistical precipice").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from remuda.analysis.as_json import Summary, figures
from remuda.analysis.payoff import Payoffs, check_level
from remuda.analysis.population_report import Analysis
from remuda.errors import UsageError


@dataclass(frozen=True)
class RunSpread(Summary):
    """A measure over several runs.

    Attributes:
        values: [runs]; NaN where a run does not have it.
        mean: over the runs that have it; NaN: none.
        deviation: their standard deviation; NaN of fewer than two.
        interval: (low, high) of the mean of all runs of this setting, by Student's t; NaN of fewer
            than two.
    """

    values: tuple[float, ...]
    mean: float
    deviation: float
    interval: tuple[float, float]
    level: float = 0.95


def spread(values: Sequence[float], level: float = 0.95) -> RunSpread:
    """Return the mean of a measure over runs, and its spread.

    `values`: [runs]; NaN where a run does not have it.
    """
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
    """The analyses of several runs of one game.

    Attributes:
        labels: of the runs, in the given order.
        analyses: one each.
    """

    labels: tuple[str, ...]
    analyses: tuple[Analysis, ...]

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
        return {
            name: spread([measure(found) for found in self.analyses])
            for name, measure in MEASURES.items()
        }

    @property
    def by_policy(self) -> dict[str, RunSpread]:
        """The spread of each policy's payoff against the others of its run.

        Empty if runs have different policy names.
        """
        names = self.analyses[0].ranking.names
        if any(set(found.ranking.names) != set(names) for found in self.analyses):
            return {}
        return {
            name: spread(
                [
                    float(found.ranking.scores[found.ranking.names.index(name)])
                    for found in self.analyses
                ]
            )
            for name in names
        }

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
        """Return one sentence for each part."""
        told = {
            "runs": f"{len(self.labels)} runs; policies of different runs never met, so that each "
            "run is ranked by itself (`remuda tournament` lets them meet)."
        }
        for name, found in self.common.items():
            if math.isnan(found.mean):
                told[name] = "No run has it."
            elif math.isnan(found.deviation):
                told[name] = f"{figures(found.mean)}, of the one run that has it."
            else:
                low, high = found.interval
                known = sum(math.isfinite(value) for value in found.values)
                told[name] = (
                    f"{figures(found.mean)} on the mean of {known} runs ({figures(low, 2)} to "
                    f"{figures(high, 2)}); a single run differs by {figures(found.deviation, 2)}."
                )
        return told


def _value(found: Analysis) -> float:
    if found.equilibrium is None:
        return math.nan
    value = float(found.equilibrium.answer.values[0])
    scale = 1e-9 * float(np.nanmax(np.abs(found.payoffs.matrix)))
    return value if abs(value) >= scale else 0.0  # what rounding leaves of nothing


def _played(found: Analysis) -> float:
    """Return the size of the equilibrium's support."""
    if found.equilibrium is None:
        return math.nan
    return float((found.equilibrium.answer.mixtures[0] > 1e-6).sum())


def _diversity(found: Analysis) -> float:
    return math.nan if found.diversity is None else found.diversity.corrected


def _exploitability(found: Analysis) -> float:
    """Return the mean gain of the best response within the population."""
    if found.exploitability is None:
        return math.nan
    return float(np.mean([each.corrected for each in found.exploitability.gains]))


MEASURES = {
    "share of skill": lambda found: float(found.structure.transitive),
    "mixed": _played,
    "value": _value,
    "gain within": _exploitability,
    "diversity": _diversity,
}
"""Measures to compare between runs; NaN: unknown. They are the share of skill in the payoffs, the
size of the equilibrium's support, its payoff, the mean gain of a population's best response, and
response diversity.
"""


def side_by_side(payoffs: Mapping[str, Payoffs]) -> Payoffs:
    """Return the payoffs of several runs as one population, with missing cells between runs.

    `payoffs`: by run, of a symmetric game each; policies become `run/policy`.
    """
    if not payoffs:
        raise UsageError("there are no payoffs to put side by side")
    for label, each in payoffs.items():
        if not each.symmetric:
            raise UsageError(f"the payoffs of {label} are not of a symmetric game")
    names = tuple(f"{label}/{name}" for label, each in payoffs.items() for name in each.names)
    count = len(names)
    means, covariances = np.full((2, count, count), np.nan), np.full((2, 2, count, count), np.nan)
    counts, meetings = np.zeros((count, count)), np.zeros((count, count))
    units = np.ones((count, count))
    begin = 0
    for each in payoffs.values():
        end = begin + len(each.names)
        means[:, begin:end, begin:end] = each.means
        covariances[:, :, begin:end, begin:end] = each.covariances
        counts[begin:end, begin:end] = each.counts
        units[begin:end, begin:end] = 1.0 if each.units is None else each.units
        meetings[begin:end, begin:end] = each.counts if each.meetings is None else each.meetings
        begin = end
    numbers = [each.matches for each in payoffs.values()]
    known = [number for number in numbers if number is not None]
    matches = sum(known) if len(known) == len(numbers) else None
    return Payoffs((names, names), means, covariances, counts, True, units, meetings, matches)
