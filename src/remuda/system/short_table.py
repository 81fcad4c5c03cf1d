"""Short tables that summarise a result, as text and as HTML for notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

MOST = 8  # rows; further ones are counted


def short(value: float | None) -> str:
    """Format a number in four digits; `-` if it is unknown."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"


@dataclass(frozen=True)
class ShortTable:
    """A title, and a table. Text and HTML contain `MOST` rows at most by default."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def _lines(self, most: int | None) -> list[str]:
        """Return the notes, with one about rows that are not shown."""
        more = 0 if most is None else len(self.rows) - most
        return [*([f"and {more:,} more"] if more > 0 else []), *self.notes]

    def as_text(self, most: int | None = MOST) -> str:
        """Return the table as lines of text; the first column is left-aligned."""
        cells = [self.headings, *self.rows[:most]] if self.rows else []
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, *lines, *self._lines(most)])

    def as_html(self) -> str:
        """Return the table as HTML."""

        def row(cells: Sequence[str], tag: str) -> str:
            return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)

        body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in self.rows[:MOST])
        table = f"<table><tr>{row(self.headings, 'th')}</tr>{body}</table>" if self.rows else ""
        notes = "".join(f"<p>{escape(line)}</p>" for line in self._lines(MOST))
        return f"<p><b>{escape(self.title)}</b></p>{table}{notes}"


class Summarised:
    """A base class of results that print their `short_table`."""

    def short_table(self) -> ShortTable:
        """Return the summary of the result."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.short_table().as_text()

    def _repr_html_(self) -> str:
        return self.short_table().as_html()
