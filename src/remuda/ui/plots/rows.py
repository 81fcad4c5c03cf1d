"""Pictures with a row per policy: payoffs, ranking and equilibrium."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from remuda.analysis.as_json import figures
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.analysis.population_report import Analysis
from remuda.analysis.ranking.rank import RankIntervals
from remuda.analysis.roles_report import RolesAnalysis
from remuda.types import Integers, Numbers
from remuda.ui.plots.drawing import (
    BLUE,
    INK,
    ORANGE,
    QUIET,
    Picture,
    matches_in_words,
    name_rows,
    new_figure,
    shorten,
)
from remuda.ui.terminal.numbers import number, to_width

NUMBERED = 12  # up to this many policies, cells contain numbers
BARS = 40  # maximum bars of an equilibrium
PLAYED = 0.005  # minimum probability with a bar
AROUND = 0.84  # inches for the title above and the axis below
LETTER = 0.065  # inches of a letter of a row's name, roughly


def payoffs_picture(found: Analysis | RolesAnalysis) -> Picture:
    """Draw the mean payoffs as a heat map ordered by rank, with their standard errors."""
    payoffs, order, blocks = found.payoffs, best_first(found), ""
    if isinstance(found, RolesAnalysis):
        names = " and ".join(each.role.name for each in found.roles)
        blocks = f"; one block for each two of {names}: team-mates earn together, opponents apart"
    errors = payoffs.errors[0]
    if len(errors) <= NUMBERED:
        spread = "; ± standard errors" if (errors > 0.0).any() else ""
    else:
        known = errors[~np.eye(len(errors), dtype=np.bool_) & np.isfinite(errors)]
        low, middle, high = np.quantile(known, (0.0, 0.5, 1.0)) if known.size else (0.0, 0.0, 0.0)
        spread = f"; standard errors {figures(low, 2)} to {figures(high, 2)}, "
        spread += f"the median {figures(middle, 2)}"
    caption = (
        "The mean payoff of the row in a match against the column, ordered by rank"
        f"{blocks}{spread}. Based on {matches_in_words(payoffs)}."
    )
    figure = draw_payoffs(payoffs, order, " (rank order)")
    return Picture("payoffs", "Payoffs", caption, figure)


def draw_payoffs(payoffs: Payoffs, order: Integers, ranked: str = "") -> Figure:
    """Draw the mean payoffs as a heat map in this order, with their standard errors."""
    matrix = payoffs.matrix[np.ix_(order, order)]
    errors = payoffs.errors[0][np.ix_(order, order)]
    count, few = len(order), len(order) <= NUMBERED
    names = shorten([payoffs.names[i] for i in order])
    labels = [f"{name}  {row + 1}" for row, name in enumerate(names)]
    cell = float(np.clip(5.4 / count, 0.02, 0.24))
    wide, high = (float(np.clip(4.6 / count, 0.66, 0.9)), 0.44) if few else (cell, cell)
    width, height = count * wide + LETTER * max(map(len, labels)) + 0.9, count * high + AROUND
    figure = new_figure(width, height) if few else new_figure(2.0 * width, max(height, 3.0))
    axes, *others = figure.subplots(1, 1 if few else 2, squeeze=False)[0]
    norm, map_name = _colours_of(matrix, payoffs.is_zero_sum)
    image = axes.imshow(matrix, cmap=map_name, norm=norm, aspect="auto", interpolation="nearest")
    axes.set_title("Mean payoff of the row against the column")
    axes.set_xlabel(f"opponent, by row number{ranked}")
    axes.tick_params(axis="x", length=0)
    axes.spines[:].set_visible(False)
    name_rows(axes, labels, high)
    _colour_bar(axes, image, "mean payoff per match")
    if few:
        axes.set_xticks(range(count), [str(i + 1) for i in range(count)])
        _write_numbers(axes, matrix, errors, lambda value: mpl.colormaps[map_name](norm(value)))
        return figure
    (lower,) = others
    spread = np.where(np.eye(count, dtype=np.bool_), np.nan, errors)
    largest = float(np.nanmax(spread, initial=0.0, where=np.isfinite(spread)))
    image = lower.imshow(spread, cmap="cividis", norm=Normalize(0.0, largest or 1.0), aspect="auto")
    lower.set_title("Standard errors")
    lower.set_xlabel("opponent, by row number")
    lower.tick_params(length=0, labelcolor=QUIET)
    for axis in (axes.xaxis, lower.xaxis, lower.yaxis):
        ticks = [0, *range(9, count, 10)]
        axis.set_ticks(ticks, [str(tick + 1) for tick in ticks])
    _colour_bar(lower, image, "")
    return figure


def only_row(payoffs: Payoffs) -> int | None:
    """Return the only member that others met, if no two others met, as in self-play; else None."""
    met = np.isfinite(payoffs.matrix) & ~np.eye(len(payoffs.names), dtype=np.bool_)
    met |= met.T
    if len(met) < 3 or not met.any():
        return None
    hub = int(np.argmax(met.sum(axis=0)))
    return hub if 2 * met[hub].sum() == met.sum() else None


def draw_row(payoffs: Payoffs, member: int) -> Figure:
    """Draw the mean payoffs of one member against each member that it met."""
    means, errors = payoffs.matrix[member], payoffs.errors[0][member]
    met = [i for i in np.flatnonzero(np.isfinite(means)) if i != member]
    names, matches = (
        [payoffs.names[i] for i in met],
        [f"{payoffs.met[member, i]:,.0f}" for i in met],
    )
    title = f"Mean payoff of {shorten([payoffs.names[member]])[0]} against each"
    figure, axes, high = _rows_of(names, "matches", matches, title)
    rows, spread = np.arange(len(met)), np.nan_to_num(errors[met])
    style: dict[str, Any] = {"fmt": "o", "color": BLUE, "markersize": min(5.0, 26.0 * high)}
    axes.errorbar(means[met], rows, xerr=spread, **style)
    axes.axvline(0.0, color=QUIET, linewidth=0.7, zorder=0)
    axes.set_xlabel("payoff per match, ± standard error")
    return figure


def _colour_bar(axes: Axes, image: Any, label: str) -> None:
    bar = axes.figure.colorbar(image, ax=axes, aspect=30, ticks=MaxNLocator(5), label=label)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7.5, length=2, labelcolor=QUIET)


def _write_numbers(
    axes: Axes, matrix: Numbers, errors: Numbers, colour_of: Callable[[float], Any]
) -> None:
    for row, column in np.argwhere(np.isfinite(matrix)).tolist():
        value, error = float(matrix[row, column]), float(errors[row, column])
        text = "\n±".join(to_width((value, error), error)) if error > 0.0 else number(value)
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
        red, green, blue = colour_of(value)[:3]
        ink = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.53 else INK
        axes.text(column, row, text.replace("-", "−"), color=ink, **style)


def best_first(found: Analysis | RolesAnalysis) -> Integers:
    """Return the indices of policies, best first: [N]; those of each role together."""
    if isinstance(found, RolesAnalysis):
        names = [
            each.ranking.names[place]
            for each in found.roles
            for place in np.argsort(each.ranking.ranks, kind="stable")
        ]
        return np.array([found.payoffs.names.index(name) for name in names])
    order: Integers = np.argsort(found.ranking.ranks, kind="stable")
    return order


def _colours_of(matrix: Numbers, zero_sum: bool) -> tuple[Normalize, str]:
    """Return a norm and colour map: two hues around the even payoff or 0, otherwise one scale."""
    known = matrix[np.isfinite(matrix)]
    low, high = float(known.min()), float(known.max())
    even = float(np.nanmean(matrix + matrix.T)) / 2.0 if zero_sum else 0.0
    if zero_sum or low < 0.0 < high:
        reach = max(high - even, even - low) or 1.0
        return Normalize(even - reach, even + reach), "RdBu"
    return Normalize(low, high if high > low else low + 1.0), "viridis"


def ranking_picture(ranking: RankIntervals, payoffs: Payoffs, role: str = "") -> Picture:
    """Draw the mean payoff against all others and the rank, both with intervals.

    `role`: the name of the ranked role; empty: all policies are ranked together.
    """
    order = np.argsort(ranking.ranks, kind="stable")
    count, level = len(order), ranking.level
    first, last = ranking.intervals[:, order]
    ranks = [f"{a}" if a == b else f"{a} to {b}" for a, b in zip(first, last, strict=True)]
    names = [ranking.names[i] for i in order]
    others = "all policies of other roles" if role else "all others"
    title = f"Mean payoff of {role} against {others}" if role else f"Mean payoff against {others}"
    figure, axes, high = _rows_of(names, f"rank, {level:.0%}", ranks, title)
    middle = ranking.scores[order]
    ends = ranking.score_intervals[:, order]
    rows = np.arange(count)
    axes.hlines(rows, *ends, color=BLUE, linewidth=min(1.6, 16.0 * high), alpha=0.55)
    axes.plot(middle, rows, "o", color=BLUE, markersize=min(5.0, 26.0 * high), clip_on=False)
    if middle.min() < 0.0 < middle.max():
        axes.axvline(0.0, color=QUIET, linewidth=0.7, zorder=0)
    axes.set_xlabel(f"payoff per match, with {level:.0%} interval")
    caption = (
        f"The mean payoff of each policy against {others}, and its rank, with {level:.0%} "
        f"intervals. Based on {matches_in_words(payoffs)}."
    )
    stem = "_".join(["ranking", *re.findall("[A-Za-z0-9]+", role)])
    return Picture(stem, f"Ranking of {role}" if role else "Ranking", caption, figure)


def _rows_of(
    names: list[str], heading: str, notes: list[str], title: str
) -> tuple[Figure, Axes, float]:
    """Return a figure and axes with a named row per policy, notes beside it, and a row's height."""
    high = float(np.clip(5.6 / len(names), 0.06, 0.27))
    names = shorten(names)
    width = 5.7 + LETTER * max(map(len, names))
    figure = new_figure(width, len(names) * high + AROUND)
    axes = figure.subplots()
    name_rows(axes, names, high)
    name_rows(axes, notes, high, "right")
    axes.set_title(title)
    axes.set_title(heading, loc="right", fontsize=8.0, fontweight="normal", color=QUIET)
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    return figure, axes, high


def equilibrium_picture(found: Analysis) -> Picture:
    """Draw the mixture of the equilibrium, with intervals over draws of the payoffs."""
    name, heading = "equilibrium", "Equilibrium"
    solved = found.equilibrium
    if solved is None:
        return Picture(name, heading, found.in_words()["equilibrium"])
    mass = solved.answer.mixtures[0]
    low, high = solved.masses[0][1:]
    shown = np.flatnonzero((mass > PLAYED) | (high > PLAYED))
    shown = shown[np.lexsort((found.ranking.ranks[shown], -mass[shown]))]
    if len(shown) == 1:
        only = found.payoffs.names[shown[0]]
        return Picture(name, heading, f"The equilibrium plays only {only} in nearly all draws.")
    left_out = len(mass) - min(len(shown), BARS)
    shown = shown[:BARS]
    names = [found.payoffs.names[i] for i in shown]
    shares = [f"{share:.0%}" for share in solved.in_support[0][shown]]
    title = "How often a rational player plays each"
    figure, axes, _ = _rows_of(names, "share of draws", shares, title)
    rows = np.arange(len(shown))
    axes.barh(rows, mass[shown], height=0.72, color=ORANGE, alpha=0.75)
    axes.hlines(rows, low[shown], high[shown], color=INK, linewidth=1.0)
    axes.set_xlim(0.0, min(1.0, 1.04 * float(max(mass[shown].max(), high[shown].max()))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100.0 * share:g}%"))
    axes.set_xlabel("probability, with 95% interval over the draws")
    rest = f"; the other {left_out} of {len(mass)} are hardly played" if left_out else ""
    caption = (
        f"The equilibrium, its interval over draws of the payoffs, and the share of draws in which "
        f"each policy is played{rest}. Based on {matches_in_words(found.payoffs)}."
    )
    return Picture(name, heading, caption, figure)
