"""Comparisons of runs: groups that differ only by their seed, and their scores."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from remuda.config import by_leaf, load_config
from remuda.errors import ConfigError, RunDirectoryError, UsageError
from remuda.runs.result import Result
from remuda.runs.run_directory import write_file, writing
from remuda.ui.reports.html import render, with_pictures
from remuda.ui.reports.summary import MEAN, PolicySummary, RunSummary, find_runs, read_run
from remuda.ui.terminal.numbers import NOTHING, clock, number, with_error
from remuda.ui.terminal.tables import table_of

ASIDE = {"seed", "trace", "run.directory", "run.live", "run.loggers"}  # may differ in a group
NAMED = 3  # maximum number of settings in the name of a group


def compare(runs: Result | Mapping[str, Any] | Path | str | Iterable[Any]) -> Comparison:
    """Compare finished runs; runs that differ only by their seed form one group.

    Args:
        runs: one run or several: directories, or the results of `train` or `load`. A directory
            that is not a run means all runs in it.

    Raises:
        UsageError: there are no runs, or an argument is not a run.
        RunDirectoryError: a directory is not a run, has not finished, or is damaged.
    """
    paths: dict[Path, None] = {}
    for path in _paths(runs):
        found = [path] if (path / "config.yaml").is_file() else find_runs(path)
        if not found:
            raise RunDirectoryError(f"{path} is not a run directory and contains none")
        paths |= {each.absolute(): None for each in found}
    if not paths:
        raise UsageError("compare: name the runs")
    return Comparison(tuple(_groups([read_run(path) for path in paths])))


def _paths(runs: Any) -> Iterator[Path]:
    if _path_of(runs) is not None:
        runs = (runs,)
    if isinstance(runs, Mapping) or not isinstance(runs, Iterable):
        raise UsageError(f"compare: give a list of runs; this is {runs!r}")
    for run in runs:
        path = _path_of(run)
        if path is None:
            raise UsageError(
                f"compare: a run is a directory or the result of train or load; this is {run!r}"
            )
        yield path


def _path_of(run: Any) -> Path | None:
    if isinstance(run, str | Path):
        return Path(run).expanduser()
    path = run.directory if isinstance(run, Result) else getattr(run, "path", None)
    return path if isinstance(path, Path) else None


def _groups(runs: Sequence[RunSummary]) -> Iterator[RunGroup]:
    groups: dict[str, tuple[Mapping[str, Any], list[RunSummary]]] = {}
    for run in runs:
        settings = _settings(run)
        groups.setdefault(repr(settings), (settings, []))[1].append(run)
    names = group_names([settings for settings, _ in groups.values()])
    for name, (_, members) in zip(names, groups.values(), strict=True):
        yield RunGroup(name, tuple(sorted(members, key=lambda run: run.ending["seed"])))


def _settings(run: RunSummary) -> dict[str, Any]:
    try:
        tree = load_config(run.config).resolved()
    except ConfigError:
        tree = run.config
    return {key: value for key, value in by_leaf(tree).items() if key not in ASIDE}


def group_names(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name groups by the settings in which they differ, or by the game if no setting differs."""
    keys = dict.fromkeys(key for group in groups for key in group)
    differing = [k for k in keys if len({repr(group.get(k)) for group in groups}) > 1]
    if not differing:
        return [str(group.get("game", "")) for group in groups]
    endings = [key.rpartition(".")[2] for key in differing]
    short = [
        end if endings.count(end) == 1 else key for key, end in zip(differing, endings, strict=True)
    ]
    names = []
    for group in groups:
        settings = [
            _setting(name, group[key])
            for name, key in zip(short, differing, strict=True)
            if key in group
        ]
        more = f" and {len(settings) - NAMED} more" if len(settings) > NAMED else ""
        names.append(", ".join(settings[:NAMED]) + more)
    numbered = (f"{name} ({1 + names[:i].count(name)})" for i, name in enumerate(names))
    return [n if names.count(n) == 1 else other for n, other in zip(names, numbered, strict=True)]


def _setting(name: str, value: Any) -> str:
    if name == "game":
        return str(value)
    if isinstance(value, list):
        value = " ".join(map(str, value)) or "none"
    if isinstance(value, float):
        value = f"{value:.12g}"  # 9 * 0.001 becomes 0.009
    return f"{name} {value}"


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print a table of the scores of each group."""
    console = console or Console()
    evaluated = f"{way_words(comparison)} return"
    table = table_of("runs", "policy", "seeds", evaluated, "in training", "turns", texts=2)
    for row in rows_of(comparison):
        table.add_row(*map(Text, row))
    console.print(table)
    console.print("[dim]mean over seeds ± standard error[/]")
    for note in (*without_common(comparison), *same_seeds(comparison)):
        console.print(Text(note))


FEW = 4  # above this many policies, only their mean is shown


@dataclass(frozen=True)
class Score:
    """A mean over runs."""

    mean: float
    standard_error: float | None
    """Standard error of the mean over runs: s / sqrt(n). None: a single run."""
    runs: int

    @staticmethod
    def of(values: Sequence[float]) -> Score | None:
        """Return the mean over runs, from a value for each run; None: no values."""
        if not values:
            return None
        several = len(values) > 1
        error = statistics.stdev(values) / math.sqrt(len(values)) if several else None
        return Score(statistics.fmean(values), error, len(values))

    @property
    def words(self) -> str:
        """The mean and its standard error as text."""
        return with_error(self.mean, self.standard_error)


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only by their seed."""

    name: str
    """The settings in which the group differs from the others."""
    runs: tuple[RunSummary, ...]
    """Sorted by seed."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(run.ending["seed"] for run in self.runs)

    @property
    def way(self) -> str:
        """How policies play in evaluation: `greedy`, or `sampled` (with exploration)."""
        return self.runs[0].way_configured

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that all runs of the group have."""
        first, *others = ([policy.name for policy in run.policies] for run in self.runs)
        return tuple(name for name in first if all(name in other for other in others))

    def evaluated(self, policy: str = MEAN) -> Score | None:
        """Return a policy's mean return in the final evaluation; `mean`: over all policies.

        Runs that were last evaluated in another way (greedy or sampled) than `way` do not count.

        Raises:
            UsageError: no run of the group has such a policy.
        """
        runs = [run for run in self.runs if run.way == self.way]
        return self._score(policy, lambda found: found.evaluated_return, runs)

    def in_training(self, policy: str = MEAN) -> Score | None:
        """Return a policy's mean return in the last tenth of training; `mean`: over all policies.

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
        known_names = dict.fromkeys(each.name for run in self.runs for each in run.policies)
        if policy != MEAN and policy not in known_names:
            raise UsageError(
                f"there is no policy {policy!r} in {self.name}; there are {', '.join(known_names)} "
                f"and {MEAN!r}, the mean of all"
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
    """Groups of runs, in the order of the arguments."""

    groups: tuple[RunGroup, ...]

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """The rows of each group: the policies that all groups have, or the mean over policies."""
        first, *others = (group.policies for group in self.groups)
        if not first or len(first) > FEW or any(set(first) != set(other) for other in others):
            return (MEAN,)
        return first

    def report(self, directory: Path | str) -> Path:
        """Write a page with a table and learning curves; return its path.

        Raises:
            RunDirectoryError: the directory is a run, or cannot be written.
        """
        from remuda.ui.reports.learning_curves import draw_curves  # matplotlib is slow to import

        directory = Path(directory)
        if (directory / "config.yaml").exists():
            raise RunDirectoryError(f"{directory} is a run; name another directory for the report")
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
        write_file(
            directory / "learning.png",
            draw_curves([(g.name, g.runs) for g in self.groups], self.policies),
        )
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
    """Describe how policies play in evaluation: `greedy`, `sampled`, or both."""
    return " or ".join(dict.fromkeys(group.way for group in comparison.groups))


def without_common(comparison: Comparison) -> list[str]:
    """Return a note if the runs share no policy, so that only means are shown."""
    shared = set.intersection(*(set(group.policies) for group in comparison.groups))
    if shared or sum(len(group.runs) for group in comparison.groups) < 2:
        return []
    return [
        "these runs share no policy names: each row is the mean over the policies of a run; "
        "`remuda report RUN` shows them one by one"
    ]


def same_seeds(comparison: Comparison) -> list[str]:
    """Return notes on runs of one group with the same seed."""
    found = []
    for group in comparison.groups:
        twice = sorted({seed for seed in group.seeds if group.seeds.count(seed) > 1})
        if twice:
            seeds = ", ".join(map(str, twice))
            found.append(
                f"{group.name}: several runs have the seed {seeds}; each counts as a separate run"
            )
    return found


def rows_of(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table: the group (in its first row), the policy, the other cells."""
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
                str(len(group.runs)),
                NOTHING if evaluated is None else _counted(evaluated, group) + way,
                NOTHING if training is None else _counted(training, group),
                span,
            )


def _counted(score: Score, group: RunGroup) -> str:
    of = "" if score.runs == len(group.runs) else f" (of {score.runs})"
    return score.words + of


def page_of(comparison: Comparison) -> str:
    """Return the whole page as HTML; its picture is a file in the same directory."""
    from remuda.ui.plots.charts import palette

    games = dict.fromkeys(str(run.ending["game"]) for g in comparison.groups for run in g.runs)
    colours = palette(len(comparison.groups))
    unused = iter(colours)
    return render(
        "comparison.html",
        title=", ".join(games),
        groups=len(comparison.groups),
        way=way_words(comparison),
        returns=[
            (next(unused) if name else "", name, cells) for name, *cells in rows_of(comparison)
        ],
        warnings=same_seeds(comparison),
        runs=[
            (colour, run.files.path, _cells(run, way_words(comparison)))
            for group, colour in zip(comparison.groups, colours, strict=True)
            for run in group.runs
        ],
    )


def _cells(run: RunSummary, common_way: str) -> list[Any]:
    ending = run.ending
    known = [p.evaluated_return for p in run.policies if p.evaluated_return is not None]
    way = f", {run.way}" if run.way != common_way else ""
    evaluated = number(sum(known) / len(known)) + way if known else NOTHING
    turns, seconds = f"{ending['turns']:,}", clock(ending["seconds"])
    return [ending["seed"], turns, seconds, evaluated, ending["ended"]]
