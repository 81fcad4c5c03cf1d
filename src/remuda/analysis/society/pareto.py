"""Trade-offs between several objectives: Pareto fronts and their uncertainty.

Objectives are columns of `points [P, D]`. They are minimised by default; `maximise` is one flag for
all objectives, or one for each. A point dominates another if it is worse in no objective and better
in at least one. Equal points do not dominate each other, and are on the same front.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    p = minimised(points, maximise)
    return _hypervolume(p, _reference(reference, p, maximise))


@dataclass(frozen=True)
class UncertainFront(Summary):
    """The front of points whose objectives are estimated from samples."""

    probabilities: Numbers  # [P] probability that each point is on the first front
    errors: Numbers  # [P] standard errors of the probabilities, from the number of draws
    ranks: Integers  # [P] number of each point's front at the means; 0 is the first
    expected_ranks: Numbers  # [P] mean number of each point's front over the draws
    draws: int


def uncertain_front(
    means: npt.ArrayLike,
    errors: npt.ArrayLike,
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

    `means`: [P, D] of the objectives; `errors`: [P, D] their standard errors, or [P, D, D]
    covariances of the means of each point.
    """
    check_draws(draws)
    p = minimised(means, maximise)
    on_front, ranks = np.zeros(len(p)), np.zeros(len(p))
    factors = signs(maximise, p.shape[1])
    noise = _noise(errors, p.shape)
    for _ in range(draws):
        drawn: Integers = sort_into_fronts(p + noise(rng) * factors)
        on_front += drawn == 0
        ranks += drawn
    share = on_front / draws
    return UncertainFront(
        share, np.sqrt(share * (1.0 - share) / draws), sort_into_fronts(p), ranks / draws, draws
    )


def _reference(reference: npt.ArrayLike, points: Numbers, maximise: Maximise) -> Numbers:
    found = np.asarray(reference, np.float64)
    if found.shape != (points.shape[1],) or not np.isfinite(found).all():
        raise UsageError(
            f"reference is {found.tolist()}; it must be {points.shape[1]} numbers, one for each "
            "objective"
        )
    return found * signs(maximise, points.shape[1])


def _noise(errors: npt.ArrayLike, shape: tuple[int, ...]) -> Any:
    """Return a function that draws noise [P, D] with these standard errors or covariances."""
    e = np.asarray(errors, np.float64)
    if not np.isfinite(e).all() or e.shape not in (shape, (*shape, shape[-1])):
        raise UsageError(
            f"errors are {e.shape}; they must be finite, {shape} standard errors or "
            f"{(*shape, shape[-1])} covariances"
        )
    if e.ndim == 2:
        if (e < 0.0).any():
            raise UsageError("errors: a standard error is less than 0")
        return lambda rng: rng.standard_normal(shape) * e
    values, vectors = np.linalg.eigh(e)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return lambda rng: np.einsum("pij,pj->pi", roots, rng.standard_normal(shape))


def _hypervolume(points: Numbers, reference: Numbers) -> float:
    try:
        import moocore
    except ImportError:
        raise UsageError(
            "hypervolumes are computed by moocore, which is not installed: "
            "pip install 'remuda-rl[analysis]'"
        ) from None
    better = check_finite(points[(points < reference).all(1)])
    if not len(better):
        return 0.0
    return float(moocore.hypervolume(better, ref=reference))
