"""Pictures that show policies as points: cycles, diversity and the Pareto front."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Ellipse

from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.analysis.payoffs.sampling import draws
from remuda.analysis.population_report import Analysis
from remuda.analysis.ranking.rank import mean_payoff
from remuda.analysis.society.pareto import UncertainFront, uncertain_front
from remuda.analysis.structure.mds import PolicyMap, payoff_map
from remuda.analysis.structure.transitivity import Disc, disc, split
from remuda.types import Numbers
from remuda.ui.plots.drawing import (
    BLUE,
    FAINT,
    FEW,
    ORANGE,
    QUIET,
    Picture,
    mark_points,
    matches_in_words,
    name_points,
    new_figure,
    number_axes,
    unnamed,
)
from remuda.ui.plots.rows import best_first

SAMPLES = 100  # draws of the payoffs, for the uncertainty of positions
SECOND = 0.1  # minimum share of the cycles for a second plane
SIDE = 4.4  # inches of a plane's side


@dataclass(frozen=True)
class CyclicPlanes:
    """The cyclic part of a game's payoffs, as points in planes."""

    found: Disc  # the planes at the mean payoffs
    errors: Numbers
    """[planes, policies]: root mean squared distance of a policy's drawn positions from its
    position at the mean payoffs, after rotation."""


def cyclic_planes(
    payoffs: Payoffs, rng: np.random.Generator, samples: int = SAMPLES
) -> CyclicPlanes:
    """Embed the cycles of a symmetric game of three or more policies in one or two planes."""
    planes = min(2, len(payoffs.names) // 2)
    found = disc(split(payoffs.matrix).curl, planes)
    if planes == 2 and not found.explained[1] >= SECOND:
        found = Disc(found.coordinates[:1], found.strengths[:1], found.explained[:1])
    points = found.coordinates[..., 0] + 1j * found.coordinates[..., 1]
    squares = np.zeros(points.shape)
    for each in draws(payoffs, samples, rng):
        drawn = disc(split(each[0]).curl, len(points)).coordinates
        others = drawn[..., 0] + 1j * drawn[..., 1]
        # The best rotation. A reflection would reverse the cycles.
        turn = (others.conj() * points).sum(1, keepdims=True)
        squares += np.abs(others * np.exp(1j * np.angle(turn)) - points) ** 2 / samples
    return CyclicPlanes(found, np.sqrt(squares))


def structure_picture(found: Analysis, rng: np.random.Generator) -> Picture:
    """Draw the cycles of a game: A beats B beats C beats A, beyond transitive skill."""
    name, heading = "structure", "Cycles"
    payoffs = found.payoffs
    if len(payoffs.names) < 3:
        return Picture(name, heading, "Two policies cannot form a cycle.")
    if not found.structure.cyclic_interval[0] > 0.0:
        words = (
            "No cycle is certain: the policies may differ only in skill. More matches may show one."
        )
        return Picture(name, heading, words)
    planes = cyclic_planes(payoffs, rng)
    share = found.structure.cyclic
    count = len(planes.found.strengths)
    figure = new_figure(count * (SIDE + 0.35), SIDE + 0.7)
    for plane, axes in enumerate(figure.subplots(1, count, squeeze=False)[0]):
        _draw_plane(axes, found, planes, plane)
    cycle = found.cycles.strongest
    arrows = (
        f"; arrows: the strongest certain cycle, of {len(cycle.names)} policies" if cycle else ""
    )
    caption = (
        "Cycles beyond skill: each policy beats those up to half a turn counterclockwise of it, "
        f"more strongly when both are far out; cycles explain {share:.0%} of the payoff "
        f"differences{arrows}{unnamed(len(payoffs.names))}. "
        f"Based on {matches_in_words(payoffs)}."
    )
    return Picture(name, heading, caption, figure)


def _draw_plane(axes: Axes, found: Analysis, planes: CyclicPlanes, plane: int) -> None:
    points, errors = planes.found.coordinates[plane], planes.errors[plane]
    count = len(points)
    scale = float(np.abs(points).max()) or 1.0
    axes.set(xlim=(-1.3 * scale, 1.3 * scale), ylim=(-1.3 * scale, 1.3 * scale), aspect="equal")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(FAINT)
    part = planes.found.explained[plane]
    axes.set_title(f"Plane {plane + 1}: {part:.0%} of the cycles", pad=16.0)
    for share in (0.5, 1.0):
        axes.add_patch(Circle((0, 0), share * scale, fill=False, edgecolor=FAINT, linewidth=0.8))
    axes.plot(0, 0, "+", color=QUIET, markersize=6)
    if count <= FEW:
        for point, error in zip(points, errors, strict=True):
            axes.add_patch(Circle(point, error, color=BLUE, alpha=0.10, linewidth=0))
    mark_points(axes, points, BLUE, count)
    order = np.argsort(-np.linalg.norm(points, axis=1), kind="stable")
    cycle = found.cycles.strongest
    if plane == 0 and cycle is not None:
        loop = [found.payoffs.names.index(name) for name in cycle.names]
        order = np.array([*loop, *(place for place in order if place not in loop)])
        arrow = {"arrowstyle": "-|>", "color": ORANGE, "shrinkA": 5.0, "shrinkB": 5.0}
        for begin, end in zip(points[loop], np.roll(points[loop], -1, axis=0), strict=True):
            axes.annotate("", tuple(end), tuple(begin), arrowprops=arrow, zorder=2.5)
    axes.annotate(
        "beats those counterclockwise  ↺",
        (0.0, 1.0),
        (0, 3),
        xycoords="axes fraction",
        textcoords="offset points",
        color=QUIET,
        fontsize=7.5,
    )
    name_points(axes, points, found.payoffs.names, order)


def diversity_picture(found: Analysis, rng: np.random.Generator) -> Picture:
    """Draw policies as points, near each other if their payoffs are similar."""
    name, heading = "diversity", "Diversity"
    payoffs, count = found.payoffs, len(found.payoffs.names)
    if count < 3:
        return Picture(name, heading, "A map needs at least three policies.")
    if found.diversity is None or found.diversity.null_share > 1.0 - found.diversity.level:
        return Picture(name, heading, found.in_words()["diversity"])
    where = payoff_map(payoffs, rng, draws=SAMPLES)
    figure = new_figure(SIDE + 1.0, SIDE + 0.9)
    _draw_map(figure.subplots(), where, found)
    caption = (
        "Policies with similar payoffs against the same opponents are near each other; the picture "
        f"shows {min(where.share, 1.0):.0%} of the payoff differences; axes are in payoff "
        f"per match{unnamed(count)}. Based on {matches_in_words(payoffs)}."
    )
    return Picture(name, heading, caption, figure)


def _draw_map(axes: Axes, where: PolicyMap, found: Analysis) -> None:
    points, count = where.positions, len(where.positions)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.15)
    number_axes(axes, 8)
    axes.set_title("Similarity of policies")
    axes.grid()
    mark_points(axes, points, BLUE, count)
    if count <= FEW:
        for point, spread in zip(points, where.spread, strict=True):
            axes.add_patch(_ellipse(point, spread))
    first, second, *_ = (*where.shares, 0.0)
    axes.set_xlabel(f"first direction: {first:.0%} of the differences")
    axes.set_ylabel(f"second direction: {second:.0%} of the differences")
    name_points(axes, points, found.payoffs.names, best_first(found))


def _ellipse(point: Numbers, spread: Numbers) -> Ellipse:
    values, vectors = np.linalg.eigh(spread)
    wide, high = 2.0 * np.sqrt(np.maximum(values[::-1], 0.0))
    x, y = vectors[:, 1]
    angle = float(np.degrees(np.arctan2(y, x)))
    return Ellipse(tuple(point), wide, high, angle=angle, color=BLUE, alpha=0.13, linewidth=0)


@dataclass(frozen=True)
class Objectives:
    """The objectives of policies; all are maximised."""

    names: tuple[str, ...]  # [policies]
    titles: tuple[str, ...]  # [objectives]
    points: Numbers  # [policies, objectives]
    covariances: Numbers  # [policies, objectives, objectives] of the errors


def objectives_of(found: Analysis, rng: np.random.Generator, samples: int = 200) -> Objectives:
    """Return the mean and worst payoff and, in general-sum games, the opponents' mean payoff."""
    payoffs = found.payoffs
    titles = ["mean payoff against all", "payoff against its hardest opponent"]
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
        return Picture(name, heading, "The front needs at least three policies.")
    objectives = objectives_of(found, rng)
    front = uncertain_front(objectives.points, objectives.covariances, rng, maximise=True)
    first = np.flatnonzero(front.ranks == 0)
    if len(first) == 1 and front.probabilities[first[0]] >= 0.95:
        best = objectives.names[first[0]]
        return Picture(
            name, heading, f"{best} is the best in all objectives, so there is no trade-off."
        )
    return pareto_picture(objectives, front, f"Based on {matches_in_words(found.payoffs)}")


def pareto_picture(objectives: Objectives, front: UncertainFront, source: str) -> Picture:
    """Draw each pair of two or three objectives in a panel, and their Pareto front."""
    number = objectives.points.shape[1]
    pairs = list(combinations(range(number), 2))
    side = SIDE if number == 2 else 3.1
    figure = new_figure(len(pairs) * (side + 0.95), side + 0.9)
    panels = figure.subplots(1, len(pairs), squeeze=False)[0]
    panels[0].set_title("Trade-offs between objectives")
    for axes, (x, y) in zip(panels, pairs, strict=True):
        _draw_pair(axes, objectives, front, x, y)
    count = len(objectives.names)
    on_front = int((front.ranks == 0).sum())
    errors = "; lines are standard errors" if count <= FEW and objectives.covariances.any() else ""
    caption = (
        f"Right and up is better. {on_front} of {count} policies are on the Pareto front (orange): "
        "no other policy is as good in all objectives and better in one"
        f"{errors}{unnamed(count)}. {source}."
    )
    return Picture("pareto", "Pareto front", caption, figure)


def _draw_pair(axes: Axes, objectives: Objectives, front: UncertainFront, x: int, y: int) -> None:
    points, count = objectives.points[:, [x, y]], len(objectives.names)
    first = front.ranks == 0
    spread = np.sqrt(np.diagonal(objectives.covariances, axis1=1, axis2=2)[:, [x, y]])
    axes.margins(0.14)
    axes.grid()
    if objectives.points.shape[1] == 2:  # the border of what the front dominates
        corners = points[first][np.argsort(points[first, 0], kind="stable")]
        axes.step(*corners.T, where="pre", color=ORANGE, linewidth=1.0, alpha=0.7, zorder=1)
    if count <= FEW and spread.any():
        for own, colour in ((first, ORANGE), (~first, BLUE)):
            bars: dict[str, Any] = {"ecolor": colour, "elinewidth": 0.7, "alpha": 0.45, "zorder": 2}
            (xs, ys), (dx, dy) = points[own].T, spread[own].T
            axes.errorbar(xs, ys, dy, dx, fmt="none", **bars)
    mark_points(axes, points[~first], BLUE, count)
    mark_points(axes, points[first], ORANGE, count, "D")
    axes.set_xlabel(f"{objectives.titles[x]} (per match)")
    axes.set_ylabel(f"{objectives.titles[y]} (per match)")
    number_axes(axes)
    name_points(axes, points, objectives.names, np.lexsort((-front.probabilities, ~first)))
