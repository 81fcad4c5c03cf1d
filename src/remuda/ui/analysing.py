"""What `remuda analyse` shows: one screen, a file and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.analysis.overall import Analysis
from remuda.analysis.overall import analyse as analysis_of
from remuda.analysis.payoff import KNOWN, Payoffs
from remuda.analysis.several import Several
from remuda.analysis.trade_off import TradeOff
from remuda.coordinator.run_directory import write_file
from remuda.errors import RunDirectoryError, UsageError
from remuda.saved import SavedPolicies
from remuda.ui.analysis_extras import extras_of
from remuda.ui.analysis_sources import Choice, Source, payoffs_of
from remuda.ui.numbers import number

SHOWN = 20
"""Lines of the table on the screen."""


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
        labels: of the sources.
        analyses: of the payoffs of each.
        extras: of each, by name, what else is told.
    """

    labels: tuple[str, ...]
    analyses: tuple[Analysis, ...]
    extras: tuple[Mapping[str, Extra], ...]

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
    """Analyse as `analyse_sources` does; where matches of a run say nothing, its policies alone.

    Raises:
        RunDirectoryError: a ledger is damaged.
        UsageError: as `analyse_sources`, and policies cannot be asked either.
    """
    try:
        return analyse_sources(sources, choice, rng, samples, seconds, seed)
    except UsageError as error:
        run = sources[0].run
        if len(sources) > 1 or run is None or choice != Choice():
            raise
        extras = extras_of(run, SavedPolicies(run).names(), rng, seconds, seed)
        if not extras:
            raise
        return PartialReport(str(error), extras)


def analyse_sources(
    sources: Sequence[Source],
    choice: Choice,
    rng: np.random.Generator,
    samples: int,
    seconds: float = 0.0,
    seed: int = 0,
) -> Report:
    """Analyse the payoffs of each source.

    Args:
        sources: of one game, with payoffs.
        choice: which policies are looked at.
        rng: what draws of the payoffs are made with.
        samples: so many.
        seconds: of fresh play of each run, for what matches do not tell; 0: none.
        seed: of the games.

    Raises:
        RunDirectoryError: a ledger is damaged.
        UsageError: a file cannot be read, a policy is not there, or two never met.
    """
    analyses = tuple(analysis_of(payoffs_of(source, choice), rng, samples) for source in sources)
    extras = tuple(
        {} if source.run is None else extras_of(source.run, each.payoffs.names, rng, seconds, seed)
        for source, each in zip(sources, analyses, strict=True)
    )
    return Report(tuple(source.label for source in sources), analyses, extras)


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
    table = Table(title=f"{len(several.labels)} runs of one game")
    table.add_column("run", no_wrap=True)
    table.add_column("matches", justify="right")
    table.add_column("earns the most", no_wrap=True)
    for name in common:
        table.add_column(name, justify="right")
    for place, (label, found) in enumerate(zip(several.labels, several.analyses, strict=True)):
        best = found.ranking.names[int(np.argmin(found.ranking.ranks))]
        told = [number(measure.values[place]) for measure in common.values()]
        table.add_row(Text(label), f"{_matches(found.payoffs):,}", Text(best), *told)
    console.print(table)
    if several.by_policy:
        _print_policies(several, console)
    for part, words in several.in_words().items():
        console.print(Text.assemble((f"{part}: ", "bold"), words))
    for label, extras in zip(report.labels, report.extras, strict=True):
        for name, extra in extras.items():
            console.print(Text.assemble((f"{label}, {name}: ", "bold"), extra.in_words()))


def _print_policies(several: Several, console: Console) -> None:
    table = Table(title="payoff against the others of the run, by policy")
    for column in ("policy", "mean", "95%", "deviation between runs"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    order = sorted(several.by_policy.items(), key=lambda item: -item[1].mean)
    for name, found in order[:SHOWN]:
        low, high = found.interval
        table.add_row(
            Text(name), number(found.mean), f"{low:.2g} to {high:.2g}", number(found.deviation)
        )
    console.print(table)
    if len(order) > SHOWN:
        console.print(f"and {len(order) - SHOWN} more, in analysis.json")


def print_analysis(found: Analysis, console: Console | None = None) -> None:
    """One screen: the ranking with its intervals, the mixture, and a sentence for each part."""
    console = console or Console()
    ranking, mixture = found.ranking, None
    if found.equilibrium is not None:
        mixture = found.equilibrium.answer.mixtures[0]
    table = Table(title=f"{len(ranking.names)} policies, {_matches(found.payoffs):,} matches")
    for column in ("rank", "policy", "payoff", "95%", "rank, 95%", "first", "equilibrium"):
        justify: Literal["left", "right"] = "left" if column == "policy" else "right"
        table.add_column(column, justify=justify, no_wrap=True)
    order = np.argsort(ranking.ranks, kind="stable")
    for place in order[:SHOWN]:
        low, high = ranking.score_intervals[:, place]
        first, last = ranking.intervals[:, place]
        table.add_row(
            str(ranking.ranks[place]),
            Text(ranking.names[place]),
            f"{ranking.scores[place]:.3g}",
            f"{low:.2g} to {high:.2g}",
            str(first) if first == last else f"{first} to {last}",
            f"{ranking.first[place]:.0%}",
            "" if mixture is None or mixture[place] < 1e-6 else f"{mixture[place]:.1%}",
        )
    console.print(table)
    if len(order) > SHOWN:
        console.print(f"and {len(order) - SHOWN} more, in analysis.json")
    for part, words in found.in_words().items():
        console.print(Text.assemble((f"{part}: ", "bold"), words))


def _matches(payoffs: Payoffs) -> int:
    upper = np.triu(payoffs.counts)
    return int(upper[upper < KNOWN].sum())


def print_part(name: str, words: str, console: Console | None = None) -> None:
    """One part of an analysis, in words."""
    (console or Console()).print(Text.assemble((f"{name}: ", "bold"), words))


def with_part(summary: Mapping[str, Any], part: TradeOff | None) -> dict[str, Any]:
    """What `analysis.json` holds, and what is traded for what."""
    return dict(summary) if part is None else {**summary, "pareto": part.as_summary()}


def write_report(
    report: Report | PartialReport, directory: Path, part: TradeOff | None = None
) -> tuple[Path, ...]:
    """Write `analysis.json` and the pictures; returns where.

    Of several sources each has its pictures in a directory of its own, named by its label.

    Args:
        report: what was found.
        directory: where it belongs.
        part: what is traded for what; None: that was not asked for.

    Raises:
        RunDirectoryError: the disk is full or not writable.
    """
    if isinstance(report, PartialReport):
        return write_summary(with_part(report.as_summary(), part), directory)
    if len(report.analyses) == 1:
        places = {directory: report.analyses[0]}
    else:
        labels = (label.replace("/", "-") for label in report.labels)
        places = dict(zip((directory / label for label in labels), report.analyses, strict=True))
    written = write_summary(with_part(report.as_summary(), part), directory)
    try:
        for place, found in places.items():
            place.mkdir(parents=True, exist_ok=True)
            written += draw(found, place)
    except OSError as error:
        raise _unwritable(directory, error) from None
    return written


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


def draw(found: Analysis, directory: Path) -> tuple[Path, ...]:
    """Draw the pictures of an analysis into a directory; returns where.

    Raises:
        OSError: the disk is full or not writable.
    """
    paths = tuple(directory / f"payoffs.{kind}" for kind in ("png", "svg"))
    draw_payoffs(found, paths)
    return paths


def draw_payoffs(found: Analysis, paths: Sequence[Path]) -> None:
    """Draw the payoffs, ordered by rank, and beside them the ranking and the equilibrium."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    order = np.argsort(found.ranking.ranks, kind="stable")
    names = [found.payoffs.names[place] for place in order]
    count = len(names)
    matrix = found.payoffs.matrix[np.ix_(order, order)]
    errors = found.payoffs.errors[0][np.ix_(order, order)]
    side = float(np.clip(0.42 * count, 3.2, 11.0))
    with mpl.rc_context({"font.size": 9, "svg.fonttype": "none", "axes.spines.top": False}):
        figure = Figure(figsize=(side + 4.6, side + 1.0), layout="constrained")
        grid = figure.subplots(1, 3, width_ratios=[side, 2.0, 1.6], sharey=True)
        heat, scores, mixed = grid
        size = float(np.nanmax(np.abs(matrix))) or 1.0
        image = heat.imshow(matrix, cmap="RdBu", vmin=-size, vmax=size, aspect="auto")
        heat.set_xticks(range(count), names, rotation=90)
        heat.set_yticks(range(count), names)
        heat.set_title("mean payoff of the row against the column")
        if count <= 12:
            for row in range(count):
                for column in range(count):
                    if np.isfinite(matrix[row, column]):
                        dark = abs(matrix[row, column]) > 0.6 * size
                        heat.text(
                            column,
                            row,
                            f"{matrix[row, column]:.2g}\n±{errors[row, column]:.1g}",
                            ha="center",
                            va="center",
                            fontsize=7,
                            color="white" if dark else "black",
                        )
        figure.colorbar(image, ax=heat, shrink=0.7, pad=0.02)
        places = np.arange(count)
        middle = found.ranking.scores[order]
        low, high = found.ranking.score_intervals[:, order]
        spread = np.maximum(np.stack([middle - low, high - middle]), 0.0)
        scores.errorbar(middle, places, xerr=spread, fmt="o", ms=4, color="#30507a", capsize=2)
        scores.axvline(0.0, color="0.8", lw=0.8, zorder=0)
        scores.set_title("mean payoff, 95%")
        if found.equilibrium is not None:
            mass, ends = found.equilibrium.answer.mixtures[0], found.equilibrium.masses[0]
            mixed.barh(places, mass[order], color="#c9803c")
            mixed.hlines(places, ends[1][order], ends[2][order], color="0.3", lw=1)
        mixed.set_title("equilibrium")
        mixed.set_xlim(0.0, 1.0)
        for axes in (scores, mixed):
            axes.spines["right"].set_visible(False)
            axes.tick_params(axis="y", left=False)
        for path in paths:
            figure.savefig(path, dpi=150)
