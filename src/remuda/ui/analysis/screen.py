"""The result of `remuda analyse`: tables in the terminal, `analysis.json` and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.analysis.payoffs.payoffs import Payoffs, count_matches
from remuda.analysis.payoffs.returns import known
from remuda.analysis.population_report import Analysis
from remuda.analysis.population_report import analyse as analyse_payoffs
from remuda.analysis.several_runs import RunSpread, Several, spread
from remuda.analysis.society.society import Society
from remuda.errors import RunDirectoryError, UsageError
from remuda.evaluation.results import WAYS
from remuda.runs.run_directory import write_file
from remuda.training.saved.policies import SavedPolicies
from remuda.ui.analysis.extras import extras_of, society_of
from remuda.ui.analysis.sources import AnalysisSource, Choice, payoffs_of
from remuda.ui.terminal.numbers import between, distinct, number, to_width, with_error

SHOWN = 20  # rows of a table in the terminal
NUMBERS = 67  # maximum width of the number columns in characters


@dataclass(frozen=True)
class Report:
    """The analyses of one or more sources of one game, with extra analyses by title."""

    sources: tuple[AnalysisSource, ...]
    analyses: tuple[Analysis, ...]
    extras: tuple[Mapping[str, Any], ...]
    why: str = ""  # if a run has no usable matches (as in self-play): the reason; `extras` remain

    @property
    def several(self) -> Several:
        """The sources side by side."""
        return Several(tuple(source.label for source in self.sources), self.analyses)

    def as_summary(self) -> dict[str, Any]:
        """Return the content of `analysis.json`."""
        if self.why:
            return _with_extras({"analysis": 1, "in_words": {"payoffs": self.why}}, self.extras[0])
        parts = [
            _with_extras(found.as_summary(), extras)
            for found, extras in zip(self.analyses, self.extras, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        several = self.several
        return several.as_summary() | {"runs": dict(zip(several.labels, parts, strict=True))}


def _with_extras(summary: dict[str, Any], extras: Mapping[str, Any]) -> dict[str, Any]:
    words = summary["in_words"] | {title: extra.in_words() for title, extra in extras.items()}
    parts = {title: dict(extra.as_summary()) for title, extra in extras.items()}
    return summary | parts | {"in_words": words}


def analyse_what_there_is(
    sources: Sequence[AnalysisSource],
    choice: Choice,
    rng: np.random.Generator,
    samples: int,
    seconds: float = 0.0,
    seed: int = 0,
) -> Report:
    """Analyse each source's payoffs; for a run without usable matches, only its policies."""
    try:
        analyses = tuple(analyse_payoffs(payoffs_of(s, choice), rng, samples) for s in sources)
    except UsageError as error:
        run = sources[0].run
        if len(sources) > 1 or run is None or choice != Choice():
            raise
        only_extras = extras_of(run, SavedPolicies(run).names(), rng, seconds, seed)
        if not only_extras:
            raise
        return Report(tuple(sources), (), (only_extras,), str(error))
    extras = tuple(
        {} if source.run is None else extras_of(source.run, each.payoffs.names, rng, seconds, seed)
        for source, each in zip(sources, analyses, strict=True)
    )
    return Report(tuple(sources), analyses, extras)


def print_report(report: Report | SocietyReport, console: Console | None = None) -> None:
    """Print tables and sentences: all results of one source, or a row per source."""
    console = console or Console()
    if isinstance(report, SocietyReport):
        print_societies(report, console)
        return
    if report.why:
        _print_words(report.as_summary()["in_words"], console)
        return
    several = report.several
    if len(report.analyses) == 1:
        print_analysis(report.analyses[0], console)
    else:
        console.print(_table_of_runs(several, several.common, console.width))
        if several.by_policy:
            _print_policies(several, console)
        _print_words(several.in_words(), console)
    for label, extras in zip(several.labels, report.extras, strict=True):
        prefix = "" if len(report.analyses) == 1 else f"{label}, "
        _print_words({f"{prefix}{name}": e.in_words() for name, e in extras.items()}, console)


def _print_words(sentences: Mapping[str, str], console: Console) -> None:
    for part, words in sentences.items():
        console.print(Text.assemble((f"{part}: ", "bold"), words))


def _table_of_runs(several: Several, common: Mapping[str, RunSpread], width: int) -> Table:
    """Return a table with a row per run; long names are folded to leave room for numbers."""
    table = Table(title=f"{len(several.labels)} runs of one game")
    numbers = {"based on": [_matches(found.payoffs) for found in several.analyses]}
    numbers |= {name: [number(x) for x in measure.values] for name, measure in common.items()}
    widths = {
        head: max(len(word) for words in (head, *cells) for word in words.split())
        for head, cells in numbers.items()
    }
    room = max(width - sum(widths.values()) - 3 * (len(numbers) + 2) - 1, 12)
    best = [found.ranking.names[int(np.argmin(found.ranking.ranks))] for found in several.analyses]
    columns = {"run": list(several.labels), "based on": numbers.pop("based on")}
    columns["highest payoff"] = best
    columns |= numbers
    for head in columns:
        if head in widths:
            wide = widths[head]
            table.add_column(Text(head), justify="right", min_width=wide, max_width=wide)
        else:
            part = room - room // 3 if head == "run" else room // 3
            table.add_column(head, overflow="fold", max_width=part)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _print_policies(several: Several, console: Console) -> None:
    table = _table(
        "payoff against the other policies of the run",
        ("policy", "mean", "95%", "std between runs"),
    )
    order = sorted(several.by_policy.items(), key=lambda item: -item[1].mean)
    for name, found in order[:SHOWN]:
        mean, interval = _with_interval(found.mean, *found.interval)
        table.add_row(Text(name), mean, interval, number(found.deviation))
    _print_table(table, len(order), console)


def print_analysis(found: Analysis, console: Console | None = None) -> None:
    """Print the ranking with intervals, the equilibrium, and a sentence for each part."""
    console = console or Console()
    ranking, mixture = found.ranking, None
    if found.equilibrium is not None:
        mixture = found.equilibrium.answer.mixtures[0]
    table = _table(
        f"{len(ranking.names)} policies, {_matches(found.payoffs)}",
        ("rank", "policy", "payoff", "95%", "rank, 95%", "P(first)", "Nash"),
        max(console.width - NUMBERS, 8),
    )
    order = np.argsort(ranking.ranks, kind="stable")
    for row in order[:SHOWN]:
        ends = ranking.score_intervals[:, row]
        score, interval = _with_interval(float(ranking.scores[row]), *map(float, ends))
        first, last = ranking.intervals[:, row]
        table.add_row(
            str(ranking.ranks[row]),
            Text(ranking.names[row]),
            score,
            interval,
            str(first) if first == last else f"{first} to {last}",
            f"{ranking.first[row]:.0%}",
            "" if mixture is None or mixture[row] < 1e-6 else f"{mixture[row]:.1%}",
        )
    _print_table(table, len(order), console)
    _print_words(found.in_words(), console)


def _table(title: str, headings: Sequence[str], widest_name: int | None = None) -> Table:
    table = Table(title=title)
    for heading in headings:
        if heading in ("policy", "agent"):
            table.add_column(heading, overflow="fold", max_width=widest_name)
        else:
            table.add_column(heading, justify="right")
    return table


def _print_table(table: Table, rows: int, console: Console) -> None:
    console.print(table)
    if rows > SHOWN:
        console.print(f"and {rows - SHOWN} more, in analysis.json")


def _with_interval(value: float, low: float, high: float) -> tuple[str, str]:
    return to_width((value, low, high), high - low)[0], between(low, high)


def _matches(payoffs: Payoffs) -> str:
    return count_matches(payoffs) or "0 matches"


def write_report(report: Report | SocietyReport, directory: Path) -> tuple[Path, ...]:
    """Write `analysis.json` and the pictures; several sources get subdirectories."""
    file = directory / "analysis.json"
    written, drawn = [file], list[tuple[Analysis, AnalysisSource]]()
    if isinstance(report, Report):
        drawn += zip(report.analyses, report.sources, strict=False)
    names = _directories([source for _, source in drawn]) if len(drawn) > 1 else [""]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_file(file, json.dumps(report.as_summary(), indent=1, allow_nan=False).encode())
        for name, (found, source) in zip(names, drawn, strict=False):
            from remuda.ui.reports.analysis_page import draw_into  # matplotlib is slow to import

            place = directory / name
            place.mkdir(parents=True, exist_ok=True)
            ledger, sides = (source.ledger, source.rated) if source.run else (None, ())
            written.append(draw_into(place, found, ledger, sides))
    except OSError as error:
        raise RunDirectoryError(
            f"cannot write the analysis into {directory}: {error.strerror or error}; name "
            "another directory with --out"
        ) from None
    return tuple(written)


def _directories(sources: Sequence[AnalysisSource]) -> list[str]:
    labels = [source.label.replace("/", "-") for source in sources]
    short = [
        label.removesuffix(source.path.suffix) if source.path.is_file() else label
        for label, source in zip(labels, sources, strict=True)
    ]
    names = [
        each if short.count(each) == 1 else label.replace(".", "-")
        for each, label in zip(short, labels, strict=True)
    ]
    return distinct(names, "{}-{}")


@dataclass(frozen=True)
class SocietyReport:
    """The returns and welfare of agents in one or more runs of one game."""

    labels: tuple[str, ...]
    societies: tuple[Society, ...]  # the returns of agents in each run
    extras: tuple[Mapping[str, Any], ...]  # other analyses of each run, by title
    ways: tuple[str, ...]  # `greedy` or `sampled` (with exploration) for each run

    @property
    def common(self) -> dict[str, RunSpread]:
        """The spread over runs of each measure that all runs have and some could compute."""
        every = [found.measures for found in self.societies]
        return {
            name: spread([measures[name].value for measures in every])
            for name in every[0]
            if all(name in measures for measures in every)
            and any(np.isfinite(measures[name].value) for measures in every)
        }

    def as_summary(self) -> dict[str, Any]:
        """Return the content of `analysis.json`."""
        every = zip(self.societies, self.extras, self.ways, strict=True)
        parts = [_with_extras(found.as_summary() | {"play": w}, e) for found, e, w in every]
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
    """Play fresh episodes of each run, and analyse the agents' returns."""
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
    """Print a row per agent of a single run, or a row per run."""
    console = console or Console()
    if len(report.societies) == 1:
        _print_one(report, console)
        return
    ways = " or ".join(dict.fromkeys(report.ways))
    table = Table(title=f"{len(report.labels)} runs of one game, fresh {ways} episodes")
    table.add_column("run", overflow="fold", max_width=max(console.width // 3, 10))
    for name in report.common:
        table.add_column(Text(name.replace("_", " ")), justify="right")
    for run, label in enumerate(report.labels):
        values = (number(each.values[run]) for each in report.common.values())
        table.add_row(Text(label), *values)
    console.print(table)
    for name, each in report.common.items():
        low, high = each.interval
        mean = to_width((each.mean,), high - low)[0]
        known = f" ({between(low, high)})" if np.isfinite([low, high]).all() else ""
        words = f"{mean} on average over the runs{known}."
        _print_words({name.replace("_", " "): words}, console)
    for label, extras in zip(report.labels, report.extras, strict=True):
        _print_words({f"{label}, {name}": e.in_words() for name, e in extras.items()}, console)


def _print_one(report: SocietyReport, console: Console) -> None:
    (found,), (extras,), (way,) = report.societies, report.extras, report.ways
    agents = f"{len(found.agents)} agent{'s' * (len(found.agents) != 1)}"
    title = f"{agents}, {len(found.returns):,} {way} episodes"
    table = _table(title, ("agent", "mean return", "lowest", "highest"))
    means = found.mean_returns
    values = np.nan_to_num([each.value for each in means], nan=-np.inf)  # NaN: never took part
    order = sorted(range(len(found.agents)), key=lambda agent: -values[agent])
    for agent in order[:SHOWN]:
        error = means[agent].error
        mean = with_error(means[agent].value, None if np.isnan(error) else error)
        returns = known(found.returns[:, agent])
        ends = (returns.min(), returns.max()) if len(returns) else (np.nan, np.nan)
        table.add_row(Text(found.agents[agent]), mean, *(number(float(end)) for end in ends))
    _print_table(table, len(order), console)
    _print_words(_with_extras({"in_words": found.in_words()}, extras)["in_words"], console)
