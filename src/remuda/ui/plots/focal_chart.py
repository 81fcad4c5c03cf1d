"""A Schelling diagram: the mean return of an agent by the number of other focal agents."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from remuda.evaluation.tournaments.focal import FocalEvaluation
from remuda.types import Numbers
from remuda.ui.plots.drawing import BLUE, INK, ORANGE, QUIET, look, new_figure, shorten

LONGEST_NAME = 30
LONGEST_ROW = 60  # characters of a legend, or a label, in one row
MOST_ROWS = 3  # of a label
FOCAL: dict[str, Any] = {"fmt": "o-", "color": BLUE}
BACKGROUND: dict[str, Any] = {"fmt": "s--", "color": ORANGE, "markerfacecolor": "white"}
MEAN: dict[str, Any] = {"fmt": ".:", "color": QUIET}
"""Styles that differ in black and white, too."""
SIZES: dict[str, Any] = {"capsize": 2.5, "markersize": 5, "linewidth": 1.5}


def focal_chart(found: FocalEvaluation) -> Figure:
    """Draw the mean return of a focal agent, of an agent in the background and of all agents.

    The x axis counts the *other* agents that are focal, as in Hughes et al. 2018, "Inequity
    aversion improves cooperation in intertemporal social dilemmas". So the vertical distance of the
    curves is the gain of an agent that alone changes its policy. The mean of all agents is that
    with an agent in the background. Only points of adjacent numbers are joined.
    """
    own, others = shorten((found.focal, found.background), LONGEST_NAME)
    counts, focal, focal_errors, background, background_errors, means = _columns(found)
    # if all seats are focal, no agent is in the background
    means = np.where(counts < found.seats, means, np.nan)
    with look():
        figure = new_figure(5.2, 3.5)
        axes = figure.subplots()
        drawn = {
            own: _draw(axes, counts - 1, focal, focal_errors, FOCAL),
            others: _draw(axes, counts, background, background_errors, BACKGROUND),
            "mean of all agents": _draw(axes, counts, means, None, MEAN),
        }
        last = found.seats - 1
        margin = max(0.3, 0.03 * last)
        axes.set_xlim(-margin, last + margin)
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.set_xlabel(_label(found, own), color=INK)
        is_unknown = any(line.get_marker() == "x" for line in axes.lines)
        errors = "± s.e.; × unknown" if is_unknown else "± s.e."
        axes.set_ylabel(f"return per agent and episode ({errors})", color=INK)
        axes.tick_params(labelcolor=INK)
        axes.grid(axis="y")
        names = [name for name, bars in drawn.items() if bars is not None]
        rows = 1 if len("".join(names)) <= LONGEST_ROW else len(names)
        lines = [drawn[name] for name in names]
        figure.legend(lines, names, loc="outside upper center", ncols=len(names) // rows)
    return figure


def _columns(found: FocalEvaluation) -> list[Numbers]:
    """Return numbers of focal seats, sorted, and the means and errors to draw."""
    keys = ("focal_seats", "focal", "focal_error", "background", "background_error", "all_seats")
    returns = sorted(found.returns, key=lambda each: each.focal_seats)
    return [np.array([getattr(each, key) for each in returns], np.float64) for key in keys]


def _label(found: FocalEvaluation, own: str) -> str:
    """Return the label of the x axis, with the agents that it does not count."""
    text = f"number of other agents that play {own} (of {found.seats - 1})"
    if not found.scripted:
        return text
    besides = f"besides {found.reserved}"
    rows = textwrap.wrap(besides, LONGEST_ROW, max_lines=MOST_ROWS, placeholder=" …")
    return "\n".join([text, *rows])


def _draw(
    axes: Axes, places: Numbers, means: Numbers, errors: Numbers | None, style: dict[str, Any]
) -> Any:
    """Draw known means with their errors, and a cross where the error is unknown.

    Points at adjacent places are joined. Return the handle of the legend; None if there is no mean.
    """
    is_known = np.isfinite(means)
    if not is_known.any():
        return None
    gaps = np.flatnonzero(np.diff(places[is_known]) != 1) + 1
    x, y = (np.insert(each[is_known], gaps, np.nan) for each in (places, means))
    bars = None if errors is None else np.insert(errors[is_known], gaps, np.nan)
    drawn = axes.errorbar(x, y, bars, **SIZES, **style)
    if errors is not None and (is_unknown := is_known & ~np.isfinite(errors)).any():
        axes.plot(places[is_unknown], means[is_unknown], "x", color=INK, markersize=8, zorder=3)
    return drawn
