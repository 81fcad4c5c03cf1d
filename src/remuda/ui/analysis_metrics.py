"""What is known of policies and of runs by name: that which `remuda analyse --pareto` weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from remuda.analysis.overall import Analysis
from remuda.analysis.society import Society
from remuda.analysis.trade_off import Objective, Table
from remuda.analysis.welfare import Measure, SocialOutcomes
from remuda.coordinator.metrics import row_of
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import make_env
from remuda.errors import RunDirectoryError, UsageError
from remuda.ui.analysis_sources import Source

LAST = 0.1
"""Of the intervals of a run's metrics so many, the last, stand for how its policies end."""
LEAST = 2
"""Intervals at least."""
NORMAL = 2.0 * 1.96
"""Standard errors in an interval of 95%."""


def tables_of_populations(sources: Sequence[Source], analyses: Sequence[Analysis]) -> list[Table]:
    """What is known of the policies of runs, as `run/policy` where there are several."""
    found: dict[str, dict[str, Measure]] = {}
    for source, analysis in zip(sources, analyses, strict=True):
        rows = {} if source.run is None else metrics_of(source.run, analysis.payoffs.names)
        ranking, payoffs = analysis.ranking, analysis.payoffs
        apart = np.where(np.eye(len(payoffs.names), dtype=np.bool_), np.nan, payoffs.matrix)
        for place, name in enumerate(ranking.names):
            low, high = ranking.score_intervals[:, place]
            worst = int(np.nanargmin(apart[place]))
            row = rows.get(name, {}) | {
                "payoff": _measure(float(ranking.scores[place]), float(high - low) / NORMAL),
                "worst_payoff": _measure(
                    float(apart[place, worst]), float(payoffs.errors[0][place, worst])
                ),
            }
            if analysis.exploitability is not None:
                gain = analysis.exploitability.of(name)
                row["gain_against"] = _measure(
                    gain.corrected, (gain.interval[1] - gain.interval[0]) / NORMAL
                )
            found[name if len(sources) == 1 else f"{source.label}/{name}"] = row
    return [found]


def tables_of_societies(sources: Sequence[Source], societies: Sequence[Society]) -> list[Table]:
    """What is known of the agents of runs, and of each run as a whole."""
    agents: dict[str, dict[str, Measure]] = {}
    runs: dict[str, dict[str, Measure]] = {}
    for source, found in zip(sources, societies, strict=True):
        rows = {} if source.run is None else metrics_of(source.run, found.agents)
        earned = dict(zip(found.agents, found.earned, strict=True))
        for name in found.agents:
            label = name if len(sources) == 1 else f"{source.label}/{name}"
            agents[label] = rows.get(name, {}) | {"return": earned[name]}
        runs[source.label] = found.measures | {
            f"{name}/return": each for name, each in earned.items()
        }
    return [agents, runs]


def check_of_societies(sources: Sequence[Source], objectives: Sequence[Objective]) -> None:
    """Refuse objectives that fresh play cannot tell either, before it is played.

    Raises:
        UsageError: there is no such metric.
    """
    known = {each.name for each in fields(SocialOutcomes)} | {"episode_length", "return"}
    for source in sources:
        env = make_env(source.game, 1, **source.options)
        env.close()
        names = [agent.name for agent in env.agents]
        known |= {*env.facts, *(f"{name}/return" for name in names)}
        if source.run is not None:
            known |= {metric for row in metrics_of(source.run, names).values() for metric in row}
    for each in objectives:
        if each.metric not in known:
            raise UsageError(
                f"--pareto: there is no metric {each.metric}; there are {', '.join(sorted(known))}"
            )


def metrics_of(run: RunDirectory, names: Sequence[str]) -> dict[str, dict[str, Measure]]:
    """By policy, its metrics at the end of a run: the mean over the last intervals.

    The standard error is that over the intervals as if they were independent, which neighbours are
    not quite. A run without metrics has none.
    """
    try:
        rows = [row_of(record) for record in run.read_metrics()]
    except RunDirectoryError:
        return {}
    last = rows[-max(LEAST, round(LAST * len(rows))) :]
    found: dict[str, dict[str, Measure]] = {}
    for name in names:
        columns = {column for row in last for column in row if column.startswith(f"{name}/")}
        for column in sorted(columns):
            values = np.array([row.get(column, np.nan) for row in last])
            values = values[np.isfinite(values)]
            if len(values):
                error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
                metric = column.removeprefix(f"{name}/")
                found.setdefault(name, {})[metric] = _measure(float(values.mean()), error)
    return found


def _measure(value: float, error: float) -> Measure:
    return Measure(value, error, value, 0)
