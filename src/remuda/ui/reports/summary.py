"""Summaries of runs, read from their directories."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.config import Config, read_config, read_tree
from remuda.coordinator.status import read_status
from remuda.errors import RemudaError, RunDirectoryError
from remuda.evaluation.results import WAYS, way_of
from remuda.population.run_spec import return_of
from remuda.runs.metrics import MemberRecord, Record
from remuda.runs.result import MEASURED
from remuda.runs.run_directory import EXPLOIT_TARGET, PSRO_RECORD, RunDirectory
from remuda.ui.terminal.numbers import NOTHING, number, with_error

MEAN = "mean"  # the name of the mean over all policies
END = 0.1  # the training return is averaged over this last share of the turns


@dataclass(frozen=True)
class PolicySummary:
    """The results of one policy. None: not measured."""

    name: str
    evaluated_return: float | None = None  # mean over the episodes of the evaluation
    standard_error: float | None = None
    training_return: float | None = None  # mean over the last tenth of the turns, with exploration
    episodes: int = 0
    updates: int = 0
    version: int = 0
    staleness: float | None = None  # mean over all updates
    replay_ratio: float | None = None
    member: MemberRecord | None = None  # the policy's record in the population
    scripted: str = ""  # the scripted policy of this seat (`env.scripted`); empty: none

    @property
    def title(self) -> str:
        return f"{self.name} ({self.scripted})" if self.scripted else self.name

    @property
    def evaluated(self) -> str:
        return with_error(self.evaluated_return, self.standard_error)


@dataclass(frozen=True)
class EpisodeMetric:
    """One of the environment's episode metrics. None: not measured."""

    name: str
    evaluated: float | None  # mean over the episodes of the evaluation
    standard_error: float | None
    training: float | None  # mean over the last tenth of training, with exploration

    @property
    def words(self) -> str:
        return self.name.replace("_", " ")

    @property
    def evaluated_words(self) -> str:
        return with_error(self.evaluated, self.standard_error)


@dataclass(frozen=True)
class RunSummary:
    """The results of a run."""

    files: RunDirectory
    config: dict[str, Any]  # the content of `config.yaml`
    ending: dict[str, Any]  # the content of `summary.json`
    records: tuple[Record, ...]  # the content of `metrics.jsonl`
    policies: tuple[PolicySummary, ...]
    episode_metrics: tuple[EpisodeMetric, ...] = ()
    damaged: int = 0  # lines of `metrics.jsonl` that could not be read

    @property
    def agents(self) -> tuple[PolicySummary, ...]:
        """The returns of agents that share policies; empty if the run did not record them."""
        ending = return_of("")
        return tuple(
            PolicySummary(
                metric.name.removesuffix(ending),
                metric.evaluated,
                metric.standard_error,
                metric.training,
            )
            for metric in self.episode_metrics
            if metric.name.endswith(ending)
        )

    def named(self, name: str) -> list[PolicySummary]:
        """Return the policy of this name, or else the agent; all policies for `mean`."""
        if name == MEAN:
            return [*self.policies]
        found = [each for each in self.policies if each.name == name]
        return found or [each for each in self.agents if each.name == name]

    @property
    def way(self) -> str:
        """How policies played in the evaluation: `greedy`, or `sampled` (with exploration)."""
        evaluation = self.ending.get("evaluation")
        return way_of(evaluation) if evaluation else self.way_configured

    @property
    def way_configured(self) -> str:
        """How the configuration evaluates policies; an older evaluation may differ."""
        return WAYS[bool((self.config.get("run") or {}).get("evaluate_sampled"))]


def read_run(path: Path) -> RunSummary:
    """Read the results of a run; raise a `RunDirectoryError` if files are missing or damaged."""
    files = RunDirectory.open(path)
    ending, config = files.read_summary(), read_config(files.config)
    damaged: list[int] = []
    records = files.read_metrics(damaged)
    return RunSummary(
        files,
        config,
        ending,
        records,
        tuple(_policies(ending, records, (config.get("env") or {}).get("scripted") or {})),
        tuple(_episode_metrics(ending, records)),
        len(damaged),
    )


def _episode_metrics(ending: dict[str, Any], records: Sequence[Record]) -> Iterator[EpisodeMetric]:
    evaluation = ending.get("evaluation") or {}
    evaluated = evaluation.get("episode_metrics", {})
    agents = {return_of(name): found for name, found in evaluation.get("agents", {}).items()}
    trained = records[-1].episode_metrics if records else {}
    for name in trained or evaluated:
        begin = (1 - END) * records[-1].turns if records else 0
        at_end = [r.episode_metrics.get(name) for r in records if r.turns >= begin]
        training = weighted_mean([(value, 1) for value in at_end if value is not None])
        yield EpisodeMetric(name, *_measured(evaluated.get(name) or agents.get(name, {})), training)


def _policies(
    ending: dict[str, Any], records: Sequence[Record], scripted: Mapping[str, str]
) -> Iterator[PolicySummary]:
    evaluation = ending.get("evaluation") or {}
    evaluated = evaluation.get("policies") or evaluation.get("agents", {})
    trained = records[-1].playing if records else {}
    members = records[-1].members if records else {}
    absent = [name for name in evaluation.get("policies", {}) if name not in trained]
    # Policies that are absent at the end keep their initial order.
    order = {name: at for at, name in enumerate(records[0].playing if records else ())}
    listed = sorted([*trained, *absent], key=lambda name: order.get(name, len(order)))
    for name in listed or evaluated:
        measured = _measured(evaluated.get(name, {}))
        if name not in trained:
            yield PolicySummary(name, *measured)
            continue
        last = trained[name]
        begin = (1 - END) * records[-1].turns
        at_end = [(x, n) for turns, x, n in returns(records, name) if turns >= begin]
        staleness = _intervals(records, name, "staleness", "updates")
        yield PolicySummary(
            name,
            *measured,
            weighted_mean(at_end),
            last.episodes,
            last.updates,
            last.version,
            weighted_mean([(x, n) for _, x, n in staleness]),
            last.replay_ratio,
            members.get(name),
            # In a population, a scripted policy is a member instead.
            str(scripted.get(name, "")) if not members else "",
        )


def returns(records: Sequence[Record], policy: str) -> Iterator[tuple[int, float, int]]:
    """Yield turns, mean return and number of episodes of each interval with finished episodes.

    Without a policy of this name, yield the recorded returns of the agent, each with weight 1.
    """
    yield from _intervals(records, policy, "mean_return", "episodes")
    if not any(policy in record.policies for record in records):
        for record in records:
            value = record.episode_metrics.get(return_of(policy))
            if value is not None:
                yield record.turns, value, 1


def _intervals(
    records: Sequence[Record], policy: str, value: str, count: str
) -> Iterator[tuple[int, float, int]]:
    """Yield turns, the value, and the increase of `count` for each interval with a value."""
    before = 0
    for record in records:
        numbers = record.policies.get(policy)
        if numbers is None:
            continue
        if getattr(numbers, value) is not None:
            yield record.turns, getattr(numbers, value), max(getattr(numbers, count) - before, 1)
        before = getattr(numbers, count)


def weighted_mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the mean of values from (value, weight) pairs; None: no pairs."""
    if not pairs:
        return None
    return sum(x * weight for x, weight in pairs) / sum(weight for _, weight in pairs)


def _measured(found: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return a mean and its standard error; None if it is unknown or not finite."""
    mean, error = (math.nan if found.get(key) is None else found[key] for key in MEASURED)
    return mean if math.isfinite(mean) else None, error if math.isfinite(error) else None


DEPTH = 3  # levels of directories that are searched for runs
BESIDE = 71
"""Characters of all columns except the path. A narrower terminal leaves out the game, which most
paths contain."""
LONGEST = 18  # maximum characters shown of a game's name
TRACES = ("metrics.jsonl", "checkpoints", "summary.json", "status.json")  # a run has some of these


@dataclass(frozen=True)
class FoundRun:
    """A short summary of a run. None: not known."""

    path: Path
    game: str = NOTHING
    last: float | None = None  # the time of the last activity (Unix time)
    turns: int | None = None
    state: str = ""  # how the run ended, `is running`, or `cloned` (`remuda.imitate`)
    best: float | None = None  # best mean return over the agents, of a checkpoint or at the end
    damaged: str = ""  # the files that could not be read, and why

    def as_summary(self) -> dict[str, Any]:
        return {**vars(self), "path": str(self.path)}


def find_runs(base: Path, depth: int = DEPTH) -> list[Path]:
    """Return the run directories in a directory, including itself, sorted by path.

    The runs that `remuda exploit` and `remuda psro` train are left out, unless `base` is of them.
    """
    if (base / "config.yaml").is_file() or any((base / name).exists() for name in TRACES):
        return [base]
    if depth == 0 or (
        depth < DEPTH and any((base / name).exists() for name in (EXPLOIT_TARGET, PSRO_RECORD))
    ):
        return []
    try:
        inside = sorted(entry.path for entry in os.scandir(base) if entry.is_dir())
    except OSError:
        return []
    return [found for path in inside for found in find_runs(Path(path), depth - 1)]


def list_runs(base: Path) -> list[FoundRun]:
    """Return the runs in a directory, the most recently active last."""
    if not base.is_dir():
        raise RunDirectoryError(f"there is no directory {base}; name the directory of the runs")
    return sorted(map(summarise, find_runs(base)), key=lambda run: (run.last or 0.0, str(run.path)))


def summarise(path: Path) -> FoundRun:
    """Return a short summary of a run from its undamaged files."""
    files, faults, found = RunDirectory(path), list[str](), dict[str, Any]()
    with suppress(OSError):
        found["last"] = path.stat().st_mtime
    running = files.is_running()
    found["state"] = "is running" if running else "did not end in order"
    if not files.status.exists() and not files.summary.exists() and not running:
        found["state"] = "cloned" if files.imitation.exists() else "did not start"
    for read in (_by_config, _by_status, _by_summary):
        try:
            found |= read(files, running)
        except (RemudaError, OSError, UnicodeDecodeError) as error:
            words = " ".join(str(error).split()) or type(error).__name__
            faults.append(words.replace(f"{path}{os.sep}", ""))  # it is printed next to the error
    measured = found.pop("measured", None)
    best = _best_of(measured, files.checkpoints.best())
    return FoundRun(path, best=best, damaged="; ".join(faults), **found)


def _best_of(measured: Mapping[str, Any] | None, best: Mapping[str, Any] | None) -> float | None:
    """Return the better of the last evaluation and the best checkpoint, if comparable."""
    agents = (measured or {}).get("agents", {}).values()
    means = [each["mean"] for each in agents if each.get("episodes") != 0]
    found = [] if best is None else [float(best["mean_return"])]
    if means and None not in means:  # None: a return was not finite
        found = [*(found if way_of(best) == way_of(measured) else ()), sum(means) / len(means)]
    return max(filter(math.isfinite, found), default=None)


def _by_config(files: RunDirectory, _running: bool) -> dict[str, Any]:
    if not files.config.exists():
        raise RunDirectoryError("it has no config.yaml")
    tree = read_tree(files.config)
    if not tree:
        raise RunDirectoryError(f"{files.config} is damaged: it is empty")
    game = tree.get("game", Config.model_fields["game"].default)
    if not isinstance(game, str):
        raise RunDirectoryError(f"{files.config} is damaged: its game is {game!r}, not a name")
    return {"game": game}


def _by_status(files: RunDirectory, running: bool) -> dict[str, Any]:
    if not files.status.exists():
        return {}
    status = read_status(files.status)
    found: dict[str, Any] = {"last": status["time"], "turns": status["turns"]}
    if status["ended"] and not running:
        found["state"] = status["ended"]
    return found


def _by_summary(files: RunDirectory, running: bool) -> dict[str, Any]:
    """Read the summary; ignore it if the run is running, since an earlier session wrote it."""
    if not files.summary.exists() or running:
        return {}
    summary = files.read_summary()
    found: dict[str, Any] = {"turns": summary["turns"], "state": summary["ended"]}
    return found | {"measured": summary["evaluation"]}


def print_runs(base: Path, runs: Sequence[FoundRun]) -> None:
    """Print a table of runs, then a line for each damaged run."""
    console = Console()
    if not runs:
        console.print(Text(f"there is no run in {base}"))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    longest = max(len(_short(run.path, base)) for run in runs)
    narrowest = min(longest, console.width * 3 // 8)
    wide = console.width >= narrowest + BESIDE
    table.add_column("path", overflow="fold", min_width=narrowest)
    if wide:
        table.add_column("game", style="bold", no_wrap=True, max_width=LONGEST)
    for heading in ("last active", "turns", "best return"):
        table.add_column(heading, justify="right", no_wrap=True)
    ended = None if console.width >= 140 else 11  # otherwise rich would shorten the paths
    table.add_column("ended", overflow="fold", min_width=8, max_width=ended)
    for run in runs:
        style = "red" if run.damaged else ""
        table.add_row(
            Text(_short(run.path, base)),
            *([Text(run.game)] if wide else []),
            NOTHING if run.last is None else _when(run.last),
            NOTHING if run.turns is None else f"{run.turns:,}",
            number(run.best),
            Text("damaged" if run.damaged else run.state, style),
        )
    console.print(Text(f"runs in {base}"))
    console.print(table)
    for run in runs:
        if run.damaged:
            console.print(Text(f"{run.path} is damaged: {run.damaged}", "red"))


def _short(path: Path, base: Path) -> str:
    return str(path) if path == base else str(path.relative_to(base))


def _when(seconds: float) -> str:
    when = time.localtime(seconds)
    same_year = when.tm_year == time.localtime().tm_year
    return time.strftime("%d %b %H:%M" if same_year else "%d %b %Y", when)
