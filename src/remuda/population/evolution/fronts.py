"""Pareto fronts of points with several objectives, and crowding distances.

Objectives are columns of `points [P, D]`, and are minimised unless `maximise` is true. A point
dominates another if it is nowhere worse and somewhere better; equal points do not dominate each
other, and are on the same front.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from remuda.errors import UsageError
from remuda.types import Bools, Integers, Numbers

Maximise = bool | Sequence[bool]  # one flag for all objectives, or one for each


def fronts(points: npt.ArrayLike, maximise: Maximise = False) -> Integers:
    """Return the number of each point's front, [P]: 0 for undominated points.

    Points of front 1 are dominated only by points of front 0, and so on (non-dominated sort, Deb et
    al. 2002).

    `points`: [P, D].
    """
    return sort_into_fronts(minimised(points, maximise))


def crowding_distance(points: npt.ArrayLike, maximise: Maximise = False) -> Numbers:
    """Return the crowding distance of each point on its front, [P]; infinite at the ends.

    Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II", section III-B:
    the sum over objectives of the distance between the two neighbours, relative to the front's
    extent. Equal points count as one and share their distance, so the order of points does not
    matter.
    """
    p = check_finite(minimised(points, maximise))
    ranks = sort_into_fronts(p)
    found = np.zeros(len(p))
    for rank in range(int(ranks.max(initial=-1)) + 1):
        front = np.flatnonzero(ranks == rank)
        unique, inverse = np.unique(p[front], axis=0, return_inverse=True)
        sums = np.zeros(len(unique))
        for objective in range(p.shape[1]):
            order = np.argsort(unique[:, objective], kind="stable")
            values = unique[order, objective]
            extent = values[-1] - values[0]
            if extent > 0.0:
                sums[order[1:-1]] += (values[2:] - values[:-2]) / extent
                sums[(unique[:, objective] == values[0]) | (unique[:, objective] == values[-1])] = (
                    np.inf
                )
        if len(unique) == 1:
            sums[:] = np.inf
        found[front] = sums[inverse.reshape(-1)]
    return found


def minimised(points: npt.ArrayLike, maximise: Maximise = False) -> Numbers:
    """Return the points [P, D] with the signs of maximised objectives flipped."""
    p = np.asarray(points, np.float64)
    if p.ndim != 2 or p.shape[1] < 1:
        raise UsageError(f"points are {p.shape}; they must be [points, objectives]")
    missing: Bools = np.isnan(p)
    if missing.any():
        point, objective = np.argwhere(missing)[0]
        raise UsageError(
            f"objective {objective} of point {point} is not a number; leave out the "
            f"{missing.any(1).sum()} points with such objectives"
        )
    # Adding 0 turns -0.0 into 0.0 for code that compares bytes.
    return p * signs(maximise, p.shape[1]) + 0.0


def check_finite(points: Numbers) -> Numbers:
    """Check that no objective of points [P, D] is infinite."""
    infinite = np.argwhere(np.isinf(points))
    if len(infinite):
        point, objective = infinite[0]
        raise UsageError(
            f"objective {objective} of point {point} is infinite, and distances to it would be "
            "too; leave the point out"
        )
    return points


def signs(maximise: Maximise, objectives: int) -> Numbers:
    flags = np.asarray(maximise)
    if flags.dtype != np.bool_ or flags.shape not in ((), (objectives,)):
        raise UsageError(
            f"maximise is {maximise!r}; it must be True or False, or one of them for each of "
            f"{objectives} objectives"
        )
    return np.where(np.broadcast_to(flags, (objectives,)), -1.0, 1.0)


def sort_into_fronts(points: Numbers) -> Integers:
    """Return the number of each point's front, for minimised points without NaN."""
    nowhere_worse: Bools = np.all(points[:, None] <= points, axis=-1)
    dominates = nowhere_worse & ~nowhere_worse.T  # [P, P]
    dominators = dominates.sum(0)  # of each point, among points without a front so far
    ranks = np.full(len(points), -1, np.int64)
    rank = 0
    while (front := (ranks < 0) & (dominators == 0)).any():
        ranks[front] = rank
        dominators -= dominates[front].sum(0)
        rank += 1
    return ranks
