"""Pictures of a run over its matches: ratings, and lineages with hyperparameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from remuda.analysis.payoffs.ledger_reader import LedgerReader
from remuda.analysis.ranking.ratings import RatingHistory, ledger_history
from remuda.errors import RunDirectoryError
from remuda.population.ledger.ledger import FREEZE, options_in
from remuda.population.ledger.lineage import Born
from remuda.population.ledger.records import PolicyRef
from remuda.system.checkpoint.opening import open_stream
from remuda.types import Array, Integers
from remuda.ui.plots.drawing import (
    INK,
    KINDS,
    QUIET,
    Picture,
    count_along_x,
    mark_points,
    name_rows,
    new_figure,
    set_log_scale,
    shorten,
)

MAX_MATCHES = 5_000_000  # maximum number of matches to rate; more would take too long
BANDS = 3  # up to this many policies, intervals are drawn as bands
WHISKERS = 30  # up to this many frozen copies, intervals are drawn
SHOWN = 8  # maximum number of changes of environment options that the caption lists
COPIES = 150  # maximum number of frozen copies drawn, evenly spaced over the run


@dataclass(frozen=True)
class Ratings:
    """Ratings over the matches of a run."""

    history: RatingHistory  # the ratings of live policies and their frozen copies
    frozen: dict[str, int]  # by frozen copy, the number of matches before its freeze
    changes: dict[int, str]
    """The environment options that the run changed, by the number of matches before the change."""


def read_ratings(ledger: Path, sides: Sequence[int] = ()) -> Ratings | str:
    """Rate matches in order, or return why that is impossible; `sides`: team numbers by seat."""
    reader = LedgerReader.open(ledger)
    records = (reader.end - reader.begin) // reader.kind.itemsize
    if records > MAX_MATCHES:
        return (
            f"There are {records:,} matches, but at most {MAX_MATCHES:,} are rated here; see "
            "`remuda.analysis.ranking.ratings.ledger_history`."
        )
    history = ledger_history(ledger, sides=sides)
    return Ratings(history, _frozen_at(reader, records), _changes_in(reader, records))


def _records_of(reader: LedgerReader, count: int) -> Array:
    with open_stream(reader.path) as file:
        return np.memmap(file, reader.kind, "r", offset=reader.begin, shape=(count,))


def _changes_in(reader: LedgerReader, count: int) -> dict[int, str]:
    return {
        number: ", ".join(f"{name} {value}" for name, value in options.items())
        for number, options in options_in(_records_of(reader, count))
        if number  # others were in force from the start
    }


def _frozen_at(reader: LedgerReader, count: int) -> dict[str, int]:
    records = _records_of(reader, count)
    found = records[records["kind"] == FREEZE]
    policies, versions = found["policy"][:, 0], found["version"][:, 0]
    if policies.size and not (policies.min() >= 0 and policies.max() < len(reader.policies)):
        raise RunDirectoryError(
            f"{reader.path} is damaged: it refers to policies that do not exist"
        )
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
        reason = "No policy learned in these matches, so ratings do not change."
        return Picture(name, heading, reason)
    if len(history.matches) < 2 or not history.played[-1].any():
        reason = "No two policies met often enough to compute ratings."
        return Picture(name, heading, reason)
    best = live[np.argsort(-history.ratings[-1, live], kind="stable")]
    colours = dict(zip(best.tolist(), KINDS, strict=False))
    names = shorten([history.names[i] for i in colours])
    figure = new_figure(7.6, 4.1)
    axes = figure.subplots()
    # The rating of a policy is unknown before its first match with another.
    known = np.where(history.played > 0, history.ratings, np.nan)
    bands = np.where(history.played > 0, history.intervals(), np.nan)
    for i in best[len(colours) :]:
        axes.plot(history.matches, known[:, i], color=QUIET, lw=0.6, alpha=0.4)
    width = 1.5 if len(live) <= BANDS else 1.1
    for (i, colour), label in zip(colours.items(), names, strict=True):
        if len(live) <= BANDS:
            axes.fill_between(history.matches, *bands[:, :, i], color=colour, alpha=0.15, lw=0)
        axes.plot(history.matches, known[:, i], color=colour, lw=width, label=label)
    drawn = _draw_copies(axes, found, np.flatnonzero(copies), colours)
    for when in found.changes:
        axes.axvline(when, color=QUIET, lw=0.8, ls=":", zorder=0.5)
    axes.margins(y=0.06)
    axes.autoscale(axis="y")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.0)
    axes.grid()
    count_along_x(axes, int(history.matches[-1]))
    axes.set_title("Ratings over the run")
    axes.set_xlabel("matches played")
    axes.set_ylabel("rating (openskill)")
    return Picture(name, heading, _caption(found, len(live), len(colours), drawn), figure)


def _caption(found: Ratings, live: int, coloured: int, drawn: int) -> str:
    history = found.history
    words = "Ratings after each match, in openskill's units, which start at 25"
    if live <= BANDS:
        words += ", with 95% intervals"
    if coloured < live:
        words += f"; colours mark the {coloured} best of {live} policies"
    if drawn:
        words += "; points are frozen copies, at the time of the freeze and with their final rating"
    if found.changes:
        listed = [f"{number:,} ({text})" for number, text in found.changes.items()]
        shown = ", ".join([*listed[:SHOWN], *(["…"] if len(listed) > SHOWN else [])])
        words += f"; dotted lines are changes of environment options, after matches {shown}"
    return f"{words}. Based on {int(history.matches[-1]):,} matches."


def _draw_copies(axes: Axes, found: Ratings, copies: Integers, colours: dict[int, str]) -> int:
    history = found.history
    if len(copies) > COPIES:
        copies = copies[np.linspace(0, len(copies) - 1, COPIES).round().astype(np.int64)]
    by_name = {history.names[i]: colour for i, colour in colours.items()}
    for i in copies.tolist():
        name = history.names[i]
        first_match = int(history.matches[int((history.played[:, i] > 0).argmax())])
        when = found.frozen.get(name, first_match)
        point = np.array([[when, history.ratings[-1, i]]], np.float64)
        mark_points(axes, point, by_name.get(name.rpartition("@")[0], QUIET), COPIES)
        if len(copies) <= WHISKERS:
            ends = history.intervals()[:, -1, i]
            axes.plot([when, when], ends, color=QUIET, lw=0.6, alpha=0.5, zorder=1.5)
    return len(copies)


Life = tuple[str, int]  # a policy: its slot in the population, and its generation
MAX_ROWS = 64  # maximum number of slots drawn: those with the most births
MAX_NUMBERS = 6  # maximum number of hyperparameters drawn


class _Lineage:
    """The policies that were born, with a colour for the descendants of each surviving line."""

    def __init__(self, births: Sequence[Born], matches: int) -> None:
        self.matches = matches
        self.lives: dict[Life, Born] = {(born.policy, born.generation): born for born in births}
        self.parents: dict[Life, Life | None] = {
            life: None if born.parent is None else (born.parent, born.parent_generation)
            for life, born in self.lives.items()
        }
        roots: dict[Life, Life] = {}
        for life, parent in self.parents.items():  # parents come before their children
            roots[life] = life if parent is None else roots.get(parent, parent)
        last = {slot: (slot, generation) for slot, generation in self.lives}
        living = Counter(roots[life] for life in last.values())
        self.families = len(living)  # the number of surviving lines
        largest = [root for root, _ in living.most_common(len(KINDS))]
        by_root = dict(zip(largest, KINDS, strict=False))
        self.colours = {life: by_root[root] for life, root in roots.items() if root in by_root}

    def slots(self) -> list[str]:
        """Return at most `MAX_ROWS` slots, those with the most births."""
        count = Counter(slot for slot, _ in self.lives)
        slots = dict.fromkeys([*count, *(parent[0] for parent in self.parents.values() if parent)])
        shown = set(sorted(slots, key=lambda slot: -count[slot])[:MAX_ROWS])
        return [slot for slot in slots if slot in shown]

    def draw(self, axes: Axes, height: Callable[[Life], float | None], width: float) -> None:
        """Draw each life as a line at its height, joined to its parent."""
        for life, born in self.lives.items():
            y, parent = height(life), self.parents[life]
            if y is None:
                continue
            successor = self.lives.get((born.policy, born.generation + 1))
            end = self.matches if successor is None else successor.matches
            colour, survives = self.colours.get(life, QUIET), life in self.colours
            above = None if parent is None else height(parent)
            if above is not None and above != y:
                x = [born.matches, born.matches]
                axes.plot(x, [above, y], color=colour, lw=0.4 * width, alpha=0.6, zorder=1.5)
            axes.plot(
                [born.matches, end],
                [y, y],
                color=colour,
                lw=width if survives else 0.5 * width,
                alpha=1.0 if survives else 0.45,
                solid_capstyle="butt",
                zorder=2.0 if survives else 1.5,
            )


def lineage_picture(births: Sequence[Born], matches: int) -> Picture:
    """Draw each slot over the matches played: its births, parents and hyperparameters."""
    name, heading = "lineage", "Lineage"
    later = [born for born in births if born.generation > 0]
    if not later:
        return Picture(name, heading, "No policy was born after the start of the run.")
    lineage = _Lineage(births, matches)
    slots = lineage.slots()
    rows = {slot: row for row, slot in enumerate(slots)}
    pairs = dict.fromkeys(pair for born in births for pair in born.hyperparameters.items())
    values = Counter(number for number, _ in pairs)
    numbers = [number for number, count in values.items() if count > 1][:MAX_NUMBERS]
    tall = min(0.24 * len(slots), 6.0)
    heights = (tall, *(1.1 for _ in numbers))
    figure = new_figure(7.2, sum(heights) + 0.4 * len(heights) + 0.2)
    axes, *panels = figure.subplots(
        len(heights), 1, sharex=True, height_ratios=heights, squeeze=False
    )[:, 0]
    name_rows(axes, shorten(slots), tall / len(slots))
    axes.set_title("Lineage of policies")
    lineage.draw(axes, lambda life: rows.get(life[0]), 2.2)
    for born in later:
        if born.policy in rows:
            colour = lineage.colours.get((born.policy, born.generation), QUIET)
            axes.plot(born.matches, rows[born.policy], "o", color=colour, ms=3.0, zorder=3.0)
    for panel, number in zip(panels, numbers, strict=True):
        _draw_number(panel, lineage, number)
    count_along_x(axes, matches)  # panels share their x axis
    figure.axes[-1].set_xlabel("matches played")
    return Picture(name, heading, _lineage_caption(lineage, len(later), len(slots)), figure)


def _draw_number(axes: Axes, lineage: _Lineage, number: str) -> None:
    values = {
        life: born.hyperparameters[number]
        for life, born in lineage.lives.items()
        if number in born.hyperparameters
    }
    low, high = min(values.values()), max(values.values())
    if low > 0.0 and high >= 10.0 * low:
        set_log_scale(axes)
    lineage.draw(axes, values.get, 1.5)
    axes.set_title(number, color=INK)
    axes.grid(axis="y")


def _lineage_caption(lineage: _Lineage, births: int, rows: int) -> str:
    slots, families = len({slot for slot, _ in lineage.lives}), lineage.families
    count = "1 birth" if births == 1 else f"{births:,} births"
    if families > len(KINDS):
        lines = f", for the {len(KINDS)} largest of {families} surviving lines"
    else:
        lines = "; one line survives" if families == 1 else f"; {families} lines survive"
    shown = f" Shown: the {rows} slots with most births, of {slots}." if slots > rows else ""
    return (
        f"{count} in {lineage.matches:,} matches. A row is a slot of the population; a point is "
        "the birth of a policy, joined to its parent. Descendants of one initial policy share a "
        f"colour{lines}, and extinct lines are grey.{shown}"
    )
