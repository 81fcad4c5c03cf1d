"""The knee of a Pareto front: the compromise at which more of one objective begins to cost much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.analysis.pareto import Maximise, check_finite, fronts, minimised
from remuda.analysis.payoff import Numbers
from remuda.analysis.plain import plain
from remuda.errors import UsageError


@dataclass(frozen=True)
class Knee:
    """The point of a front where more of one objective begins to cost much of the others.

    Attributes:
        index: of the point; None where the front bulges the other way or is straight, or has
            fewer than three points.
        distances: [P] of each point from the line or plane through the ends of the front, in
            objectives scaled to the front's extent; greater than 0 on the better side; NaN for
            points that are not on the first front.
    """

    index: int | None
    distances: Numbers

    def as_summary(self) -> dict[str, Any]:
        """All of it as plain data; None stands for what is not known."""
        return {"index": self.index, "distances": plain(self.distances)}


def knee(points: npt.ArrayLike, maximise: Maximise = False) -> Knee:
    """Find the knee: the point farthest from the line or plane through the front's ends.

    Das 1999, "On characterizing the 'knee' of the Pareto curve based on normal-boundary
    intersection". Objectives are scaled so that the front reaches from 0 to 1 in each; the ends are
    the best points of each objective (of several, the one with the smallest sum of the others).
    With three objectives or more these need not span a plane; then it is the one on which the
    scaled objectives add up to 1.

    Args:
        points: [P, D].
        maximise: as for `remuda.analysis.pareto.fronts`.

    Raises:
        UsageError: as for `fronts`, an objective is infinite, or there are fewer than two.
    """
    p = check_finite(minimised(points, maximise))
    if p.shape[1] < 2:
        raise UsageError("a knee is a compromise of two objectives or more, and there is one")
    first = np.flatnonzero(fronts(p) == 0)
    distances = np.full(len(p), np.nan)
    if not len(first):
        return Knee(None, distances)
    front = p[first]
    low, extent = front.min(0), np.ptp(front, axis=0)
    scaled = (front - low) / np.where(extent > 0.0, extent, 1.0)
    ends = scaled[[np.lexsort((scaled.sum(1), scaled[:, d]))[0] for d in range(p.shape[1])]]
    normal = _normal(ends)
    distances[first] = (1.0 - scaled @ normal) / np.linalg.norm(normal)
    if len(np.unique(front, axis=0)) < 3 or np.nanmax(distances) <= 1e-9:
        return Knee(None, distances)
    return Knee(int(np.nanargmax(distances)), distances)


def _normal(ends: Numbers) -> Numbers:
    """Find the plane n x = 1 through the ends [D, D]: n [D], ones where it does not face 0."""
    ones = np.ones(len(ends))
    if np.linalg.matrix_rank(ends) < len(ends):
        return ones
    found = np.asarray(np.linalg.solve(ends, ones), np.float64)
    return found if (found > 0.0).all() else ones
