"""What came of a run, printed at its end: tables, remarks, and where its files are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.coordinator.metrics import Record
from remuda.coordinator.run_directory import RunDirectory
from remuda.ui.numbers import NOTHING, clock, number, percent, rate, restarted, waited
from remuda.ui.remarks import remarks
from remuda.ui.summary import PolicySummary, RunSummary, read_run

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


Column = tuple[str, Callable[[PolicySummary], str]]


COLUMNS: tuple[Column, ...] = (
    ("in training", lambda p: number(p.training_return)),
    ("episodes", lambda p: f"{p.episodes:,}"),
    ("updates", lambda p: f"{p.updates:,}"),
    ("version", lambda p: f"{p.version:,}"),
    ("staleness", lambda p: number(p.staleness)),
    ("replay ratio", lambda p: number(p.replay_ratio)),
)
"""What is shown of each policy beside its name: the heading, and the words."""


STANDING: tuple[Column, ...] = (
    ("rating", lambda p: p.rating),
    ("wins", lambda p: percent(p.member.win_rate if p.member else None)),
    ("games", lambda p: f"{p.member.games:,}" if p.member else NOTHING),
)
"""Likewise, of a population."""


def columns_of(summary: RunSummary) -> tuple[Column, ...]:
    """What there is to tell of each policy."""
    evaluated: Column = (f"{summary.way} return", lambda p: p.evaluated)
    in_training, *others = COLUMNS
    if not any(policy.member for policy in summary.policies):
        return (evaluated, *COLUMNS)
    others = [column for column in others if column[0] != "episodes"]
    return (evaluated, in_training, *STANDING, *others)


LEARNED = ("updates", "version", "staleness", "replay ratio")
"""The columns that are of a learner: there is nothing to tell of who never learns."""


def cells_of(policy: PolicySummary, columns: tuple[Column, ...]) -> Iterator[str]:
    """What each column tells of a policy."""
    for heading, tell in columns:
        yield NOTHING if policy.scripted and heading in LEARNED else tell(policy)


LEFT_OUT = ("version", "episodes", "games", "staleness", "updates", "replay ratio", "wins")
"""Columns that a terminal may be too narrow for, in the order in which they are left out."""
NAME = 24
"""Letters of a policy's name that are shown."""


def print_summary(run: Path, console: Console | None = None) -> None:
    """Print what came of a run, and where its files are.

    Raises:
        RunDirectoryError: the run's files are missing or damaged.
    """
    print_results(run, console)
    print_files(run, console)


def print_files(run: Path, console: Console | None = None) -> None:
    """Print where what a run left behind is."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    for name, path in _files(RunDirectory(run)):
        console.print(Text.assemble((f"{name:<9}", "dim"), str(path)), soft_wrap=True)


def print_results(run: Path, console: Console | None = None) -> None:
    """Print what came of a run: how it ended, a table of its policies, and what to know of them.

    Raises:
        RunDirectoryError: the run's files are missing or damaged.
    """
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    summary = read_run(run)
    ending = summary.ending
    end = f"  {ending['schedule']}, seed {ending['seed']}: {ending['ended']}"
    console.print()
    console.print(Text.assemble((ending["game"], "bold"), end))
    console.print(
        Text(
            f"{ending['turns']:,} turns and {ending['agent_steps']:,} agent-steps "
            f"in {clock(ending['seconds'])}\n"
            f"{rate(ending['agent_steps_per_second'])} agent-steps/s; "
            f"the actor {waited(ending['waits'])}; {restarted(ending.get('restarts', {}))}",
            "dim",
        )
    )
    console.print()
    console.print(_table(summary, console))
    console.print()
    if summary.records and summary.records[-1].members:
        console.print(Text(population_words(summary.records[-1]), "dim"))
        console.print()
    if summary.episode_metrics:
        console.print(_episode_metrics_table(summary))
        console.print()
    for words in remarks(summary):
        console.print(Text(words, "yellow"))
    if remarks(summary):
        console.print()


def population_words(record: Record) -> str:
    """How large a population is, and how much it played."""
    fixed = [name for name, member in record.members.items() if not member.learns]
    scripted = sum("@" not in name for name in fixed)  # these have no versions
    frozen, live = record.num_frozen - scripted, record.num_live
    copies = "1 frozen copy" if frozen == 1 else f"{frozen} frozen copies"
    others = f", and {copies} of what they were" if frozen > 0 else ""
    others += f", and {scripted} scripted" if scripted else ""
    policies = "1 policy" if live == 1 else f"{live} policies"
    return f"{record.matches:,} matches of {policies}{others}"


def _table(summary: RunSummary, console: Console) -> Table:
    """A row for each policy, with as many columns as there is width for."""
    columns = columns_of(summary)
    name = min(max((len(policy.title) for policy in summary.policies), default=0), NAME)
    for heading in LEFT_OUT:
        if _excess(_policies_table(summary, columns, name), console) <= 0:
            break
        columns = tuple(column for column in columns if column[0] != heading)
    name -= max(_excess(_policies_table(summary, columns, name), console), 0)
    return _policies_table(summary, columns, max(name, 8))


def _excess(table: Table, console: Console) -> int:
    """The columns of a terminal that a table is too wide by; negative: it is narrower."""
    wide = console.options.update(max_width=1_000)
    return console.measure(table, options=wide).maximum - console.width


def _policies_table(summary: RunSummary, columns: tuple[Column, ...], name: int) -> Table:
    """A row for each policy, whose names take so many letters."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
    table.add_column("policy", style="bold", overflow="ellipsis", no_wrap=True, width=name)
    for heading, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for policy in summary.policies:
        table.add_row(Text(policy.title), *cells_of(policy, columns))
    return table


def _episode_metrics_table(summary: RunSummary) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
    table.add_column("of an episode", style="bold")
    for heading in (summary.way, "in training"):
        table.add_column(heading, justify="right", no_wrap=True)
    for metric in summary.episode_metrics:
        table.add_row(metric.words, metric.evaluated_words, number(metric.training))
    return table


def _files(files: RunDirectory) -> Iterator[tuple[str, Path]]:
    paths = {
        "report": files.path / "report.html",
        "picture": files.recording,
        "weights": files.weights,
    }
    for name, path in paths.items():
        if path.exists():
            yield name, path
