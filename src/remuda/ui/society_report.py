"""The report of `remuda analyse` on runs with independent learners: a policy for each agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.analysis.returns import known
from remuda.analysis.several_runs import RunSpread, spread
from remuda.analysis.society import Society
from remuda.evaluation import WAYS
from remuda.ui.analysis_extras import society_of
from remuda.ui.analysis_sources import AnalysisSource
from remuda.ui.numbers import between, number, to_width, with_error

SHOWN = 20
"""Agents in a table on the screen."""


@dataclass(frozen=True)
class SocietyReport:
    """The outcomes of one run, or of several runs of one game."""

    labels: tuple[str, ...]
    societies: tuple[Society, ...]
    """The returns of agents in each run."""
    extras: tuple[Mapping[str, Any], ...]
    """Other analyses of each run, by their names."""
    ways: tuple[str, ...]
    """`greedy` or `sampled` (with exploration) for each run."""

    @property
    def common(self) -> dict[str, RunSpread]:
        """The spread over runs of each measure that all runs have and some know."""
        every = [found.measures for found in self.societies]
        return {
            name: spread([measures[name].value for measures in every])
            for name in every[0]
            if all(name in measures for measures in every)
            and any(np.isfinite(measures[name].value) for measures in every)
        }

    def as_summary(self) -> dict[str, Any]:
        """Return the content of `analysis.json`."""
        parts = []
        for found, extras, way in zip(self.societies, self.extras, self.ways, strict=True):
            summary = found.as_summary()
            words = summary["in_words"] | {name: each.in_words() for name, each in extras.items()}
            others = {name: each.as_summary() for name, each in extras.items()}
            parts.append(summary | others | {"play": way, "in_words": words})
        if len(parts) == 1:
            return parts[0]
        return {
            "analysis": 1,
            "runs": dict(zip(self.labels, parts, strict=True)),
            "common": {name: each.as_summary() for name, each in self.common.items()},
        }


def report_societies(
    sources: Sequence[AnalysisSource], rng: np.random.Generator, seconds: float, seed: int
) -> SocietyReport:
    """Play fresh episodes of each run, and analyse the returns of its agents."""
    found, ways = [], []
    for source in sources:
        assert source.run is not None
        ways.append(WAYS[source.run.read_config().run.evaluate_sampled])
        found.append(society_of(source.run, rng, seconds, seed))
    return SocietyReport(
        tuple(source.label for source in sources),
        tuple(each for each, _ in found),
        tuple(extras for _, extras in found),
        tuple(ways),
    )


def print_societies(report: SocietyReport, console: Console | None = None) -> None:
    """Print a line for each agent of one run, or for each of several runs."""
    console = console or Console()
    if len(report.societies) == 1:
        _print_one(report, console)
        return
    ways = " or ".join(dict.fromkeys(report.ways))
    table = Table(title=f"{len(report.labels)} runs of one game, fresh {ways} episodes of each")
    table.add_column("run", overflow="fold", max_width=max(console.width // 3, 10))
    for name in report.common:
        table.add_column(Text(name.replace("_", " ")), justify="right")
    for place, label in enumerate(report.labels):
        values = (number(each.values[place]) for each in report.common.values())
        table.add_row(Text(label), *values)
    console.print(table)
    for name, each in report.common.items():
        low, high = each.interval
        mean = to_width((each.mean,), high - low)[0]
        known = f" ({between(low, high)})" if np.isfinite([low, high]).all() else ""
        words = f"{mean} on the mean of the runs{known}."
        console.print(Text.assemble((f"{name.replace('_', ' ')}: ", "bold"), words))
    for label, extras in zip(report.labels, report.extras, strict=True):
        for name, extra in extras.items():
            console.print(Text.assemble((f"{label}, {name}: ", "bold"), extra.in_words()))


def _print_one(report: SocietyReport, console: Console) -> None:
    (found,), (extras,), (way,) = report.societies, report.extras, report.ways
    agents = f"{len(found.agents)} agent{'s' * (len(found.agents) != 1)}"
    table = Table(title=f"{agents}, {len(found.returns):,} {way} episodes")
    for column in ("agent", "return", "lowest", "highest"):
        table.add_column(column, justify="left" if column == "agent" else "right")
    earned = found.earned
    values = np.nan_to_num([each.value for each in earned], nan=-np.inf)  # it never took part
    order = sorted(range(len(found.agents)), key=lambda place: -values[place])
    for place in order[:SHOWN]:
        error = earned[place].error
        mean = with_error(earned[place].value, None if np.isnan(error) else error)
        returns = known(found.returns[:, place])
        ends = (returns.min(), returns.max()) if len(returns) else (np.nan, np.nan)
        table.add_row(Text(found.agents[place]), mean, *(number(float(end)) for end in ends))
    console.print(table)
    if len(order) > SHOWN:
        console.print(f"and {len(order) - SHOWN} more, in analysis.json")
    words = found.in_words() | {name: extra.in_words() for name, extra in extras.items()}
    for part, sentence in words.items():
        console.print(Text.assemble((f"{part}: ", "bold"), sentence))
