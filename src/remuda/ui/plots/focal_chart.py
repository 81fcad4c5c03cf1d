"""A Schelling diagram: the mean return of an agent by the number of other focal agents."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from remuda.evaluation.tournaments.focal import FocalEvaluation
from remuda.ui.plots.drawing import BLUE, INK, ORANGE, QUIET, look, new_figure, shorten

LONGEST_NAME = 30
LONGEST_ROW = 60  # characters of a legend in one row
FOCAL: dict[str, Any] = {"fmt": "o-", "color": BLUE}
BACKGROUND: dict[str, Any] = {"fmt": "s--", "color": ORANGE, "markerfacecolor": "white"}
"""Styles that differ in black and white, too."""


def focal_chart(found: FocalEvaluation) -> Figure:
    """Draw the mean return of a focal agent, of an agent in the background and of all agents.

    The x axis counts the *other* agents that are focal, as in Hughes et al. 2018, "Inequity
    aversion improves cooperation in intertemporal social dilemmas". So the vertical distance of the
    curves is the gain of an agent that alone changes its policy.
    """
    own, others = shorten((found.focal, found.background), LONGEST_NAME)
    counts, means = _columns(found, "focal_seats", "all_seats")
    with look():
        figure = new_figure(5.2, 3.5)
        axes = figure.subplots()
        lines: list[Any] = [
            _draw(axes, found, "focal", -1, FOCAL),
            _draw(axes, found, "background", 0, BACKGROUND),
            *axes.plot(counts, np.where(counts < found.seats, means, np.nan), ":", color=QUIET),
        ]
        last = found.seats - 1
        margin = max(0.3, 0.03 * last)
        axes.set_xlim(-margin, last + margin)
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.set_xlabel(f"number of other agents that play {own} (of {last})", color=INK)
        axes.set_ylabel("return per agent and episode (± s.e.)", color=INK)
        axes.tick_params(labelcolor=INK)
        axes.grid(axis="y")
        names = own, others, f"mean of all, if {others}"
        rows = 1 if len("".join(names)) <= LONGEST_ROW else len(names)
        figure.legend(lines, names, loc="outside upper center", ncols=len(names) // rows)
    return figure


def _columns(found: FocalEvaluation, *keys: str) -> list[np.ndarray]:
    """Return values of the returns, by number of focal seats."""
    returns = sorted(found.returns, key=lambda each: each.focal_seats)
    return [np.array([getattr(each, key) for each in returns], np.float64) for key in keys]


def _draw(
    axes: Axes, found: FocalEvaluation, side: str, shift: int, style: dict[str, Any]
) -> ErrorbarContainer:
    """Draw one side's mean returns with standard errors; numbers without such a seat are NaN."""
    counts, means, errors = _columns(found, "focal_seats", side, f"{side}_error")
    is_known = np.isfinite(means)
    places, shown = counts[is_known] + shift, np.nan_to_num(errors[is_known])
    sizes: dict[str, Any] = {"capsize": 2.5, "markersize": 5, "linewidth": 1.5}
    return axes.errorbar(places, means[is_known], shown, **sizes, **style)
