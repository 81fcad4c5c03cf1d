"""The picture of evolution: lineages, and the hyperparameters along them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from matplotlib.ticker import LogLocator, NullFormatter

from remuda.population.lineage import Born
from remuda.ui.pictures.drawing import (
    INK,
    KINDS,
    QUIET,
    Picture,
    add_panel,
    count_along_x,
    name_rows,
    new_figure,
    shorten,
    widest,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Life = tuple[str, int]
"""A policy: its place in the population, and its generation."""
MOST_ROWS = 64
"""Places that are drawn: those with most births."""
MOST_NUMBERS = 6
"""Hyperparameters that are drawn."""
DECADES = 10.0
"""The ratio of the greatest to the least value from which an axis is logarithmic."""


def lineage_picture(births: Sequence[Born], matches: int) -> Picture:
    """Draw each place over the matches played: its births, parents and hyperparameters."""
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
    axes.set_title("Lineage of policies")
    _draw_lives(axes, births, lambda life: shown.get(life[0]), colours, matches, 2.2)
    for born in later:
        if born.policy in shown:
            colour = colours.get((born.policy, born.generation), QUIET)
            axes.plot(born.matches, shown[born.policy], "o", color=colour, ms=3.0, zorder=3.0)
    panels = [add_panel(figure, left, top, wide, 1.1) for top in tops]
    for panel, number in zip(panels, numbers, strict=True):
        _draw_number(panel, births, number, colours, matches)
    for panel in (axes, *panels):
        count_along_x(panel, matches)
    (panels[-1] if panels else axes).set_xlabel("matches played")
    return Picture(name, heading, _caption(births, rows, families, matches), figure)


def _lives(births: Sequence[Born]) -> dict[Life, Born]:
    """Return the policies that were born, by place and generation."""
    return {(born.policy, born.generation): born for born in births}


def _parent(born: Born) -> Life | None:
    return None if born.parent is None else (born.parent, born.parent_generation)


def _rows(births: Sequence[Born]) -> list[str]:
    """Return the places that are drawn, in the order of their first policies."""
    count = Counter(born.policy for born in births)
    rest = [_parent(born) for born in births]
    places = list(dict.fromkeys([b.policy for b in births] + [p[0] for p in rest if p]))
    kept = set(sorted(places, key=lambda place: -count[place])[:MOST_ROWS])
    return [place for place in places if place in kept]


def _ends(births: Sequence[Born], matches: int) -> dict[Life, int]:
    """Return for each policy the matches played when it was replaced, or in the end."""
    found = dict.fromkeys(_lives(births), matches)
    for born in births:
        before = (born.policy, born.generation - 1)
        if before in found:
            found[before] = born.matches
    return found


def _roots(births: Sequence[Born]) -> dict[Life, Life]:
    """Return for each policy its initial ancestor."""
    found: dict[Life, Life] = {}
    for born in births:  # parents come before those that are copies of them
        parent = _parent(born)
        life = (born.policy, born.generation)
        found[life] = life if parent is None else found.get(parent, parent)
    return found


def _colours(births: Sequence[Born]) -> tuple[dict[Life, str], int]:
    """Return a colour for each policy of a surviving line; and the number of these lines."""
    roots = _roots(births)
    last = {born.policy: (born.policy, born.generation) for born in births}
    living = Counter(roots[life] for life in last.values())
    largest = [root for root, _ in living.most_common(len(KINDS))]
    by_root = dict(zip(largest, KINDS, strict=False))
    return {life: by_root[root] for life, root in roots.items() if root in by_root}, len(living)


def _numbers(births: Sequence[Born]) -> list[str]:
    """Return the hyperparameters that differ between policies."""
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
    """Draw a line at the height of each policy while it is alive, and one from its parent."""
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
    """Draw the value of a hyperparameter of each policy while it is alive."""
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
    # No powers: a policy may be called $, so nothing here is read as a formula.
    axes.yaxis.set_major_formatter(lambda at, _: f"{at:g}")
    axes.set_title(number, color=INK)
    axes.grid(axis="y")


def _caption(births: Sequence[Born], rows: Sequence[str], families: int, matches: int) -> str:
    later = sum(born.generation > 0 for born in births)
    places = len({born.policy for born in births})
    count = "1 birth" if later == 1 else f"{later:,} births"
    words = (
        f"{count} in {matches:,} matches. A row is a place; a point, a policy that was born there, "
        "joined to its parent. The descendants of one initial policy have one colour"
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
