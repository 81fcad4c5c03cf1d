"""The cross-play matrix of a tournament in the terminal, and its progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from remuda.analysis.payoffs.self_and_cross_play import SelfAndCrossPlay
from remuda.evaluation.tournaments.engine import Tournament
from remuda.evaluation.tournaments.sequential_test import Look, in_words
from remuda.ui.terminal.live import PlayProgress
from remuda.ui.terminal.numbers import decimal
from remuda.ui.terminal.tables import table_of

POOR, GOOD = np.array([120, 60, 60]), np.array([40, 110, 70])  # RGB of smallest and largest mean


class MatchProgress:
    """The progress of a tournament on standard error: a bar in a terminal, or plain lines."""

    def __init__(
        self, game: str, stopped: Callable[[], bool], console: Console | None = None
    ) -> None:
        self.done = self.wanted = 0  # finished and requested matches
        self._game, self._stopped = game, stopped
        self._description = game
        console = console or Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("matches"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(game, total=None, rate="")
        self._plain = PlayProgress(sys.stderr)

    def __enter__(self) -> MatchProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._bar.disable:
            self._bar.stop()
        self._plain.close()

    def __call__(self, done: int, wanted: int) -> None:
        self.done, self.wanted = done, wanted
        if self._bar.disable:
            self._plain(f"tournament of {self._game}", done, wanted)
            return
        task = self._bar.tasks[0]
        rate = f"{task.speed:,.0f}/s" if task.speed else ""
        label = f"{self._game}: finishing matches" if self._stopped() else self._description
        self._bar.update(self._task, completed=done, total=wanted, rate=rate, description=label)

    def look(self, found: Look) -> None:
        """Show the result after a round, and its least certain part."""
        answer = f"{found.words}: {in_words(found.sure)}"
        if self._bar.disable:
            print(
                f"remuda: after {found.matches:,} matches {answer}; least sure: {found.unsure}",
                file=sys.stderr,
                flush=True,
            )
        else:
            self._description = in_words(found.sure)
            self._bar.console.print(
                Text(f"{found.matches:,} matches: {answer}; least sure: {found.unsure}", "dim")
            )


def print_tournament(game: str, found: Tournament, console: Console | None = None) -> None:
    """Print the matrix of mean returns of the row entrant among agents of the column entrant."""
    console = console or Console()
    known = found.means[~np.isnan(found.means)]
    size = float(np.abs(known).max(initial=0.0))
    decimals = 0 if size >= 1000 else 1 if size >= 10 else 2
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    heads, labels, with_errors = _columns(found, decimals, console.width)
    shares = (found.means - low) / (high - low) if high > low else np.full_like(found.means, 0.5)
    errors = found.errors if with_errors else np.full_like(found.errors, np.nan)
    rows = zip(found.means, errors, shares, strict=True)
    cells = [list(map(partial(_cell, decimals), *row)) for row in rows]
    about = f"{game}: mean return of the row's policy when all other agents play the column's"
    if found.line_ups:
        about = f"{game}: mean return of the row's policy in line-ups with the column's"
    for agent, policy in found.scripted.items():
        about += f"; {agent} is {policy} in every match"
    console.print(Text(about))
    for columns in _folded(heads, labels, cells, console.width):
        table = table_of("", *(Text(heads[column]) for column in columns), no_wrap=True)
        for label, row in zip(labels, cells, strict=True):
            table.add_row(Text(label), *(row[column] for column in columns))
        console.print(table)
    count = f"{found.episodes:,} episodes per pair and seat"
    if found.matches is not None and (found.cut or not found.episodes):
        why = f"{found.cut}: " if found.cut else ""
        known_cells = ~np.eye(len(found.matches), dtype=np.bool_) | (found.episodes > 0)
        known_cells &= (found.matches > 0) | ~np.bool_(found.line_ups)
        ends = dict.fromkeys(f"{end(found.matches[known_cells]):,}" for end in (np.min, np.max))
        count = f"{why}{' to '.join(ends)} matches per cell"
    count += "; ± standard error" if with_errors else "; standard errors with --format json"
    console.print(f"[dim]{count}[/]")
    if found.self_and_cross_play is not None:
        console.print(Text(_gap(found.self_and_cross_play, decimals)))
    if found.until is not None:
        console.print(Text(_known(found.until)), soft_wrap=True)
    if found.directory is not None:
        console.print(Text(f"saved in {found.directory}", "dim"), soft_wrap=True)


def _gap(found: SelfAndCrossPlay, decimals: int) -> str:
    own, others, gap = (
        f"{decimal(mean, decimals)}±{decimal(error, decimals)}"
        for mean, error in (found.self_play, found.cross_play, found.gap)
    )
    return f"self-play {own}, cross-play {others}, gap {gap} (± standard error over entrants)"


def _known(look: Look) -> str:
    wanted = f"{100.0 * look.wanted:g}%"
    if look.reached:
        return f"{look.words}: {wanted} sure after {look.matches:,} matches"
    return (
        f"not {wanted} sure after {look.matches:,} matches: {look.words} "
        f"({in_words(look.sure)}); least sure: {look.unsure}"
    )


GAP = 3  # characters between two columns


def _columns(
    found: Tournament, decimals: int, width: int
) -> tuple[Sequence[str], Sequence[str], bool]:
    """Return headings and labels that fit (numbers for long names), and whether errors fit."""
    means = [decimal(mean, decimals) for mean in found.means.flat]
    errors = [f"±{decimal(error, decimals)}" for error in found.errors.flat]
    names = list(found.entrants)
    numbers = [str(number) for number in range(1, len(names) + 1)]
    numbered = [f"{number} {name}" for number, name in zip(numbers, names, strict=True)]
    cell = max(map(len, means))
    both = cell + max(map(len, errors))
    for heads, labels, each in ((names, names, both), (numbers, numbered, both)):
        if _widest(labels) + sum(max(cell_len(head), each) + GAP for head in heads) <= width:
            return heads, labels, True
    longest = max(width - GAP - max(cell, len(numbers[-1])), 8)
    short = [
        name if cell_len(name) <= longest else f"{set_cell_size(name, longest - 1)}…"
        for name in numbered
    ]
    return numbers, short, False


def _widest(words: Sequence[str]) -> int:
    return max(map(cell_len, words))


def _folded(
    heads: Sequence[str], labels: Sequence[str], cells: Sequence[Sequence[Text]], width: int
) -> list[list[int]]:
    free = width - _widest(labels)
    tables: list[list[int]] = []
    left = 0
    for column, head in enumerate(heads):
        needs = GAP + max(cell_len(head), *(len(row[column]) for row in cells))
        if needs > left or not tables:
            tables.append([])
            left = free
        tables[-1].append(column)
        left -= needs
    return tables


def _cell(decimals: int, mean: float, error: float, share: float) -> Text:
    if np.isnan(mean):
        return Text("-", "dim")
    words = decimal(mean, decimals) + ("" if np.isnan(error) else f"±{decimal(error, decimals)}")
    red, green, blue = (POOR + share * (GOOD - POOR)).round().astype(int).tolist()
    return Text(words, f"white on rgb({red},{green},{blue})")
