"""Tables in the terminal, and the line about a population."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.ui.terminal.numbers import number, percent

NAME = 24  # characters of a name in a row


def table_of(
    *headings: str | Text, texts: int = 1, wrapped: tuple[str, ...] = (), **first: Any
) -> Table:
    """Return an empty table whose first `texts` columns are left-aligned."""
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
    table.add_column(headings[0], **{"style": "bold", "overflow": "fold"} | first)
    for column, heading in enumerate(headings[1:], 1):
        if column < texts:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=heading not in wrapped)
    return table


def open_table(*headings: str, texts: tuple[str, ...]) -> Table:
    """Return an empty table without lines; columns named in `texts` are left-aligned and folded.

    The first column is at most `NAME` characters wide.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for heading in headings:
        is_text = heading in texts
        table.add_column(
            heading,
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=not is_text,
        )
    table.columns[0].max_width = NAME
    return table


def fitting_table(
    build: Callable[[Sequence[str]], Table],
    headings: Sequence[str],
    left_out: Sequence[str],
    console: Console,
) -> Table:
    """Build a table of the columns that fit the console; `left_out` are removed first, in order."""
    for heading in left_out:
        if excess(build(headings), console) <= 0:
            break
        headings = [each for each in headings if each != heading]
    return build(headings)


def excess(table: Table, console: Console) -> int:
    """Return how many characters a table is wider than the console."""
    wide = console.options.update(max_width=1_000)
    return console.measure(table, options=wide).maximum - console.width


def population_line(numbers: Mapping[str, float | None], width: int) -> Text:
    """Format the known numbers of a population that fit into `width` characters."""
    parts: list[tuple[str, str]] = []
    if (mean := numbers.get("fitness_mean")) is not None:
        spread = f" (spread {number(numbers.get('fitness_spread'))})"
        parts.append(("return", number(mean) + spread))
        parts.append(("best", number(numbers.get("fitness_best"))))
    if (support := numbers.get("nash_support")) is not None:
        parts.append(("equilibrium", f"{support:.0f} of {numbers.get('analysed') or 0:.0f}"))
    for name, word, words in (
        ("diversity", "diversity", number),
        ("exploitability", "exploitability", number),
        ("transitive_share", "skill", percent),
    ):
        if (number_ := numbers.get(name)) is not None:
            parts.append((word, words(number_)))
    line = Text()
    for name, value in parts:
        gap = "   " if line.cell_len else ""
        if line.cell_len + len(gap) + len(name) + 1 + len(value) > width:
            break
        line.append(f"{gap}{name} ", "dim")
        line.append(value, "bold")
    return line
