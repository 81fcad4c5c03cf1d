"""The picture of ratings over the matches of a run: its learning curve against its own past."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from remuda.analysis.meetings import LedgerReader
from remuda.analysis.payoff import Numbers
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
    new_figure,
    shorten,
    widest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_MATCHES = 5_000_000
"""Matches that are rated one after another; of more a picture would keep its user waiting."""
BANDS = 3
"""The most policies whose uncertainty is drawn as a band."""
WHISKERS = 30
"""The most frozen copies whose uncertainty is drawn."""
COPIES = 150
"""The most frozen copies that are drawn, evenly over the run."""


@dataclass(frozen=True)
class Ratings:
    """Ratings over the matches of a run, and when its copies were frozen.

    Attributes:
        history: of the live policies and of their frozen copies.
        frozen: by name of a frozen copy, how many matches had been played.
    """

    history: RatingHistory
    frozen: dict[str, int]


def read_ratings(ledger: Path, sides: Sequence[int] = ()) -> Ratings | str:
    """Rate the matches of a ledger in their order, or say why that is not done.

    Args:
        ledger: its path.
        sides: by seat, the number of its team; empty: each stands for itself.

    Raises:
        RunDirectoryError: there is no ledger, or it is damaged.
        UsageError: it has no match that is over.
    """
    reader = LedgerReader.open(ledger)
    records = (reader.end - reader.begin) // reader.kind.itemsize
    if records > MOST_MATCHES:
        return (
            f"There are {records:,} matches, and up to {MOST_MATCHES:,} are rated one after "
            "another; see `remuda.analysis.ratings.ledger_history`."
        )
    return Ratings(ledger_history(ledger, sides=sides), _frozen_at(reader))


def _frozen_at(reader: LedgerReader) -> dict[str, int]:
    """By name of a frozen copy, how many matches were over when it was frozen."""
    with open_stream(reader.path) as file:
        count = (reader.end - reader.begin) // reader.kind.itemsize
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
        return Picture(name, heading, "No policy learned in these matches: ratings stand still.")
    if len(history.matches) < 2 or not history.played[-1].any():
        words = "No policy met another one often enough: ratings tell who wins against whom."
        return Picture(name, heading, words)
    best = live[np.argsort(-history.ratings[-1, live], kind="stable")]
    told = best[: len(KINDS)]
    names = shorten([history.names[place] for place in told])
    figure = new_figure(0.65 + 5.4 + 0.25 + widest(names, 8.0), 0.38 + 3.2 + 0.55)
    axes = add_panel(figure, 0.65, 0.38, 5.4, 3.2)
    axes.set_xlim(0, int(history.matches[-1]))
    # Before its first match with another nothing is known of a policy.
    known = np.where(history.played > 0, history.ratings, np.nan)
    bands = np.where(history.played > 0, history.intervals(), np.nan)
    for place in live:
        if place not in told:
            axes.plot(history.matches, known[:, place], color=QUIET, lw=0.6, alpha=0.4)
    for place, colour in zip(told, KINDS, strict=False):
        if len(live) <= BANDS:
            axes.fill_between(history.matches, *bands[:, :, place], color=colour, alpha=0.15, lw=0)
        axes.plot(
            history.matches, known[:, place], color=colour, lw=1.5 if len(live) <= BANDS else 1.1
        )
    drawn = _draw_copies(axes, found, np.flatnonzero(copies), dict(zip(told, KINDS, strict=False)))
    axes.margins(y=0.06)
    axes.autoscale(axis="y")
    _name_ends(axes, history.ratings[-1, told], names)
    axes.grid()
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    axes.set_title("Ratings over the run")
    axes.set_xlabel("matches played")
    axes.set_ylabel("rating (openskill)")
    return Picture(name, heading, _caption(history, len(live), len(told), drawn), figure)


def _caption(history: RatingHistory, live: int, told: int, drawn: int) -> str:
    words = "Ratings after each match, in openskill's units, which begin at 25"
    if live <= BANDS:
        words += ", with intervals of 95%"
    if told < live:
        words += f"; the {told} best of {live} policies in colours"
    if drawn:
        words += (
            "; points are frozen copies, where they were frozen and as they are rated in the end"
        )
    return f"{words}; of {int(history.matches[-1]):,} matches."


def _draw_copies(axes: Axes, found: Ratings, copies: Integers, colours: dict[int, str]) -> int:
    """Draw frozen copies as points; returns how many."""
    history = found.history
    if len(copies) > COPIES:
        copies = copies[np.linspace(0, len(copies) - 1, COPIES).round().astype(np.int64)]
    of_name = {history.names[place]: colour for place, colour in colours.items()}
    drawn = 0
    for place in copies.tolist():
        name = history.names[place]
        owner = name.rpartition("@")[0]
        when = found.frozen.get(name, _first_match(history, place))
        axes.plot(
            when,
            history.ratings[-1, place],
            "o",
            color=of_name.get(owner, QUIET),
            markersize=4.0,
            markeredgecolor="white",
            markeredgewidth=0.5,
            clip_on=False,
            zorder=3,
        )
        if len(copies) <= WHISKERS:
            ends = history.intervals()[:, -1, place]
            axes.plot([when, when], ends, color=QUIET, lw=0.6, alpha=0.5, zorder=1.5)
        drawn += 1
    return drawn


def _first_match(history: RatingHistory, place: int) -> int:
    """Before which number of matches a strategy played first, as closely as was noted."""
    return int(history.matches[int((history.played[:, place] > 0).argmax())])


def _name_ends(axes: Axes, values: Numbers, names: list[str]) -> None:
    """Name lines where they end, the names apart from each other."""
    high = axes.bbox.height * 72.0 / axes.figure.dpi
    low, top = axes.get_ylim()
    wanted = (values - low) / (top - low) * high
    for place, y in enumerate(spread_out(wanted, 10.0, high)):
        axes.annotate(
            names[place],
            (1.0, float(y) / high),
            (5, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            fontsize=8.0,
            color=KINDS[place],
        )


def spread_out(wanted: Numbers, gap: float, end: float) -> Numbers:
    """Places near those that are wanted, at least a gap apart, between 0 and an end.

    Args:
        wanted: [N].
        gap: between two places; made smaller where there is no room.
        end: of the last.
    """
    count = len(wanted)
    gap = min(gap, end / max(count - 1, 1))
    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(count)
    # With the gaps taken out, order is all that is asked: the nearest places are running means
    # of blocks (the pool adjacent violators of isotonic regression).
    blocks: list[tuple[float, int]] = []
    for value in wanted[order] - steps:
        blocks.append((float(value), 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, m), (b, n) = blocks[-2:]
            blocks[-2:] = [((a * m + b * n) / (m + n), m + n)]
    level = np.array([value for value, size in blocks for _ in range(size)])
    places = np.zeros(count)
    places[order] = np.clip(level, 0.0, end - steps[-1] if count else end) + steps
    return places
