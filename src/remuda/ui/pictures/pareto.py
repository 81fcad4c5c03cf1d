"""The picture of trade-offs: the Pareto front of two or three objectives."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from remuda.analysis.pareto import UncertainFront, uncertain_front
from remuda.analysis.population_report import Analysis
from remuda.analysis.rank import mean_payoff
from remuda.analysis.sampling import draws
from remuda.errors import UsageError
from remuda.types import Numbers
from remuda.ui.pictures.drawing import (
    BLUE,
    FEW,
    ORANGE,
    Picture,
    add_panel,
    mark_points,
    matches_in_words,
    name_points,
    new_figure,
    number_axes,
    shorten,
    unnamed,
)

SAMPLES = 200
"""Draws of the payoffs, for the uncertainty of objectives."""
SURE = 0.95
"""The share of draws from which a policy alone on the front is the best."""


@dataclass(frozen=True)
class Objectives:
    """The objectives of policies; all are maximised."""

    names: tuple[str, ...]
    """[policies]."""
    titles: tuple[str, ...]
    """[objectives]."""
    points: Numbers
    """[policies, objectives]."""
    covariances: Numbers
    """[policies, objectives, objectives] of the errors."""


def objectives_of(found: Analysis, rng: np.random.Generator, samples: int = SAMPLES) -> Objectives:
    """Return each policy's payoff: its mean, against its worst opponent, and of its opponents.

    The last one only if the game is not zero-sum: else it is the negative of the first.
    """
    payoffs = found.payoffs
    titles = ["mean payoff against all", "payoff against its worst opponent"]
    if not payoffs.is_zero_sum:
        titles.append("mean payoff of its opponents")

    def of(matrix: Numbers) -> Numbers:
        own = np.eye(len(matrix), dtype=np.bool_)
        columns = [mean_payoff(matrix), np.where(own, np.inf, matrix).min(1)]
        columns.append(mean_payoff(matrix.T))
        return np.stack(columns[: len(titles)], 1)

    points = of(payoffs.matrix)
    away = np.array([of(each[0]) - points for each in draws(payoffs, samples, rng)])
    covariances = np.einsum("kpi,kpj->pij", away, away) / samples
    return Objectives(payoffs.names, tuple(titles), points, covariances)


def analysis_pareto_picture(found: Analysis, rng: np.random.Generator) -> Picture:
    """Draw the Pareto front of an analysis."""
    name, heading = "pareto", "Pareto front"
    if len(found.payoffs.names) < 3:
        return Picture(name, heading, "Two policies have one opponent each: nothing is traded.")
    objectives = objectives_of(found, rng)
    front = uncertain_front(objectives.points, objectives.covariances, rng, maximise=True)
    first = np.flatnonzero(front.ranks == 0)
    if len(first) == 1 and front.probabilities[first[0]] >= SURE:
        best = objectives.names[first[0]]
        return Picture(name, heading, f"{best} is the best in all objectives: nothing is traded.")
    return pareto_picture(objectives, front, f"of {matches_in_words(found.payoffs)}")


def pareto_picture(objectives: Objectives, front: UncertainFront, source: str) -> Picture:
    """Draw two or three objectives, each pair of them in a panel, and their Pareto front.

    `source` is the origin of the numbers, such as `of 1,000 matches`.
    """
    number = objectives.points.shape[1]
    if number not in (2, 3):
        raise UsageError(f"a Pareto picture has 2 or 3 objectives; these are {number}")
    pairs = list(combinations(range(number), 2))
    side = 4.4 if number == 2 else 3.1
    step = side + 0.95
    figure = new_figure(len(pairs) * step + 0.15, 0.38 + side + 0.55)
    named = 0
    for panel, (x, y) in enumerate(pairs):
        axes = add_panel(figure, 0.8 + panel * step, 0.38, side, side)
        named = max(named, _draw_pair(axes, objectives, front, x, y))
        if not panel:
            axes.set_title("Which objectives cannot be had at once")
    count = len(objectives.names)
    on_front = int((front.ranks == 0).sum())
    errors = "; lines are standard errors" if count <= FEW and objectives.covariances.any() else ""
    caption = (
        f"Right and up is better; {on_front} of {count} policies are on the Pareto front (orange): "
        "no other is as good in all objectives and better in one"
        f"{errors}{unnamed(named, count)}; {source}."
    )
    return Picture("pareto", "Pareto front", caption, figure)


def _draw_pair(axes: Axes, objectives: Objectives, front: UncertainFront, x: int, y: int) -> int:
    """Draw one objective over another; return how many policies are named."""
    points, count = objectives.points[:, [x, y]], len(objectives.names)
    first = front.ranks == 0
    spread = np.sqrt(np.diagonal(objectives.covariances, axis1=1, axis2=2)[:, [x, y]])
    spread *= count <= FEW
    low, high = (points - spread).min(0), (points + spread).max(0)
    # Names stand beside points, so they take more room to the sides.
    room = np.where(high > low, high - low, 1.0) * ((0.26, 0.14) if count <= FEW else 0.14)
    axes.set_xlim(low[0] - room[0], high[0] + room[0])
    axes.set_ylim(low[1] - room[1], high[1] + room[1])
    axes.grid()
    if objectives.points.shape[1] == 2:
        _draw_staircase(axes, points[first])
    if spread.any():
        for own, colour in ((first, ORANGE), (~first, BLUE)):
            bars: dict[str, Any] = {"ecolor": colour, "elinewidth": 0.7, "alpha": 0.45, "zorder": 2}
            (xs, ys), (dx, dy) = points[own].T, spread[own].T
            axes.errorbar(xs, ys, dy, dx, fmt="none", **bars)
    mark_points(axes, points[~first], BLUE, count)
    mark_points(axes, points[first], ORANGE, count, "D")
    axes.set_xlabel(f"{objectives.titles[x]} (a match)")
    axes.set_ylabel(f"{objectives.titles[y]} (a match)")
    number_axes(axes)
    order = np.lexsort((-front.probabilities, ~first))
    return name_points(axes, points, shorten(objectives.names), order)


def _draw_staircase(axes: Axes, first: Numbers) -> None:
    """Bound the region that the front of two objectives dominates."""
    corners = first[np.argsort(first[:, 0], kind="stable")]
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    x = [left, *corners[:, 0], corners[-1, 0]]
    y = [corners[0, 1], *corners[:, 1], bottom]
    axes.step(x, y, where="pre", color=ORANGE, linewidth=1.0, alpha=0.7, zorder=1)
    axes.fill_between(x, y, bottom, step="pre", color=ORANGE, alpha=0.06, linewidth=0, zorder=0)
