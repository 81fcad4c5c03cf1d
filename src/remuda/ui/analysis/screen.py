"""The result of `remuda analyse`: tables in the terminal, `analysis.json` and pictures."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.analysis.equilibria.uncertain_equilibrium import UncertainEquilibrium
from remuda.analysis.payoffs.payoffs import Payoffs, count_matches
from remuda.analysis.payoffs.returns import known
from remuda.analysis.population_report import Analysis
from remuda.analysis.ranking.rank import RankIntervals
from remuda.analysis.roles_report import RolesAnalysis, analyse_game
from remuda.analysis.several_runs import RunSpread, Several, spread
from remuda.analysis.society.society import Society
from remuda.analysis.structure.population_regret import WithinPopulation
from remuda.errors import UsageError
from remuda.evaluation.results import WAYS
from remuda.runs.run_directory import write_file, writing
from remuda.training.saved.policies import SavedPolicies
from remuda.types import Numbers
from remuda.ui.analysis.extras import extras_of, society_of
from remuda.ui.analysis.sources import AnalysisSource, Choice, game_of
from remuda.ui.terminal.numbers import between, distinct, number, to_width, with_error

SHOWN = 20  # rows of a table in the terminal
RESPONSE = "reply\ngains"  # heading: what the best reply in the population gains


class _Printed:
    """A report that is printed as on the screen."""

    def __repr__(self) -> str:
        console = Console(file=io.StringIO(), width=100)
        print_report(self, console)  # type: ignore[arg-type]
        return console.file.getvalue().rstrip()  # type: ignore[attr-defined, no-any-return]


@dataclass(frozen=True, repr=False)
class Report(_Printed):
    """The analyses of one or more sources of one game, with extra analyses by title."""

    sources: tuple[AnalysisSource, ...]
    analyses: tuple[Analysis | RolesAnalysis, ...]
    extras: tuple[Mapping[str, Any], ...]
    why: str = ""  # if a run has no usable matches (as in self-play): the reason; `extras` remain

    @property
    def several(self) -> Several:
        return Several(tuple(source.label for source in self.sources), self.analyses)

    def as_summary(self) -> dict[str, Any]:
        """Return the content of `analysis.json`."""
        if self.why:
            return _with_extras({"analysis": 1, "in_words": {"payoffs": self.why}}, self.extras[0])
        several = self.several
        parts = map(_with_extras, (found.as_summary() for found in self.analyses), self.extras)
        return _joined(several.labels, list(parts), several.as_summary())


def _with_extras(summary: dict[str, Any], extras: Mapping[str, Any]) -> dict[str, Any]:
    words = summary["in_words"] | {title: extra.in_words() for title, extra in extras.items()}
    parts = {title: dict(extra.as_summary()) for title, extra in extras.items()}
    return summary | parts | {"in_words": words}


def _joined(
    labels: Sequence[str], parts: list[dict[str, Any]], common: dict[str, Any]
) -> dict[str, Any]:
    """Return the summary of a single run, or all summaries and what the runs have in common."""
    return parts[0] if len(parts) == 1 else common | {"runs": dict(zip(labels, parts, strict=True))}


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
        analyses = tuple(analyse_game(game_of(s, choice), rng, samples) for s in sources)
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


def report_on(
    sources: Sequence[AnalysisSource], choice: Choice, samples: int, seconds: float, seed: int
) -> Report | SocietyReport:
    """Analyse matches; or, if each agent keeps one policy, the returns of fresh episodes."""
    rng = np.random.default_rng(seed)
    if sources[0].has_payoffs:
        return analyse_what_there_is(sources, choice, rng, samples, seconds, seed)
    for field in fields(choice):
        if getattr(choice, field.name):
            raise UsageError(
                f"--{field.name} needs matches, and {sources[0].path} has none: each of its agents "
                "has one policy for the whole run"
            )
    return report_societies(sources, rng, seconds, seed)


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
        best = [each.best for each in report.analyses]
        matches = [_matches(found.payoffs) for found in report.analyses]
        columns = {"run": several.labels, "based on": matches, "highest payoff": best}
        columns |= _numbers(several.common)
        _print_table(f"{len(several.labels)} runs of one game", columns, console, None)
        if several.by_policy:
            _print_policies(several, console)
        _print_words(several.in_words(), console)
    _print_extras(several.labels, report.extras, console)


def _print_words(sentences: Mapping[str, str], console: Console) -> None:
    for part, words in sentences.items():
        console.print(Text.assemble((f"{part}: ", "bold"), words))


def _print_extras(
    labels: Sequence[str], extras: Sequence[Mapping[str, Any]], console: Console
) -> None:
    for label, each in zip(labels, extras, strict=True):
        prefix = "" if len(labels) == 1 else f"{label}, "
        _print_words({f"{prefix}{name}": extra.in_words() for name, extra in each.items()}, console)


def _numbers(measures: Mapping[str, RunSpread]) -> dict[str, list[str]]:
    return {name: [number(x) for x in each.values] for name, each in measures.items()}


def _print_policies(several: Several, console: Console) -> None:
    order = sorted(several.by_policy.items(), key=lambda item: -item[1].mean)
    spreads = [found for _, found in order]
    means = [_with_interval(found.mean, *found.interval) for found in spreads]
    columns = {
        "policy": [name for name, _ in order],
        "mean": [mean for mean, _ in means],
        "95%": [interval for _, interval in means],
        "std between runs": [number(found.deviation) for found in spreads],
    }
    _print_table("payoff against the other policies of the run", columns, console)


def print_analysis(found: Analysis | RolesAnalysis, console: Console | None = None) -> None:
    """Print the ranking with intervals, the equilibrium, and a sentence for each part."""
    console = console or Console()
    if isinstance(found, RolesAnalysis):
        for number, each in enumerate(found.roles):
            seats = f", {each.role.seats} seats" if each.role.seats > 1 else ""
            title = f"{each.role.name}: {_policies(each.ranking)}{seats}"
            title += f", {_matches(found.payoffs)}" if not number else ""
            mixture = None
            if found.equilibrium is not None:
                mixture = found.equilibrium.answer.mixtures[number]
            shares = {_solution(found.equilibrium): mixture, "alpha": each.alpha_rank}
            _print_ranking(each.ranking, each.exploitability, title, shares, console)
    else:
        mixture = None if found.equilibrium is None else found.equilibrium.answer.mixtures[0]
        title = f"{_policies(found.ranking)}, {_matches(found.payoffs)}"
        shares = {_solution(found.equilibrium): mixture}
        _print_ranking(found.ranking, found.exploitability, title, shares, console)
    _print_words(found.in_words(), console)


def _solution(found: UncertainEquilibrium | None) -> str:
    """Return the heading of an equilibrium's probabilities."""
    return "CE" if found is not None and found.kind.endswith("correlated") else "Nash"


def _print_ranking(
    ranking: RankIntervals,
    within: WithinPopulation | None,
    title: str,
    shares: Mapping[str, Numbers | None],
    console: Console,
) -> None:
    """Print a row for each policy, best first; `shares`: more columns of probabilities."""
    order = np.argsort(ranking.ranks, kind="stable")
    intervals = np.array([ranking.scores, *ranking.score_intervals]).T[order]
    intervals[np.abs(intervals) < 1e-9 * np.abs(intervals).max()] = 0.0  # rounding errors
    scores = [_with_interval(*each) for each in intervals.tolist()]
    ranks = ranking.intervals[:, order].T
    columns = {
        "rank": [str(rank) for rank in ranking.ranks[order]],
        "policy": [ranking.names[row] for row in order],
        "payoff": [score for score, _ in scores],
        "95%": [interval for _, interval in scores],
        "rank,\n95%": [str(low) if low == high else f"{low} to {high}" for low, high in ranks],
        "P\n(first)": [f"{share:.0%}" for share in ranking.first[order]],
    }
    for heading, mixture in shares.items():
        known = np.zeros(len(order)) if mixture is None else mixture[order]
        columns[heading] = [
            "" if share < 1e-6 else f"{share:.1%}".replace("100.0%", "100%") for share in known
        ]
    if within is not None:
        gains = [within.gains[row] for row in order]
        columns[RESPONSE] = [_with_interval(each.corrected, *each.interval)[0] for each in gains]
    _print_table(title, columns, console)


def _print_table(
    title: str,
    columns: Mapping[str, Sequence[str]],
    console: Console,
    shown: int | None = SHOWN,  # rows; None: all
) -> None:
    """Print a table; long names are folded to leave room for numbers."""
    table = Table(title=title)
    for heading, cells in columns.items():
        if heading in ("policy", "agent", "run", "highest payoff"):
            table.add_column(heading, overflow="fold")
        else:
            longest = max(len(word) for text in (heading, *cells) for word in text.split())
            table.add_column(Text(heading), justify="right", min_width=longest)
    rows = list(zip(*columns.values(), strict=True))
    for row in rows[:shown]:
        table.add_row(*map(Text, row))
    console.print(table)
    if shown is not None and len(rows) > shown:
        console.print(f"and {len(rows) - shown} more, in analysis.json")


def _with_interval(value: float, low: float, high: float) -> tuple[str, str]:
    return to_width((value, low, high), high - low)[0], between(low, high)


def _policies(ranking: RankIntervals) -> str:
    count = len(ranking.names)
    return "1 policy" if count == 1 else f"{count} policies"


def _matches(payoffs: Payoffs) -> str:
    return count_matches(payoffs) or "exact payoffs"


def write_report(report: Report | SocietyReport, directory: Path) -> tuple[Path, ...]:
    """Write `analysis.json` and the pictures; several sources get subdirectories."""
    file = directory / "analysis.json"
    written, drawn = [file], list[tuple[Analysis | RolesAnalysis, AnalysisSource]]()
    if isinstance(report, Report):
        drawn += zip(report.analyses, report.sources, strict=False)
    names = directories([source for _, source in drawn]) if len(drawn) > 1 else [""]
    with writing(f"the analysis into {directory}", "; name another directory with --out"):
        directory.mkdir(parents=True, exist_ok=True)
        write_file(file, json.dumps(report.as_summary(), indent=1, allow_nan=False).encode())
        for name, (found, source) in zip(names, drawn, strict=False):
            from remuda.ui.reports.analysis_page import draw_into  # matplotlib is slow to import

            place = directory / name
            place.mkdir(parents=True, exist_ok=True)
            ledger, sides = (source.ledger, source.seats.rated) if source.run else (None, ())
            written.append(draw_into(place, found, ledger, sides))
    return tuple(written)


def directories(sources: Sequence[AnalysisSource]) -> list[str]:
    """Return a distinct directory name for each source."""
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


@dataclass(frozen=True, repr=False)
class SocietyReport(_Printed):
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
        played = zip(self.societies, self.ways, strict=True)
        summaries = (found.as_summary() | {"play": way} for found, way in played)
        spreads = {name: each.as_summary() for name, each in self.common.items()}
        common = {"analysis": 1, "common": spreads}
        return _joined(self.labels, list(map(_with_extras, summaries, self.extras)), common)


def report_societies(
    sources: Sequence[AnalysisSource], rng: np.random.Generator, seconds: float, seed: int
) -> SocietyReport:
    """Play fresh episodes of each run, and analyse the agents' returns."""
    runs = [source.run for source in sources if source.run is not None]
    found = [society_of(run, rng, seconds, seed) for run in runs]
    return SocietyReport(
        tuple(source.label for source in sources),
        tuple(each for each, _ in found),
        tuple(extras for _, extras in found),
        tuple(WAYS[run.read_config().run.evaluate_sampled] for run in runs),
    )


def print_societies(report: SocietyReport, console: Console | None = None) -> None:
    """Print a row per agent of a single run, or a row per run."""
    console = console or Console()
    if len(report.societies) == 1:
        _print_one(report, console)
        return
    ways = " or ".join(dict.fromkeys(report.ways))
    columns = {"run": report.labels} | {
        name.replace("_", " "): cells for name, cells in _numbers(report.common).items()
    }
    title = f"{len(report.labels)} runs of one game, fresh {ways} episodes"
    _print_table(title, columns, console, None)
    for name, each in report.common.items():
        low, high = each.interval
        mean = to_width((each.mean,), high - low)[0]
        known = f" ({between(low, high)})" if np.isfinite([low, high]).all() else ""
        words = f"{mean} on average over the runs{known}."
        _print_words({name.replace("_", " "): words}, console)
    _print_extras(report.labels, report.extras, console)


def _print_one(report: SocietyReport, console: Console) -> None:
    (found,), (extras,), (way,) = report.societies, report.extras, report.ways
    agents = f"{len(found.agents)} agent{'s' * (len(found.agents) != 1)}"
    means = found.mean_returns
    values = np.nan_to_num([each.value for each in means], nan=-np.inf)  # NaN: never took part
    order = sorted(range(len(found.agents)), key=lambda agent: -values[agent])
    errors = [None if np.isnan(mean.error) else mean.error for mean in means]
    returns = [known(found.returns[:, agent]) for agent in order]
    columns = {
        "agent": [found.agents[agent] for agent in order],
        "mean return": [with_error(means[agent].value, errors[agent]) for agent in order],
        "lowest": [number(each.min(initial=np.inf)) for each in returns],
        "highest": [number(each.max(initial=-np.inf)) for each in returns],
    }
    _print_table(f"{agents}, {len(found.returns):,} {way} episodes", columns, console)
    _print_words(_with_extras({"in_words": found.in_words()}, extras)["in_words"], console)
