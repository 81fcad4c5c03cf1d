"""A tournament as a matrix in the terminal, better cells greener."""

from __future__ import annotations

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.crossplay import Tournament

POOR, GOOD = np.array([120, 60, 60]), np.array([40, 110, 70])
"""Backgrounds of the least and the greatest mean."""


def print_tournament(game: str, found: Tournament, console: Console | None = None) -> None:
    """Print the matrix: rows earn, columns are whom they play among."""
    console = console or Console()
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
    table.add_column("", style="bold", no_wrap=True)
    for name in found.entrants:
        table.add_column(name, justify="right", no_wrap=True)
    size = float(np.abs(found.means).max())
    decimals = 0 if size >= 1000 else 1 if size >= 10 else 2
    least, most = float(found.means.min()), float(found.means.max())
    for row, name in enumerate(found.entrants):
        cells = [
            Text(
                f"{mean:.{decimals}f}±{error:.{decimals}f}",
                f"white on {_shade((mean - least) / (most - least) if most > least else 0.5)}",
            )
            for mean, error in zip(found.means[row], found.errors[row], strict=True)
        ]
        table.add_row(name, *cells)
    console.print(f"{game}: return of an agent of the row, when all others are of the column")
    console.print(table)
    console.print(f"[dim]{found.episodes:,} episodes for each pair and seat; ± standard error[/]")


def _shade(share: float) -> str:
    red, green, blue = (POOR + share * (GOOD - POOR)).round().astype(int).tolist()
    return f"rgb({red},{green},{blue})"
