"""The result of `remuda analyse`: tables in the terminal, a file and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.analysis.payoff import Payoffs, count_matches
from remuda.analysis.population_report import Analysis
from remuda.analysis.population_report import analyse as analyse_payoffs
from remuda.analysis.several_runs import RunSpread, Several
from remuda.coordinator.run_directory import write_file
from remuda.errors import RunDirectoryError, UsageError
from remuda.saved import SavedPolicies
from remuda.ui.analysis_extras import extras_of
from remuda.ui.analysis_sources import AnalysisSource, Choice, payoffs_of
from remuda.ui.numbers import between, distinct, number, to_width

SHOWN = 20
"""Rows of a table in the terminal."""
NUMBERS = 58
"""Characters that the columns of numbers may need."""


class Extra(Protocol):
    """A part of an analysis that is not computed from payoffs."""

    def as_summary(self) -> Mapping[str, Any]:
        """Return plain data."""

    def in_words(self) -> str:
        """Return one sentence."""


@dataclass(frozen=True)
class Report:
    """The analyses of one or several sources of one game, and for each its extras by title."""

    sources: tuple[AnalysisSource, ...]
    analyses: tuple[Analysis, ...]
    extras: tuple[Mapping[str, Extra], ...]
    why: str = ""
    """The reason why a run has no usable matches, as in pure self-play: then it has only extras."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the sources."""
        return tuple(source.label for source in self.sources)

    @property
    def several(self) -> Several:
        """The sources side by side."""
        return Several(self.labels, self.analyses)

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
        return self.several.as_summary() | {"runs": dict(zip(self.labels, parts, strict=True))}


def _with_extras(summary: dict[str, Any], extras: Mapping[str, Extra]) -> dict[str, Any]:
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
    """Analyse the payoffs of each source; of a single run without usable matches, its policies.

    Args:
        sources: of one game, with payoffs.
        choice: the policies to analyse.
        rng: draws the payoffs.
        samples: number of draws.
        seconds: of fresh play of each run, for its extras; 0: none.
        seed: of the games.

    Raises:
        RunDirectoryError: a ledger is damaged.
        UsageError: a file cannot be read, a policy does not exist, or the policies of several
            sources did not meet.
    """
    try:
        analyses = tuple(analyse_payoffs(payoffs_of(s, choice), rng, samples) for s in sources)
    except UsageError as error:
        run = sources[0].run
        if len(sources) > 1 or run is None or choice != Choice():
            raise
        alone = extras_of(run, SavedPolicies(run).names(), rng, seconds, seed)
        if not alone:
            raise
        return Report(tuple(sources), (), (alone,), str(error))
    extras = tuple(
        {} if source.run is None else extras_of(source.run, each.payoffs.names, rng, seconds, seed)
        for source, each in zip(sources, analyses, strict=True)
    )
    return Report(tuple(sources), analyses, extras)


def print_report(report: Report, console: Console | None = None) -> None:
    """Print tables and sentences: of one source all of it, of several a row each."""
    console = console or Console()
    if report.why:
        _print_words(report.as_summary()["in_words"], console)
        return
    if len(report.analyses) == 1:
        print_analysis(report.analyses[0], console)
    else:
        several = report.several
        console.print(_table_of_runs(several, several.common, console.width))
        if several.by_policy:
            _print_policies(several, console)
        _print_words(several.in_words(), console)
    for label, extras in zip(report.labels, report.extras, strict=True):
        prefix = "" if len(report.analyses) == 1 else f"{label}, "
        _print_words({f"{prefix}{name}": e.in_words() for name, e in extras.items()}, console)


def _print_words(sentences: Mapping[str, str], console: Console) -> None:
    for part, words in sentences.items():
        console.print(Text.assemble((f"{part}: ", "bold"), words))


def _table_of_runs(several: Several, common: Mapping[str, RunSpread], width: int) -> Table:
    """Return a table with a row for each run; names are folded so that numbers have room."""
    table = Table(title=f"{len(several.labels)} runs of one game")
    numbers = {"of": [_matches(found.payoffs) for found in several.analyses]}
    numbers |= {name: [number(x) for x in measure.values] for name, measure in common.items()}
    widths = {
        head: max(len(word) for words in (head, *cells) for word in words.split())
        for head, cells in numbers.items()
    }
    room = max(width - sum(widths.values()) - 3 * (len(numbers) + 2) - 1, 12)
    best = [found.ranking.names[int(np.argmin(found.ranking.ranks))] for found in several.analyses]
    columns = {"run": list(several.labels), "of": numbers.pop("of"), "earns the most": best}
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
        "payoff against the others of the run, by policy",
        ("policy", "mean", "95%", "deviation between runs"),
    )
    order = sorted(several.by_policy.items(), key=lambda item: -item[1].mean)
    for name, found in order[:SHOWN]:
        mean, interval = _with_interval(found.mean, *found.interval)
        table.add_row(Text(name), mean, interval, number(found.deviation))
    _print_table(table, len(order), console)


def print_analysis(found: Analysis, console: Console | None = None) -> None:
    """Print the ranking with its intervals, the equilibrium, and a sentence for each part."""
    console = console or Console()
    ranking, mixture = found.ranking, None
    if found.equilibrium is not None:
        mixture = found.equilibrium.answer.mixtures[0]
    table = _table(
        f"{len(ranking.names)} policies, {_matches(found.payoffs)}",
        ("rank", "policy", "payoff", "95%", "rank, 95%", "first", "equilibrium"),
        max(console.width - NUMBERS, 8),
    )
    order = np.argsort(ranking.ranks, kind="stable")
    for place in order[:SHOWN]:
        ends = ranking.score_intervals[:, place]
        score, interval = _with_interval(float(ranking.scores[place]), *map(float, ends))
        first, last = ranking.intervals[:, place]
        table.add_row(
            str(ranking.ranks[place]),
            Text(ranking.names[place]),
            score,
            interval,
            str(first) if first == last else f"{first} to {last}",
            f"{ranking.first[place]:.0%}",
            "" if mixture is None or mixture[place] < 1e-6 else f"{mixture[place]:.1%}",
        )
    _print_table(table, len(order), console)
    _print_words(found.in_words(), console)


def _table(title: str, headings: Sequence[str], widest_name: int | None = None) -> Table:
    table = Table(title=title)
    for heading in headings:
        if heading == "policy":
            table.add_column(heading, overflow="fold", max_width=widest_name)
        else:
            table.add_column(heading, justify="right")
    return table


def _print_table(table: Table, rows: int, console: Console) -> None:
    console.print(table)
    if rows > SHOWN:
        console.print(f"and {rows - SHOWN} more, in analysis.json")


def _with_interval(value: float, low: float, high: float) -> tuple[str, str]:
    """Return a value and its interval, with the digits that the interval needs."""
    return to_width((value, low, high), high - low)[0], between(low, high)


def _matches(payoffs: Payoffs) -> str:
    return count_matches(payoffs) or "0 matches"


def write_report(report: Report, directory: Path) -> tuple[Path, ...]:
    """Write `analysis.json` and the pictures; returns their paths.

    The pictures of several sources are in subdirectories, named by their labels.

    Raises:
        RunDirectoryError: the disk is full or not writable.
    """
    written = write_summary(report.as_summary(), directory)
    several = len(report.analyses) > 1
    places = [directory / n for n in _directories(report.sources)] if several else [directory]
    try:
        for place, found, source in zip(places, report.analyses, report.sources, strict=False):
            place.mkdir(parents=True, exist_ok=True)
            written += draw(found, place, source)
    except OSError as error:
        raise _unwritable(directory, error) from None
    return written


def _directories(sources: Sequence[AnalysisSource]) -> list[str]:
    """Return by source the name of its directory, which differs from the file beside it."""
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


def write_summary(summary: Mapping[str, Any], directory: Path) -> tuple[Path, ...]:
    """Write `analysis.json`; returns its path, or raises a `RunDirectoryError`."""
    path = directory / "analysis.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(summary, indent=1, allow_nan=False).encode())
    except OSError as error:
        raise _unwritable(directory, error) from None
    return (path,)


def _unwritable(directory: Path, error: OSError) -> RunDirectoryError:
    return RunDirectoryError(
        f"the analysis cannot be written into {directory}: {error.strerror or error}; name "
        "another directory with --out"
    )


def draw(
    found: Analysis, directory: Path, source: AnalysisSource | None = None
) -> tuple[Path, ...]:
    """Draw the pictures of an analysis, and a page of them; returns its path.

    Ratings over time are drawn only if the source is a run with a ledger.
    """
    from remuda.ui.pictures.page import draw_into  # matplotlib is slow to import

    is_run = source is not None and source.run is not None
    ledger, sides = (source.ledger, source.rated) if source and is_run else (None, ())
    return (draw_into(directory, found, ledger, sides),)
