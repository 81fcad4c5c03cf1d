"""Compare runs; those that differ only by their seed are one group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.config import by_leaf, load_config
from remuda.errors import ConfigError, RunDirectoryError, UsageError
from remuda.result import Result
from remuda.ui.comparison_groups import (
    Comparison,
    RunGroup,
    rows_of,
    same_seeds,
    way_words,
    without_common,
)
from remuda.ui.found_runs import find_runs
from remuda.ui.summary import RunSummary, read_run

if TYPE_CHECKING:
    from rich.console import Console

ASIDE = {"seed", "trace", "run.directory", "run.live", "run.loggers"}
"""Keys in which runs of one group may differ; only the seed changes what they learn."""
NAMED = 3
"""The most settings in the name of a group."""


def compare(runs: Result | Mapping[str, Any] | Path | str | Iterable[Any]) -> Comparison:
    """Compare runs that have ended; those that differ only by their seed are one group.

    Args:
        runs: directories, what `train` or `load` returned, or a single one of these. A directory
            that is no run means all runs in it.

    Raises:
        UsageError: there are none, or one of them is no run.
        RunDirectoryError: one of them is no run, has not ended, or is damaged.
    """
    paths: dict[Path, None] = {}
    for path in map(_path, _listed(runs)):
        found = [path] if (path / "config.yaml").is_file() else find_runs(path)
        if not found:
            raise RunDirectoryError(f"{path} is no run directory, and there is none in it")
        paths |= {one.absolute(): None for one in found}
    if not paths:
        raise UsageError("compare: name the runs")
    return Comparison(tuple(_groups([read_run(path) for path in paths])))


def _listed(runs: Any) -> Iterable[Any]:
    if _path_of(runs) is not None:
        return (runs,)
    if isinstance(runs, Mapping) or not isinstance(runs, Iterable):
        raise UsageError(f"compare: give runs in a list; this is {runs!r}")
    return runs


def _path(run: Any) -> Path:
    path = _path_of(run)
    if path is None:
        raise UsageError(
            "compare: a run is its directory, what train returned or what load opened; this is "
            f"{run!r}"
        )
    return path


def _path_of(run: Any) -> Path | None:
    """Return the directory of a run, a `Result`, or an opened run; None: it is none of these."""
    if isinstance(run, str | Path):
        return Path(run).expanduser()
    path = run.directory if isinstance(run, Result) else getattr(run, "path", None)
    return path if isinstance(path, Path) else None


def _groups(runs: Sequence[RunSummary]) -> Iterator[RunGroup]:
    groups: dict[str, tuple[Mapping[str, Any], list[RunSummary]]] = {}
    for run in runs:
        settings = _settings(run)
        groups.setdefault(repr(settings), (settings, []))[1].append(run)
    names = _names([settings for settings, _ in groups.values()])
    for name, (_, members) in zip(names, groups.values(), strict=True):
        yield RunGroup(name, tuple(sorted(members, key=lambda run: run.ending["seed"])))


def _settings(run: RunSummary) -> dict[str, Any]:
    """Return the settings that runs of one group have in common, by key."""
    try:
        tree = load_config(run.config).resolved()
    except ConfigError:
        tree = run.config
    return {key: value for key, value in by_leaf(tree).items() if key not in ASIDE}


def _names(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return names of groups: the settings in which they differ; of a single one, its game."""
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
        value = f"{value:.12g}"  # 0.009 even if it was computed as 9 * 0.001
    return f"{name} {value}"


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print a table of the scores of each group."""
    from rich.console import Console
    from rich.text import Text

    from remuda.ui.tables import table_of

    console = console or Console()
    evaluated = f"{way_words(comparison)} return"
    table = table_of("runs", "policy", "seeds", evaluated, "in training", "turns", texts=2)
    for group, name, cells in rows_of(comparison):
        table.add_row(Text(group), Text(name), *map(Text, cells))
    console.print(table)
    console.print("[dim]mean over seeds ± its standard error[/]")
    for note in (*without_common(comparison), *same_seeds(comparison)):
        console.print(Text(note))
