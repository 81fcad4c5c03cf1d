"""Comparisons of runs: groups that differ only by their seed, and their scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.text import Text

from remuda.analysis.frame import Frame
from remuda.errors import RunDirectoryError, UsageError
from remuda.runs.result import Result
from remuda.runs.run_directory import write_file, writing
from remuda.system.short_table import ShortTable, Summarised, short
from remuda.ui.reports.html import render, with_pictures
from remuda.ui.reports.run_groups import RunGroup, Score, groups_of
from remuda.ui.reports.scores import Cells, marl_eval_data, rliable_scores, score_table
from remuda.ui.reports.summary import MEAN, RunSummary, find_runs, read_run
from remuda.ui.terminal.numbers import NOTHING, between, clock, number
from remuda.ui.terminal.tables import table_of

if TYPE_CHECKING:
    from remuda.ui.plots.drawing import Picture

PICTURES = ("png", "pdf", "svg")  # a report of such a name is the figure alone


def compare(runs: Result | Mapping[str, Any] | Path | str | Iterable[Any]) -> Comparison:
    """Compare finished runs; runs that differ only by their seed form one group.

    Args:
        runs: one run or several: directories, or the results of `train` or `load`. A directory
            that is not a run means all runs in it. A mapping names its groups:
            `{"IPPO": "runs/ippo", "MAPPO": [run, run]}`; the settings name a group of empty name.

    Raises:
        UsageError: there are no runs, an argument is not a run, or a run has two names.
        RunDirectoryError: a directory is not a run, has not finished, or is damaged.
    """
    named = runs if isinstance(runs, Mapping) and _path_of(runs) is None else {"": runs}
    names: dict[Path, str] = {}
    for name, members in named.items():
        if not isinstance(name, str):
            raise UsageError(f"compare: the name of a group is text; this is {name!r}")
        for path in _paths(members):
            found = [path] if (path / "config.yaml").is_file() else find_runs(path)
            if not found:
                raise RunDirectoryError(f"{path} is not a run directory and contains none")
            for each in found:
                other = names.setdefault(each.absolute(), name)
                if other != name:
                    raise UsageError(
                        f"compare: {each} is in two groups, {other!r} and {name!r}; name it once"
                    )
    if not names:
        raise UsageError("compare: name the runs")
    return Comparison(tuple(groups_of([(name, read_run(path)) for path, name in names.items()])))


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


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print a table of the scores of each group."""
    console = console or Console()
    for game in comparison.games:
        if len(comparison.games) > 1:
            console.print(Text(game, "bold"))
        for names, rows in (
            (headings(comparison), rows_of(comparison, game)),
            (INTERVALS, interval_rows(comparison, game)),
        ):
            table = table_of(*names, texts=2, wrapped=("95%",))
            cells = list(rows)
            for row in cells:
                table.add_row(*map(Text, row))
            for column, words in zip(table.columns[:2], zip(*cells, strict=True), strict=False):
                column.min_width = min(max(map(len, words)), NARROWEST)
            if table.row_count:
                console.print(table)
    console.print(f"[dim]{NOTE}[/]")
    for note in notes_on(comparison):
        console.print(Text(note))


NARROWEST = 12  # characters of a folded name
NOTE = "mean over seeds ± standard error; IQM: interquartile mean; 95%: bootstrap interval"
INTERVALS = ("runs", "policy", "mean", "95%", "IQM", "95%")


def headings(comparison: Comparison) -> tuple[str, ...]:
    """Return the headings of the table."""
    evaluated = f"{way_words(comparison)} return"
    return ("runs", "policy", "seeds", evaluated, "in training", "turns")


def notes_on(comparison: Comparison) -> list[str]:
    """Return notes on runs that cannot be compared with others."""
    games = comparison.games
    apart = f"these runs are of {len(games)} games: returns in different games are not comparable"
    return [
        *([apart] if len(games) > 1 else []),
        *without_common(comparison),
        *same_seeds(comparison),
        *few_seeds(comparison),
    ]


FEW = 4  # above this many policies, only their mean is shown


@dataclass(frozen=True, repr=False)
class Comparison(Summarised):
    """Groups of runs, in the order of the arguments."""

    groups: tuple[RunGroup, ...]

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """The rows of each group: the policies that all groups have, or else the agents.

        The mean over policies, if groups share neither, or if there are too many.
        """
        for names in ([g.policies for g in self.groups], [g.agents for g in self.groups]):
            if names[0] and all(set(names[0]) == set(other) for other in names):
                return names[0] if len(names[0]) <= FEW else (MEAN,)
        return (MEAN,)

    @property
    def games(self) -> tuple[str, ...]:
        """The games of the runs."""
        return tuple(dict.fromkeys(group.game for group in self.groups))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The games, with their options if these differ: the columns of `to_rliable`."""
        return Cells(self.groups).tasks

    def scores(self) -> Frame:
        """Return the returns of every run and policy, a row for each.

        Columns: `run`, its directory; `game`; `group`, the group's name; `seed`; `policy`; `kind`;
        `step`, the turns played (steps of each environment copy); and `return`, a mean over
        episodes. `kind` is `training` for each interval of the metrics (with exploration), and
        `greedy` or `sampled` for the final evaluation. `to_rows()` returns dictionaries.
        """
        return score_table(self.groups)

    def to_rliable(self, policy: str = MEAN) -> dict[str, npt.NDArray[np.float64]]:
        """Return the final scores of each method, [runs, tasks], as rliable's functions take them.

        A method is named after the settings in which the runs differ, without the game, its
        options and the run's length; columns are `tasks`. Scores are mean returns in the final
        evaluation and are not normalised.

        Args:
            policy: the policy to score; `mean`: the mean over a run's policies.

        Raises:
            UsageError: a method lacks runs of a task, has different numbers of runs in two tasks
                or two runs with one seed; or a run has no such policy or no evaluation.
        """
        return rliable_scores(Cells(self.groups), policy)

    def to_marl_eval(self, policy: str = MEAN, points: int = 50) -> dict[str, Any]:
        """Return scores as marl-eval reads them from JSON.

        The keys are environment (the library, or `remuda`), task, method and `seed_N`; then
        `step_0` to `step_{points - 1}`, each with `step_count` (turns) and `return` (training
        return, interpolated), and `absolute_metrics` with the `return` of the final evaluation.
        All runs of a task have the same step counts, which end with the shortest run.

        Args:
            policy: the policy to score; `mean`: the mean over a run's policies.
            points: the number of steps of each curve.

        Raises:
            UsageError: two runs of a method have one seed; a run has no such policy, no training
                return or no evaluation; or `points` is not a positive integer.
        """
        return marl_eval_data(Cells(self.groups), policy, points)

    def report(self, path: Path | str) -> Path:
        """Write a page with a table, and learning curves of each game; return its path.

        Args:
            path: the directory for `report.html`, and for the curves as PNG and PDF; or the name
                of a file that ends in .png, .pdf or .svg, which gets the curves alone.

        Raises:
            RunDirectoryError: the directory is a run, or cannot be written.
            UsageError: the runs of a file are of several games.
        """
        path = Path(path)
        kind = path.suffix.lower().removeprefix(".")
        if kind in PICTURES:
            if len(self.games) > 1:
                raise UsageError(
                    f"compare: {path} can show one game, and these runs are of "
                    f"{', '.join(self.games)}; name a directory, or only runs of one game"
                )
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, self._picture(self.games[0]).encoded(kind))
            return path
        if (path / "config.yaml").exists():
            raise RunDirectoryError(f"{path} is a run; name another directory for the report")
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        for game, name in pictures_of(self).items():
            picture = self._picture(game)
            for kind in ("png", "pdf"):
                write_file((path / name).with_suffix(f".{kind}"), picture.encoded(kind))
        page = path / "report.html"
        write_file(page, with_pictures(page_of(self), path).encode())
        return page

    def _picture(self, game: str) -> Picture:
        """Draw the learning curves of a game."""
        from remuda.ui.reports.learning_curves import draw_curves  # matplotlib is slow to import

        coloured = zip(self.groups, colours_of(self), strict=True)
        groups, colours = zip(*((g, c) for g, c in coloured if g.game == game), strict=True)
        return draw_curves([(g.name, g.runs) for g in groups], self.policies, colours)

    def short_table(self) -> ShortTable:
        """Return the final returns of each group, with bootstrap intervals."""
        rows = []
        for group in self.groups:
            for name in self.policies:
                score = group.evaluated(name)
                interval = None if score is None else score.interval()
                shown = "-" if interval is None else between(*interval)
                numbers = (short(None if score is None else score.mean), shown)
                rows.append((group.name, name, f"{len(group.runs)}", *numbers))
        count, games = sum(len(group.runs) for group in self.groups), ", ".join(self.games)
        title = f"Comparison: {count} runs of {games}, {way_words(self)} return"
        headings = ("runs", "policy", "seeds", "mean", "95%")
        return ShortTable(title, headings, rows, notes_on(self))

    def as_summary(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {"groups": [_summary(group, self.policies) for group in self.groups]}


def _summary(group: RunGroup, policies: Sequence[str]) -> dict[str, Any]:
    def plain(score: Score | None) -> dict[str, Any] | None:
        return None if score is None else score.as_summary()

    return {
        "name": group.name,
        "game": group.game,
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
    shared |= set(comparison.policies) - {MEAN}
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


ENOUGH = 5  # seeds from which on a bootstrap interval says more than the range


def few_seeds(comparison: Comparison) -> list[str]:
    """Return a note if an interval is computed from few seeds."""
    if not any(1 < len(group.runs) < ENOUGH for group in comparison.groups):
        return []
    return [
        f"with fewer than {ENOUGH} seeds a 95% bootstrap interval is hardly more than the range of "
        f"the seeds: train at least {ENOUGH}, as with `--seeds {ENOUGH}`"
    ]


def rows_of(comparison: Comparison, game: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a game's table: the group (in its first row), the policy, the scores."""
    for group in comparison.groups:
        if group.game != game:
            continue
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


def interval_rows(comparison: Comparison, game: str) -> Iterator[tuple[str, ...]]:
    """Yield the final returns of a game with their intervals, for groups of several runs."""
    for group in comparison.groups:
        found = {name: group.evaluated(name) for name in comparison.policies}
        scores = {n: s for n, s in found.items() if s is not None and s.runs > 1}
        for i, (name, score) in enumerate(scores.items() if group.game == game else ()):
            mean, iqm = (
                between(*(score.interval(iqm=each) or (math.nan, math.nan)))
                for each in (False, True)
            )
            yield (group.name if i == 0 else "", name, number(score.mean), mean,
                   number(score.iqm), iqm)  # fmt: skip


def _counted(score: Score, group: RunGroup) -> str:
    of = "" if score.runs == len(group.runs) else f" (of {score.runs})"
    return score.words + of


def colours_of(comparison: Comparison) -> list[str]:
    """Return the colour of each group."""
    from remuda.ui.plots.charts import palette  # matplotlib is slow to import

    return palette(len(comparison.groups))


def pictures_of(comparison: Comparison) -> dict[str, str]:
    """Return the file name of the learning curves of each game."""
    games = comparison.games
    if len(games) == 1:
        return {games[0]: "learning.png"}
    return {game: f"learning-{number}.png" for number, game in enumerate(games, 1)}


def page_of(comparison: Comparison) -> str:
    """Return the whole page as HTML; its pictures are files in the same directory."""
    colours = colours_of(comparison)
    colour_of = {group.name: colours[i] for i, group in enumerate(comparison.groups)}

    def coloured(rows: Iterator[tuple[str, ...]]) -> list[tuple[str, str, list[str]]]:
        return [(colour_of.get(name, ""), name, cells) for name, *cells in rows]

    return render(
        "comparison.html",
        title=", ".join(comparison.games),
        headings=headings(comparison),
        intervals=INTERVALS,
        note=NOTE,
        groups=len(comparison.groups),
        way=way_words(comparison),
        tables=[
            (
                game if len(comparison.games) > 1 else "",
                coloured(rows_of(comparison, game)),
                coloured(interval_rows(comparison, game)),
            )
            for game in comparison.games
        ],
        pictures=pictures_of(comparison),
        warnings=notes_on(comparison),
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
