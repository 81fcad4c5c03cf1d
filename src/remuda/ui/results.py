"""The results of a run in the terminal: tables, remarks, and the paths of its files."""

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
"""A heading, and the cell of a policy."""

COLUMNS: tuple[Column, ...] = (
    ("in training", lambda p: number(p.training_return)),
    ("episodes", lambda p: f"{p.episodes:,}"),
    ("updates", lambda p: f"{p.updates:,}"),
    ("version", lambda p: f"{p.version:,}"),
    ("staleness", lambda p: number(p.staleness)),
    ("replay ratio", lambda p: number(p.replay_ratio)),
)
STANDING: tuple[Column, ...] = (
    ("rating", lambda p: p.rating),
    ("wins", lambda p: percent(p.member.win_rate if p.member else None)),
    ("games", lambda p: f"{p.member.games:,}" if p.member else NOTHING),
)
"""More columns of a population."""
LEARNED = ("updates", "version", "staleness", "replay ratio")
"""Columns that are empty for scripted policies."""
LEFT_OUT = ("version", "episodes", "games", "staleness", "updates", "replay ratio", "wins")
"""Columns that a narrow terminal has no room for, the least important first."""
NAME = 24
"""Characters of a policy's name that are shown."""


def columns_of(summary: RunSummary) -> tuple[Column, ...]:
    """Return the columns of the table of policies."""
    evaluated: Column = (f"{summary.way} return", lambda p: p.evaluated)
    in_training, *others = COLUMNS
    if not any(policy.member for policy in summary.policies):
        return (evaluated, *COLUMNS)
    others = [column for column in others if column[0] != "episodes"]
    return (evaluated, in_training, *STANDING, *others)


def cells_of(policy: PolicySummary, columns: tuple[Column, ...]) -> Iterator[str]:
    """Yield the cells of a policy's row."""
    for heading, cell in columns:
        yield NOTHING if policy.scripted and heading in LEARNED else cell(policy)


def print_files(run: Path, console: Console | None = None) -> None:
    """Print the paths of the report, the picture and the weights of a run."""
    from rich.console import Console
    from rich.text import Text

    console, files = console or Console(), RunDirectory(run)
    paths = {
        "report": files.path / "report.html",
        "picture": files.recording,
        "weights": files.weights,
    }
    for name, path in paths.items():
        if path.exists():
            console.print(Text.assemble((f"{name:<9}", "dim"), str(path)), soft_wrap=True)


def print_results(run: Path, console: Console | None = None) -> None:
    """Print how a run ended, a table of its policies, and remarks."""
    from rich.console import Console
    from rich.text import Text

    from remuda.ui.tables import table_of

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
    console.print(_fitting_table(summary, console))
    console.print()
    if summary.records and summary.records[-1].members:
        console.print(Text(population_words(summary.records[-1]), "dim"))
        console.print()
    if summary.episode_metrics:
        table = table_of("of an episode", summary.way, "in training")
        for metric in summary.episode_metrics:
            table.add_row(metric.words, metric.evaluated_words, number(metric.training))
        console.print(table)
        console.print()
    notes = remarks(summary)
    for words in notes:
        console.print(Text(words, "yellow"))
    if notes:
        console.print()


def population_words(record: Record) -> str:
    """Return in words how large a population is, and how much it played."""
    fixed = [name for name, member in record.members.items() if not member.learns]
    scripted = sum("@" not in name for name in fixed)  # these have no versions
    frozen, live = record.num_frozen - scripted, record.num_live
    copies = "1 frozen copy" if frozen == 1 else f"{frozen} frozen copies"
    others = f", and {copies} of what they were" if frozen > 0 else ""
    others += f", and {scripted} scripted" if scripted else ""
    policies = "1 policy" if live == 1 else f"{live} policies"
    return f"{record.matches:,} matches of {policies}{others}"


def _fitting_table(summary: RunSummary, console: Console) -> Table:
    """Return a table of the policies with as many columns as fit into the terminal."""
    columns = columns_of(summary)
    name = min(max((len(policy.title) for policy in summary.policies), default=0), NAME)
    for heading in LEFT_OUT:
        if _excess(_policies_table(summary, columns, name), console) <= 0:
            break
        columns = tuple(column for column in columns if column[0] != heading)
    name -= max(_excess(_policies_table(summary, columns, name), console), 0)
    return _policies_table(summary, columns, max(name, 8))


def _excess(table: Table, console: Console) -> int:
    """Return how many characters a table is too wide; negative: it is narrower."""
    wide = console.options.update(max_width=1_000)
    return console.measure(table, options=wide).maximum - console.width


def _policies_table(summary: RunSummary, columns: tuple[Column, ...], name: int) -> Table:
    from rich.text import Text

    from remuda.ui.tables import table_of

    headings = (heading for heading, _ in columns)
    table = table_of("policy", *headings, overflow="ellipsis", no_wrap=True, width=name)
    for policy in summary.policies:
        table.add_row(Text(policy.title), *cells_of(policy, columns))
    return table
