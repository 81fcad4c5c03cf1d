"""The picture of ratings over the matches of a run: its learning curve against its own past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from remuda.analysis.from_ledger import LedgerReader
from remuda.analysis.ratings import RatingHistory, ledger_history
from remuda.checkpoint.opening import open_stream
from remuda.errors import RunDirectoryError
from remuda.population.ledger import FREEZE
from remuda.population.records import PolicyRef
from remuda.types import Integers
from remuda.ui.pictures.drawing import (
    KINDS,
    QUIET,
    Picture,
    add_panel,
    count_along_x,
    mark_points,
    new_figure,
    shorten,
    widest,
)

MOST_MATCHES = 5_000_000
"""Matches that are rated one after another; more would take too long."""
BANDS = 3
"""Policies up to which intervals are drawn as bands."""
WHISKERS = 30
"""Frozen copies up to which intervals are drawn."""
COPIES = 150
"""The most frozen copies that are drawn, evenly over the run."""


@dataclass(frozen=True)
class Ratings:
    """Ratings over the matches of a run."""

    history: RatingHistory
    """The ratings of live policies and their frozen copies."""
    frozen: dict[str, int]
    """The number of matches played before each freeze, by frozen copy."""


def read_ratings(ledger: Path, sides: Sequence[int] = ()) -> Ratings | str:
    """Rate the matches of a ledger in their order, or return why not; seats play for these sides.

    Raises:
        RunDirectoryError: there is no ledger, or it is damaged.
        UsageError: no match of it is over.
    """
    reader = LedgerReader.open(ledger)
    records = (reader.end - reader.begin) // reader.kind.itemsize
    if records > MOST_MATCHES:
        return (
            f"There are {records:,} matches, and up to {MOST_MATCHES:,} are rated one after "
            "another; see `remuda.analysis.ratings.ledger_history`."
        )
    return Ratings(ledger_history(ledger, sides=sides), _frozen_at(reader, records))


def _frozen_at(reader: LedgerReader, count: int) -> dict[str, int]:
    """Return by frozen copy the number of matches played before."""
    with open_stream(reader.path) as file:
        records = np.memmap(file, reader.kind, "r", offset=reader.begin, shape=(count,))
    found = records[records["kind"] == FREEZE]
    policies, versions = found["policy"][:, 0], found["version"][:, 0]
    if policies.size and not (policies.min() >= 0 and policies.max() < len(reader.policies)):
        raise RunDirectoryError(f"{reader.path} is damaged: it names policies that do not exist")
    return {
        str(PolicyRef(reader.policies[policy], int(version))): int(number)
        for policy, version, number in zip(policies, versions, found["number"], strict=True)
    }


def ratings_picture(found: Ratings | str) -> Picture:
    """Draw ratings over matches: live policies as lines, frozen copies as points."""
    name, heading = "ratings", "Ratings over time"
    if isinstance(found, str):
        return Picture(name, heading, found)
    history = found.history
    copies = np.array(["@" in each for each in history.names])
    live = np.flatnonzero(~copies)
    if not len(live):
        return Picture(name, heading, "No policy learned in these matches: ratings do not change.")
    if len(history.matches) < 2 or not history.played[-1].any():
        words = "No policy met another one often enough: a rating compares policies that met."
        return Picture(name, heading, words)
    best = live[np.argsort(-history.ratings[-1, live], kind="stable")]
    colours = dict(zip(best.tolist(), KINDS, strict=False))
    names = shorten([history.names[place] for place in colours])
    figure = new_figure(0.65 + 5.4 + 0.55 + widest(names, 8.0), 0.38 + 3.2 + 0.55)
    axes = add_panel(figure, 0.65, 0.38, 5.4, 3.2)
    # The rating of a policy is unknown before its first match with another.
    known = np.where(history.played > 0, history.ratings, np.nan)
    bands = np.where(history.played > 0, history.intervals(), np.nan)
    for place in best[len(colours) :]:
        axes.plot(history.matches, known[:, place], color=QUIET, lw=0.6, alpha=0.4)
    width = 1.5 if len(live) <= BANDS else 1.1
    for (place, colour), label in zip(colours.items(), names, strict=True):
        if len(live) <= BANDS:
            axes.fill_between(history.matches, *bands[:, :, place], color=colour, alpha=0.15, lw=0)
        axes.plot(history.matches, known[:, place], color=colour, lw=width, label=label)
    drawn = _draw_copies(axes, found, np.flatnonzero(copies), colours)
    axes.margins(y=0.06)
    axes.autoscale(axis="y")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.0)
    axes.grid()
    count_along_x(axes, int(history.matches[-1]))
    axes.set_title("Ratings over the run")
    axes.set_xlabel("matches played")
    axes.set_ylabel("rating (openskill)")
    return Picture(name, heading, _caption(history, len(live), len(colours), drawn), figure)


def _caption(history: RatingHistory, live: int, coloured: int, drawn: int) -> str:
    words = "Ratings after each match, in openskill's units, which begin at 25"
    if live <= BANDS:
        words += ", with intervals of 95%"
    if coloured < live:
        words += f"; the {coloured} best of {live} policies in colours"
    if drawn:
        words += "; points are frozen copies, at their freezing and with their final rating"
    return f"{words}; of {int(history.matches[-1]):,} matches."


def _draw_copies(axes: Axes, found: Ratings, copies: Integers, colours: dict[int, str]) -> int:
    """Draw frozen copies as points; return how many."""
    history = found.history
    if len(copies) > COPIES:
        copies = copies[np.linspace(0, len(copies) - 1, COPIES).round().astype(np.int64)]
    by_name = {history.names[place]: colour for place, colour in colours.items()}
    for place in copies.tolist():
        name = history.names[place]
        first_match = int(history.matches[int((history.played[:, place] > 0).argmax())])
        when = found.frozen.get(name, first_match)
        point = np.array([[when, history.ratings[-1, place]]], np.float64)
        mark_points(axes, point, by_name.get(name.rpartition("@")[0], QUIET), COPIES)
        if len(copies) <= WHISKERS:
            ends = history.intervals()[:, -1, place]
            axes.plot([when, when], ends, color=QUIET, lw=0.6, alpha=0.5, zorder=1.5)
    return len(copies)
