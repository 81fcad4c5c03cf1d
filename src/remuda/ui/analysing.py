"""What `remuda analyse` shows: one screen, a file and pictures."""

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

from remuda.analysis.overall import Analysis
from remuda.analysis.overall import analyse as analysis_of
from remuda.analysis.payoff import Payoffs
from remuda.analysis.several import Several, Spread
from remuda.analysis.told_matches import count_matches
from remuda.coordinator.run_directory import write_file
from remuda.errors import RunDirectoryError, UsageError
from remuda.saved import SavedPolicies
from remuda.ui.analysis_extras import extras_of
from remuda.ui.analysis_sources import Choice, Source, payoffs_of
from remuda.ui.numbers import between, number, to_width

SHOWN = 20
"""Lines of the table on the screen."""
NUMBERS = 58
"""Columns of a terminal that its numbers may take, with what stands between them."""


class Extra(Protocol):
    """A part of an analysis that payoffs alone do not tell."""

    def as_summary(self) -> Mapping[str, Any]:
        """Plain data."""

    def in_words(self) -> str:
        """One sentence."""


@dataclass(frozen=True)
class Report:
    """What is told of one source, or of several of one game.

    Attributes:
        sources: what was analysed.
        analyses: of the payoffs of each.
        extras: of each, by name, what else is told.
    """

    sources: tuple[Source, ...]
    analyses: tuple[Analysis, ...]
    extras: tuple[Mapping[str, Extra], ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the sources."""
        return tuple(source.label for source in self.sources)

    @property
    def several(self) -> Several:
        """The sources side by side."""
        return Several(self.labels, self.analyses)

    def as_summary(self) -> dict[str, Any]:
        """Plain data: what `analysis.json` holds."""
        parts = [
            _with_extras(found.as_summary(), extras)
            for found, extras in zip(self.analyses, self.extras, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        return self.several.as_summary() | {"runs": dict(zip(self.labels, parts, strict=True))}


def _with_extras(summary: dict[str, Any], extras: Mapping[str, Extra]) -> dict[str, Any]:
    words = summary["in_words"] | {name: extra.in_words() for name, extra in extras.items()}
    told = {name: dict(extra.as_summary()) for name, extra in extras.items()}
    return summary | told | {"in_words": words}


@dataclass(frozen=True)
class PartialReport:
    """What is told of a run whose matches say nothing, as where policies play themselves alone.

    Attributes:
        why: its matches say nothing.
        extras: by name, what is told all the same.
    """

    why: str
    extras: Mapping[str, Extra]

    def as_summary(self) -> dict[str, Any]:
        """Plain data: what `analysis.json` holds."""
        return _with_extras({"analysis": 1, "in_words": {"payoffs": self.why}}, self.extras)


def analyse_what_there_is(
    sources: Sequence[Source],
    choice: Choice,
    rng: np.random.Generator,
    samples: int,
    seconds: float = 0.0,
    seed: int = 0,
) -> Report | PartialReport:
    """Analyse the payoffs of each source; where matches of a run say nothing, its policies alone.

    Args:
        sources: of one game, with payoffs.
        choice: which policies are looked at.
        rng: what draws of the payoffs are made with.
        samples: so many.
        seconds: of fresh play of each run, for what matches do not tell; 0: none.
        seed: of the games.

    Raises:
        RunDirectoryError: a ledger is damaged.
        UsageError: a file cannot be read, a policy is not there, or two never met and policies
            cannot be asked either.
    """
    try:
        analyses = _analyses_of(sources, choice, rng, samples)
    except UsageError as error:
        run = sources[0].run
        if len(sources) > 1 or run is None or choice != Choice():
            raise
        alone = extras_of(run, SavedPolicies(run).names(), rng, seconds, seed)
        if not alone:
            raise
        return PartialReport(str(error), alone)
    extras = tuple(
        {} if source.run is None else extras_of(source.run, each.payoffs.names, rng, seconds, seed)
        for source, each in zip(sources, analyses, strict=True)
    )
    return Report(tuple(sources), analyses, extras)


def _analyses_of(
    sources: Sequence[Source], choice: Choice, rng: np.random.Generator, samples: int
) -> tuple[Analysis, ...]:
    return tuple(analysis_of(payoffs_of(source, choice), rng, samples) for source in sources)


def print_report(report: Report | PartialReport, console: Console | None = None) -> None:
    """One screen: of one source all of it; of several a line each, and what is common."""
    console = console or Console()
    if isinstance(report, PartialReport):
        for part, words in report.as_summary()["in_words"].items():
            console.print(Text.assemble((f"{part}: ", "bold"), words))
        return
    if len(report.analyses) == 1:
        print_analysis(report.analyses[0], console)
        for name, extra in report.extras[0].items():
            console.print(Text.assemble((f"{name}: ", "bold"), extra.in_words()))
        return
    several = report.several
    common = several.common
    console.print(_table_of_runs(several, common, console.width))
    if several.by_policy:
        _print_policies(several, console)
    for part, words in several.in_words().items():
        console.print(Text.assemble((f"{part}: ", "bold"), words))
    for label, extras in zip(report.labels, report.extras, strict=True):
        for name, extra in extras.items():
            console.print(Text.assemble((f"{label}, {name}: ", "bold"), extra.in_words()))


def _table_of_runs(several: Several, common: Mapping[str, Spread], width: int) -> Table:
    """A line for each run; names are folded, so that numbers are told whole.

    Args:
        several: the runs.
        common: by name, measures of them.
        width: of the terminal, in columns.
    """
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
    for head, cells in (columns | numbers).items():
        if head in widths:
            wide = widths[head]
            table.add_column(Text(head), justify="right", min_width=wide, max_width=wide)
        else:
            part = room - room // 3 if head == "run" else room // 3
            table.add_column(head, overflow="fold", max_width=part)
        columns[head] = cells
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _print_policies(several: Several, console: Console) -> None:
    table = Table(title="payoff against the others of the run, by policy")
    for column in ("policy", "mean", "95%", "deviation between runs"):
        if column == "policy":
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right")
    order = sorted(several.by_policy.items(), key=lambda item: -item[1].mean)
    for name, found in order[:SHOWN]:
        mean, interval = _with_interval(found.mean, *found.interval)
        table.add_row(Text(name), mean, interval, number(found.deviation))
    console.print(table)
    if len(order) > SHOWN:
        console.print(f"and {len(order) - SHOWN} more, in analysis.json")


def _with_interval(value: float, low: float, high: float) -> tuple[str, str]:
    """A value and its interval, with as many digits as the interval needs."""
    told = to_width((value, low, high), high - low)
    return told[0], between(low, high)


def _room_for_names(console: Console) -> int:
    """Columns of the terminal that names may take, so that numbers beside them are told whole."""
    return max(console.width - NUMBERS, 8)


def print_analysis(found: Analysis, console: Console | None = None) -> None:
    """One screen: the ranking with its intervals, the mixture, and a sentence for each part."""
    console = console or Console()
    ranking, mixture = found.ranking, None
    if found.equilibrium is not None:
        mixture = found.equilibrium.answer.mixtures[0]
    table = Table(title=f"{len(ranking.names)} policies, {_matches(found.payoffs)}")
    for column in ("rank", "policy", "payoff", "95%", "rank, 95%", "first", "equilibrium"):
        if column == "policy":
            table.add_column(column, overflow="fold", max_width=_room_for_names(console))
        else:
            table.add_column(column, justify="right")
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
    console.print(table)
    if len(order) > SHOWN:
        console.print(f"and {len(order) - SHOWN} more, in analysis.json")
    for part, words in found.in_words().items():
        console.print(Text.assemble((f"{part}: ", "bold"), words))


def _matches(payoffs: Payoffs) -> str:
    return count_matches(payoffs) or "0 matches"


def write_report(report: Report | PartialReport, directory: Path) -> tuple[Path, ...]:
    """Write `analysis.json` and the pictures; returns where.

    Of several sources each has its pictures in a directory of its own, named by its label.

    Args:
        report: what was found.
        directory: where it belongs.

    Raises:
        RunDirectoryError: the disk is full or not writable.
    """
    if isinstance(report, PartialReport):
        return write_summary(report.as_summary(), directory)
    if len(report.analyses) == 1:
        places = [directory]
    else:
        places = [directory / name for name in _directories(report.sources)]
    written = write_summary(report.as_summary(), directory)
    try:
        for place, found, source in zip(places, report.analyses, report.sources, strict=True):
            place.mkdir(parents=True, exist_ok=True)
            written += draw(found, place, source)
    except OSError as error:
        raise _unwritable(directory, error) from None
    return written


def _directories(sources: Sequence[Source]) -> list[str]:
    """By source a name for the directory of its pictures, which is none of a file's beside it."""
    labels = [source.label.replace("/", "-") for source in sources]
    short = [
        label.removesuffix(source.path.suffix) if source.path.is_file() else label
        for label, source in zip(labels, sources, strict=True)
    ]
    found: list[str] = []
    for each, label in zip(short, labels, strict=True):
        name = base = each if short.count(each) == 1 else label.replace(".", "-")
        number = 1
        while name in found:
            number += 1
            name = f"{base}-{number}"
        found.append(name)
    return found


def write_summary(summary: Mapping[str, Any], directory: Path) -> tuple[Path, ...]:
    """Write `analysis.json`; returns where.

    Raises:
        RunDirectoryError: the disk is full or not writable.
    """
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


def draw(found: Analysis, directory: Path, source: Source | None = None) -> tuple[Path, ...]:
    """Draw the pictures of an analysis into a directory, and a page of them; returns its path.

    Args:
        found: what is drawn.
        directory: where.
        source: what was analysed; None: it has no matches whose ratings could be drawn over time.

    Raises:
        OSError: the disk is full or not writable.
    """
    from remuda.ui.pictures.page import draw_into  # it takes long to load

    learned = source is not None and source.run is not None
    ledger, sides = (source.ledger, source.rated) if source and learned else (None, ())
    return (draw_into(directory, found, ledger, sides),)
