"""Pictures of a run over its matches: ratings, and lineages with hyperparameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from remuda.analysis.payoffs.from_ledger import LedgerReader
from remuda.analysis.ranking.ratings import RatingHistory, ledger_history
from remuda.errors import RunDirectoryError
from remuda.population.ledger.ledger import FREEZE
from remuda.population.ledger.lineage import Born
from remuda.population.ledger.records import PolicyRef
from remuda.system.checkpoint.opening import open_stream
from remuda.types import Integers
from remuda.ui.plots.drawing import (
    INK,
    KINDS,
    QUIET,
    Picture,
    count_along_x,
    mark_points,
    name_rows,
    new_figure,
    shorten,
)

MOST_MATCHES = 5_000_000  # maximum number of matches to rate; more would take too long
BANDS = 3  # up to this many policies, intervals are drawn as bands
WHISKERS = 30  # up to this many frozen copies, intervals are drawn
COPIES = 150  # maximum number of frozen copies drawn, evenly spaced over the run


@dataclass(frozen=True)
class Ratings:
    """Ratings over the matches of a run."""

    history: RatingHistory  # the ratings of live policies and their frozen copies
    frozen: dict[str, int]  # by frozen copy, the number of matches before its freeze


def read_ratings(ledger: Path, sides: Sequence[int] = ()) -> Ratings | str:
    """Rate the matches of a ledger in order, or return the reason why that is impossible.

    `sides`: team numbers by seat.
    """
    reader = LedgerReader.open(ledger)
    records = (reader.end - reader.begin) // reader.kind.itemsize
    if records > MOST_MATCHES:
        return (
            f"There are {records:,} matches, but at most {MOST_MATCHES:,} are rated here; see "
            "`remuda.analysis.ranking.ratings.ledger_history`."
        )
    return Ratings(ledger_history(ledger, sides=sides), _frozen_at(reader, records))


def _frozen_at(reader: LedgerReader, count: int) -> dict[str, int]:
    with open_stream(reader.path) as file:
        records = np.memmap(file, reader.kind, "r", offset=reader.begin, shape=(count,))
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
    words = "Ratings after each match, in openskill's units, which start at 25"
    if live <= BANDS:
        words += ", with 95% intervals"
    if coloured < live:
        words += f"; colours mark the {coloured} best of {live} policies"
    if drawn:
        words += "; points are frozen copies, at the time of the freeze and with their final rating"
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
MOST_ROWS = 64  # maximum number of slots drawn: those with the most births
MOST_NUMBERS = 6  # maximum number of hyperparameters drawn
DECADES = 10.0  # an axis is logarithmic if maximum / minimum is at least this


def lineage_picture(births: Sequence[Born], matches: int) -> Picture:
    """Draw each slot over the matches played: its births, parents and hyperparameters."""
    name, heading = "lineage", "Lineage"
    later = [born for born in births if born.generation > 0]
    if not later:
        return Picture(name, heading, "No policy was born after the start of the run.")
    rows = _rows(births)
    shown = {slot: row for row, slot in enumerate(rows)}
    colours, families = _colours(births)
    numbers = _numbers(births)
    names = shorten(rows)
    tall = min(0.24 * len(rows), 6.0)
    heights = (tall, *(1.1 for _ in numbers))
    figure = new_figure(7.2, sum(heights) + 0.4 * len(heights) + 0.2)
    axes, *panels = figure.subplots(
        len(heights), 1, sharex=True, height_ratios=heights, squeeze=False
    )[:, 0]
    name_rows(axes, names, tall / len(rows))
    axes.set_title("Lineage of policies")
    _draw_lives(axes, births, lambda life: shown.get(life[0]), colours, matches, 2.2)
    for born in later:
        if born.policy in shown:
            colour = colours.get((born.policy, born.generation), QUIET)
            axes.plot(born.matches, shown[born.policy], "o", color=colour, ms=3.0, zorder=3.0)
    for panel, number in zip(panels, numbers, strict=True):
        _draw_number(panel, births, number, colours, matches)
    count_along_x(axes, matches)  # panels share their x axis
    figure.axes[-1].set_xlabel("matches played")
    return Picture(name, heading, _lineage_caption(births, rows, families, matches), figure)


def _lives(births: Sequence[Born]) -> dict[Life, Born]:
    return {(born.policy, born.generation): born for born in births}


def _parent(born: Born) -> Life | None:
    return None if born.parent is None else (born.parent, born.parent_generation)


def _rows(births: Sequence[Born]) -> list[str]:
    count = Counter(born.policy for born in births)
    parents = [_parent(born) for born in births]
    slots = list(dict.fromkeys([b.policy for b in births] + [p[0] for p in parents if p]))
    kept = set(sorted(slots, key=lambda slot: -count[slot])[:MOST_ROWS])
    return [slot for slot in slots if slot in kept]


def _ends(births: Sequence[Born], matches: int) -> dict[Life, int]:
    found = dict.fromkeys(_lives(births), matches)
    for born in births:
        before = (born.policy, born.generation - 1)
        if before in found:
            found[before] = born.matches
    return found


def _roots(births: Sequence[Born]) -> dict[Life, Life]:
    found: dict[Life, Life] = {}
    for born in births:  # parents come before their children
        parent = _parent(born)
        life = (born.policy, born.generation)
        found[life] = life if parent is None else found.get(parent, parent)
    return found


def _colours(births: Sequence[Born]) -> tuple[dict[Life, str], int]:
    """Return a colour for each policy of a surviving line, and the number of such lines."""
    roots = _roots(births)
    last = {born.policy: (born.policy, born.generation) for born in births}
    living = Counter(roots[life] for life in last.values())
    largest = [root for root, _ in living.most_common(len(KINDS))]
    by_root = dict(zip(largest, KINDS, strict=False))
    return {life: by_root[root] for life, root in roots.items() if root in by_root}, len(living)


def _numbers(births: Sequence[Born]) -> list[str]:
    pairs = dict.fromkeys(pair for born in births for pair in born.hyperparameters.items())
    values = Counter(number for number, _ in pairs)
    return [number for number, count in values.items() if count > 1][:MOST_NUMBERS]


def _draw_lives(
    axes: Axes,
    births: Sequence[Born],
    height: Callable[[Life], float | None],
    colours: dict[Life, str],
    matches: int,
    width: float,
) -> None:
    ends = _ends(births, matches)
    for life, born in _lives(births).items():
        y, parent = height(life), _parent(born)
        if y is None:
            continue
        colour, alive = colours.get(life, QUIET), life in colours
        above = None if parent is None else height(parent)
        if above is not None and above != y:
            x = [born.matches, born.matches]
            axes.plot(x, [above, y], color=colour, lw=0.4 * width, alpha=0.6, zorder=1.5)
        axes.plot(
            [born.matches, ends[life]],
            [y, y],
            color=colour,
            lw=width if alive else 0.5 * width,
            alpha=1.0 if alive else 0.45,
            solid_capstyle="butt",
            zorder=2.0 if alive else 1.5,
        )


def _draw_number(
    axes: Axes, births: Sequence[Born], number: str, colours: dict[Life, str], matches: int
) -> None:
    values = {
        life: born.hyperparameters[number]
        for life, born in _lives(births).items()
        if number in born.hyperparameters
    }
    low, high = min(values.values()), max(values.values())
    if low > 0.0 and high >= DECADES * low:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=5))
        axes.yaxis.set_minor_formatter(NullFormatter())
    _draw_lives(axes, births, values.get, colours, matches, 1.5)
    # No powers of ten: mathtext is off, because a policy's name may contain $.
    axes.yaxis.set_major_formatter(lambda at, _: f"{at:g}")
    axes.set_title(number, color=INK)
    axes.grid(axis="y")


def _lineage_caption(
    births: Sequence[Born], rows: Sequence[str], families: int, matches: int
) -> str:
    later = sum(born.generation > 0 for born in births)
    slots = len({born.policy for born in births})
    count = "1 birth" if later == 1 else f"{later:,} births"
    words = (
        f"{count} in {matches:,} matches. A row is a slot of the population; a point is the "
        "birth of a policy, joined to its parent. Descendants of one initial policy share a colour"
    )
    if families > len(KINDS):
        words += f", for the {len(KINDS)} largest of {families} surviving lines"
    elif families == 1:
        words += "; one line survives"
    else:
        words += f"; {families} lines survive"
    words += ", and extinct lines are grey."
    if slots > len(rows):
        words += f" Shown: the {len(rows)} slots with most births, of {slots}."
    return words
