"""Names beside points, placed so that none covers another name or a point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from remuda.analysis.payoff import Numbers
from remuda.types import Bools, Integers
from remuda.ui.pictures.drawing import QUIET, extent

DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
"""Where a name may stand from its point, those that are read best first."""
DISTANCES = (3.0, 7.0, 12.0, 18.0)
"""Points between the edge of a marker and its name; from the second on a line joins them."""
LINE = np.linspace(0.15, 1.0, 8)
"""The steps at which a line is looked at."""
GAP = 1.5
"""Points between names, and between names and markers of others."""


FEW = 24
"""The most policies whose uncertainty is drawn: more of it would hide the points."""


def place_labels(
    axes: Axes,
    points: npt.ArrayLike,
    names: Sequence[str],
    *,
    order: Sequence[int] | Integers,
    size: float,
    radius: float,
    occupied: npt.ArrayLike = (),
    insist: bool = False,
) -> list[int]:
    """Name points, as many as there is room for.

    Args:
        axes: with its limits; they are not changed.
        points: [N, 2] in data.
        names: [N].
        order: places of the names, the most important first.
        size: of the names, in typographic points.
        radius: of the markers, in typographic points.
        occupied: [M, 2] of the data: where no name may stand besides.
        insist: rather than leave a name out, let it cover what is `occupied`.

    Returns:
        The places of those that are named.
    """
    unit = axes.figure.dpi / 72.0
    here = axes.transData.transform(np.asarray(points, np.float64).reshape(-1, 2)) / unit
    besides = np.asarray(occupied, np.float64).reshape(-1, 2)
    taken = axes.transData.transform(besides) / unit if len(besides) else besides
    solid, soft = _boxes(here, radius), _boxes(taken, 1.0)
    frame = axes.bbox.get_points().reshape(-1) / unit + np.array([GAP, GAP, -GAP, -GAP])
    back = axes.transData.inverted().transform
    named = []
    for place in order:
        width, height = (72.0 * inches for inches in extent(names[place], size))
        # A point's own marker is where its name begins, and its line.
        others = np.delete(solid, place, axis=0)
        found = _free_box(here[place], width, height, radius, others, soft, frame, insist)
        if found is None:
            continue
        box, line = found
        solid = np.concatenate([solid, box[None], _boxes(line, 0.0)])
        named.append(int(place))
        if len(line):
            ends = back(np.array([here[place], line[-1]]) * unit)
            axes.plot(*ends.T, color=QUIET, linewidth=0.4, zorder=1.5, scalex=False, scaley=False)
        x, y = back((box[:2] + box[2:]) / 2.0 * unit)
        axes.text(x, y, names[place], fontsize=size, ha="center", va="center", zorder=5)
    return named


def _boxes(points: Numbers, radius: float) -> Numbers:
    return np.concatenate([points - radius, points + radius], 1)


def _free_box(
    point: Numbers,
    width: float,
    height: float,
    radius: float,
    others: Numbers,
    soft: Numbers,
    frame: Numbers,
    insist: bool,
) -> tuple[Numbers, Numbers] | None:
    """The box [x0, y0, x1, y1] of a name that covers nothing; None: there is no room.

    With it [S, 2] steps of the line that joins it to its point, which covers nothing either; none
    where the name stands close. If need be, `insist` finds the box that covers the least of `soft`.
    """
    half = np.array([width, height]) / 2.0
    towards = np.array(DIRECTIONS, np.float64)
    slant = np.where(towards.all(1), 0.7, 1.0)
    away = np.add.outer(DISTANCES, np.full(len(towards), radius)) * slant
    middles = point + towards * (away[..., None] + half)
    boxes = np.concatenate([middles - half, middles + half], -1).reshape(-1, 4)
    inside = np.array((boxes[:, :2] >= frame[:2]) & (boxes[:, 2:] <= frame[2:])).all(1)
    free: Bools = np.array(inside & ~_overlaps(boxes, others).any(1))
    covered = _overlaps(boxes, soft).sum(1)
    # What a line cannot avoid is what its own point lies in.
    around = others if insist else np.concatenate([others, soft])
    ahead = around[~_overlaps(around, _boxes(point[None], radius)).any(1)]
    for place in np.argsort(covered, kind="stable"):
        if not free[place] or (covered[place] and not insist):
            continue
        if place < len(towards):
            return boxes[place], np.zeros((0, 2))
        end = np.clip(point, boxes[place, :2], boxes[place, 2:])
        line = point + LINE[:, None] * (end - point)
        if not _overlaps(_boxes(line, 0.0), ahead).any():
            return boxes[place], line
    return None


def _overlaps(boxes: Numbers, others: Numbers) -> Bools:
    """[N, M]: which of the boxes [N, 4] come nearer than `GAP` to which of the others [M, 4]."""
    x0, y0, x1, y1 = boxes.T[:, :, None]
    beside = (x0 - GAP < others[:, 2]) & (x1 + GAP > others[:, 0])
    found: Bools = beside & (y0 - GAP < others[:, 3]) & (y1 + GAP > others[:, 1])
    return found
