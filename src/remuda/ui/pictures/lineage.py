"""The picture of evolution: who descends from whom, and how hyperparameters changed on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

from remuda.population.lineage import Born
from remuda.ui.pictures.drawing import (
    INK,
    KINDS,
    QUIET,
    Picture,
    add_panel,
    name_rows,
    new_figure,
    shorten,
    widest,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Life = tuple[str, int]
"""A policy: the place in which it was born, and its generation."""
MOST_ROWS = 64
"""The most places that are drawn: those with most births."""
MOST_NUMBERS = 6
"""The most hyperparameters that are drawn."""
DECADES = 10.0
"""Numbers above 0 of which the greatest is so many times the least get a logarithmic axis."""


def lineage_picture(births: Sequence[Born], matches: int) -> Picture:
    """Draw each place over time, whom its newborn are copies of, and what they begin with.

    What descends from one of the policies of the beginning has one colour, if it lives in the end.

    Args:
        births: as `read_lineage` returns them.
        matches: that are over.
    """
    name, heading = "lineage", "Lineage"
    later = [born for born in births if born.generation > 0]
    if not later:
        return Picture(name, heading, "No policy has been born since the run began.")
    rows = _rows(births)
    shown = {place: row for row, place in enumerate(rows)}
    colours, families = _colours(births)
    numbers = _numbers(births)
    names = shorten(rows)
    left, wide = 0.35 + max(widest(names, 8.5), 0.45), 5.6
    tall = min(0.24 * len(rows), 6.0)
    tops = [0.38 + tall + 0.55 + at * 1.65 for at in range(len(numbers))]
    figure = new_figure(left + wide + 0.3, 0.38 + tall + 0.55 + 1.65 * len(numbers))
    axes = add_panel(figure, left, 0.38, wide, tall)
    name_rows(axes, names, tall / len(rows))
    axes.set_title("Who descends from whom")
    axes.grid(False)
    _draw_lives(axes, births, shown, colours, matches)
    panels = [add_panel(figure, left, top, wide, 1.1) for top in tops]
    for panel, number in zip(panels, numbers, strict=True):
        _draw_number(panel, births, number, colours, matches)
    for panel in (axes, *panels):
        panel.set_xlim(0, max(matches, 1))
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    (panels[-1] if panels else axes).set_xlabel("matches played")
    return Picture(name, heading, _caption(births, rows, families, matches), figure)


def _lives(births: Sequence[Born]) -> dict[Life, Born]:
    """Policies that were born, by place and generation."""
    return {(born.policy, born.generation): born for born in births}


def _parent(born: Born) -> Life | None:
    return None if born.parent is None else (born.parent, born.parent_generation)


def _rows(births: Sequence[Born]) -> list[str]:
    """The places that are drawn, in the order in which they first had a policy."""
    count = Counter(born.policy for born in births)
    rest = [_parent(born) for born in births]
    places = list(dict.fromkeys([b.policy for b in births] + [p[0] for p in rest if p]))
    kept = set(sorted(places, key=lambda place: -count[place])[:MOST_ROWS])
    return [place for place in places if place in kept]


def _ends(births: Sequence[Born], matches: int) -> dict[Life, int]:
    """By policy, how many matches were over when another was born in its place, or in the end."""
    found = dict.fromkeys(_lives(births), matches)
    for born in births:
        before = (born.policy, born.generation - 1)
        if before in found:
            found[before] = born.matches
    return found


def _roots(births: Sequence[Born]) -> dict[Life, Life]:
    """By policy, the one that its line began with."""
    found: dict[Life, Life] = {}
    for born in births:  # parents come before those that are copies of them
        parent = _parent(born)
        life = (born.policy, born.generation)
        found[life] = life if parent is None else found.get(parent, parent)
    return found


def _colours(births: Sequence[Born]) -> tuple[dict[Life, str], int]:
    """A colour for each policy whose line lives in the end; and how many lines there are."""
    roots = _roots(births)
    last = {born.policy: (born.policy, born.generation) for born in births}
    living = Counter(roots[life] for life in last.values())
    told = [root for root, _ in living.most_common(len(KINDS))]
    by_root = dict(zip(told, KINDS, strict=False))
    return {life: by_root[root] for life, root in roots.items() if root in by_root}, len(living)


def _numbers(births: Sequence[Born]) -> list[str]:
    """The hyperparameters that differ between any two policies."""
    found: dict[str, set[float]] = {}
    for born in births:
        for number, value in born.hyperparameters.items():
            found.setdefault(number, set()).add(value)
    return [number for number, values in found.items() if len(values) > 1][:MOST_NUMBERS]


def _draw_lives(
    axes: Axes,
    births: Sequence[Born],
    rows: dict[str, int],
    colours: dict[Life, str],
    matches: int,
) -> None:
    """Draw a line for each life in the row of its place, and one from its parent to its birth."""
    ends = _ends(births, matches)
    for life, born in _lives(births).items():
        if born.policy not in rows:
            continue
        row, colour = rows[born.policy], colours.get(life, QUIET)
        alive = life in colours
        axes.plot(
            [born.matches, ends[life]],
            [row, row],
            color=colour,
            lw=2.2 if alive else 1.0,
            alpha=1.0 if alive else 0.45,
            solid_capstyle="butt",
            zorder=2.0,
        )
        if born.generation == 0:
            continue
        axes.plot(born.matches, row, "o", color=colour, markersize=3.0, zorder=3.0)
        if born.parent in rows:
            axes.plot(
                [born.matches, born.matches],
                [rows[born.parent], row],
                color=colour,
                lw=0.8,
                alpha=0.8 if alive else 0.35,
                zorder=1.5,
            )


def _draw_number(
    axes: Axes, births: Sequence[Born], number: str, colours: dict[Life, str], matches: int
) -> None:
    """Draw what each policy has of a hyperparameter while it lives."""
    ends = _ends(births, matches)
    lives = _lives(births)
    values = [b.hyperparameters[number] for b in births if number in b.hyperparameters]
    if min(values) > 0.0 and max(values) >= DECADES * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=5))
        axes.yaxis.set_minor_formatter(NullFormatter())
    for life, born in lives.items():
        value = born.hyperparameters.get(number)
        if value is None:
            continue
        colour, alive = colours.get(life, QUIET), life in colours
        parent = _parent(born)
        above = lives[parent].hyperparameters.get(number) if parent in lives else None
        if above is not None and above != value:
            axes.plot([born.matches, born.matches], [above, value], color=colour, lw=0.6, alpha=0.5)
        axes.plot(
            [born.matches, ends[life]],
            [value, value],
            color=colour,
            lw=1.5 if alive else 0.8,
            alpha=0.9 if alive else 0.4,
            zorder=2.0 if alive else 1.5,
        )
    # Not as powers: a policy may be called $, so that nothing here is read as a formula.
    axes.yaxis.set_major_formatter(lambda at, _: f"{at:g}")
    axes.set_title(number, color=INK)
    axes.grid(axis="y")


def _caption(births: Sequence[Born], rows: Sequence[str], families: int, matches: int) -> str:
    later = sum(born.generation > 0 for born in births)
    places = len({born.policy for born in births})
    births_told = "1 birth" if later == 1 else f"{later:,} births"
    words = (
        f"{births_told} in {matches:,} matches. A row is a place; a point, a policy that was born "
        "there, joined to its parent. What descends from one policy of the beginning has one colour"
    )
    if families > len(KINDS):
        words += f"; the {len(KINDS)} largest of {families} lines that are left have one"
    elif families == 1:
        words += "; one line is left"
    else:
        words += f"; {families} lines are left"
    words += ", and lines that died out are grey."
    if places > len(rows):
        words += f" The {len(rows)} places with most births, of {places}."
    return words
