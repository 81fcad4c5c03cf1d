"""Tables in the terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text


def table_of(
    *headings: str | Text, texts: int = 1, wrapped: tuple[str, ...] = (), **first: Any
) -> Table:
    """Return an empty table whose first `texts` columns hold texts, the others numbers.

    Args:
        headings: of the columns.
        texts: columns that are aligned left and folded if they are too wide.
        wrapped: headings of other columns that may be broken into lines.
        first: settings of the first column, as for `Table.add_column`.
    """
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
    table.add_column(headings[0], **{"style": "bold", "overflow": "fold"} | first)
    for place, heading in enumerate(headings[1:], 1):
        if place < texts:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=heading not in wrapped)
    return table


def open_table(*headings: str, texts: tuple[str, ...]) -> Table:
    """Return an empty table without lines; columns named in `texts` are aligned left."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for heading in headings:
        is_text = heading in texts
        table.add_column(heading, justify="left" if is_text else "right", overflow="fold")
    return table
