"""Trade-offs between several objectives: Pareto fronts and their uncertainty.

Objectives are columns of `points [P, D]`. They are minimised by default; `maximise` is one flag for
all objectives, or one for each. A point dominates another if it is worse in no objective and better
in at least one. Equal points do not dominate each other, and are on the same front.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import Summary
from remuda.analysis.payoffs.bias import check_draws
from remuda.errors import UsageError
from remuda.population.evolution.fronts import (
    Maximise,
    check_finite,
    minimised,
    signs,
    sort_into_fronts,
)
from remuda.types import Integers, Numbers


def hypervolume(
    points: npt.ArrayLike, reference: npt.ArrayLike, maximise: Maximise = False
) -> float:
    """Return the volume that points dominate, up to a reference point.

    Zitzler and Thiele 1998, "Multiobjective optimization using evolutionary algorithms: a
    comparative case study"; computed by the library moocore. A point that is not better than the
    reference in every objective adds nothing.

    `points`: [P, D]; `reference`: [D] a point worse than all points of interest; use the same for
    all fronts that you compare.
    """
    p, limit = minimised(points, maximise), np.asarray(reference, np.float64)
    if limit.shape != (p.shape[1],) or not np.isfinite(limit).all():
        raise UsageError(
            f"reference is {limit.tolist()}; it must be {p.shape[1]} numbers, one for each "
            "objective"
        )
    try:
        import moocore
    except ImportError:
        raise UsageError(
            "hypervolumes are computed by moocore, which is not installed: "
            "pip install -e '.[analysis]'"
        ) from None
    limit = limit * signs(maximise, p.shape[1])
    better = check_finite(p[(p < limit).all(1)])
    return float(moocore.hypervolume(better, ref=limit)) if len(better) else 0.0


@dataclass(frozen=True)
class UncertainFront(Summary):
    """The front of points whose objectives are estimated from samples."""

    probabilities: Numbers  # [P] probability that each point is on the first front
    errors: Numbers  # [P] standard errors of the probabilities, from the number of draws
    ranks: Integers  # [P] number of each point's front at the means; 0 is the first
    draws: int


def uncertain_front(
    means: npt.ArrayLike,
    covariances: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    maximise: Maximise = False,
    draws: int = 1000,
) -> UncertainFront:
    """Estimate the probability that each point is on the front, by drawing points.

    Each point is drawn from the normal distribution around its means. If many points are equally
    good, each is on the front only in some draws, so a small probability does not make a point bad.
    A very uncertain point just behind the front reaches it too often. The probabilities show which
    points deserve more matches.

    `means`: [P, D] of the objectives; `covariances`: [P, D, D] of the means of each point.
    """
    check_draws(draws)
    p, noise = minimised(means, maximise), np.asarray(covariances, np.float64)
    if noise.shape != (*p.shape, p.shape[1]) or not np.isfinite(noise).all():
        raise UsageError(
            f"covariances are {noise.shape}; they must be finite, {(*p.shape, p.shape[1])}"
        )
    values, vectors = np.linalg.eigh(noise)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    factors, on_front = signs(maximise, p.shape[1]), np.zeros(len(p))
    for _ in range(draws):
        drawn = np.einsum("pij,pj->pi", roots, rng.standard_normal(p.shape))
        on_front += sort_into_fronts(p + drawn * factors) == 0
    share = on_front / draws
    return UncertainFront(share, np.sqrt(share * (1.0 - share) / draws), sort_into_fronts(p), draws)
