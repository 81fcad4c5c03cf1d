"""Measures of a population's diversity by the results of its policies.

All come from the payoffs of a game of two roles: the policies in question are the strategies of the
first role, compared by their results against those of the second. Noise makes equal policies look
diverse, so functions of `Payoffs` return an estimate without that bias, and its null distribution
(`remuda.analysis.bias`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist, squareform

from remuda.analysis.bias import Estimate, check_draws, estimate
from remuda.analysis.payoff import Numbers, Payoffs
from remuda.analysis.plain import plain
from remuda.errors import UsageError
from remuda.types import Bools

Mixture = npt.ArrayLike | Callable[[Numbers], npt.ArrayLike]
"""Probabilities [N] of the policies, or a function that computes them from payoffs [N, N]."""


def expected_cardinality(
    matrix: npt.ArrayLike, scale: float = 1.0, errors: npt.ArrayLike | None = None
) -> float:
    """Return the expected cardinality of a determinantal point process over payoff rows.

    trace(I - (L + I)^-1) with L = M M^T (Perez-Nieves et al. 2021, "Modelling behavioural diversity
    for learning in open-ended games"), where a row of M holds a policy's payoffs against each
    opponent: between 0 and N. It depends on the unit of payoffs: a policy counts fully if its row
    is long in units of `scale`.

    - `matrix`: [N, M] payoffs.
    - `errors`: [N, M] standard errors, to remove the noise: it only adds the squared errors to the
      diagonal of L. Remaining eigenvalues of either sign cancel.
    """
    m = _matrix(matrix)
    if not (np.isfinite(scale) and scale > 0.0):
        raise UsageError(f"scale is {scale}; it must be a difference of payoffs greater than 0")
    kernel = (m @ m.T) / scale**2
    if errors is not None:
        kernel -= np.diag((_like(errors, m, "errors") ** 2).sum(1)) / scale**2
    values = np.linalg.eigvalsh(kernel)
    if errors is None:
        values = np.maximum(values, 0.0)
    return float((values / (1.0 + np.abs(values))).sum())


def effective_diversity(matrix: npt.ArrayLike, mixture: npt.ArrayLike, tie: float = 0.0) -> float:
    """Return what policies of a mixture win of each other where they win, in payoff units.

    p^T max(A, 0) p for a mixture p, the Nash equilibrium's, and payoffs A (Balduzzi et al. 2019,
    "Open-ended learning in symmetric zero-sum games"). It is 0 where one policy beats all, and
    where policies of the mixture only tie.

    `matrix`: [N, N]; `mixture`: [N]; `tie`: the payoff of a tie: 0 in a zero-sum game, 0.5 for
    shares of wins.
    """
    m = _matrix(matrix, square=True)
    p = _mixture(mixture, len(m))
    return float(p @ np.maximum(m - tie, 0.0) @ p)


def rectified_nash(matrix: npt.ArrayLike, mixture: npt.ArrayLike, tie: float = 0.0) -> Numbers:
    """Return the opponents' mixture for each policy under PSRO_rN: [N, N], by row.

    A policy of the Nash mixture trains against those of the mixture that it beats or ties with,
    itself included, in proportion to their probabilities (Balduzzi et al. 2019, their rectified
    Nash response). The others do not train: their rows are 0.

    `matrix`: [N, N] payoffs; `mixture`: [N] the Nash equilibrium.
    """
    m = _matrix(matrix, square=True)
    p = _mixture(mixture, len(m))
    trains = ((m >= tie) | np.eye(len(m), dtype=np.bool_)) & (p > 0.0)[:, None]
    weights = np.where(trains, p, 0.0)
    total = weights.sum(1, keepdims=True)
    rows: Numbers = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0.0)
    return rows


def payoff_distances(matrix: npt.ArrayLike, errors: npt.ArrayLike | None = None) -> Numbers:
    """Return the root mean squared difference of payoff rows: [N, N].

    `matrix`: [N, M]; `errors`: [N, M] standard errors, whose average contribution is removed;
    results below 0 become 0.
    """
    m = _matrix(matrix)
    squared: Numbers = squareform(pdist(m, "sqeuclidean")) / m.shape[1]
    if errors is not None:
        noise = (_like(errors, m, "errors") ** 2).mean(1)
        squared = np.maximum(squared - noise[:, None] - noise[None], 0.0)
        np.fill_diagonal(squared, 0.0)
    distances: Numbers = np.sqrt(squared)
    return distances


def response_diversity(
    payoffs: Payoffs,
    rng: np.random.Generator,
    *,
    scale: float = 1.0,
    draws: int = 400,
    level: float = 0.95,
) -> Estimate:
    """Estimate the expected cardinality of the first role's strategies."""
    errors = payoffs.errors[0]
    return estimate(
        payoffs,
        lambda matrix: expected_cardinality(matrix, scale),
        rng,
        unbiased=lambda matrix: expected_cardinality(matrix, scale, errors),
        draws=draws,
        bounds=(0.0, float(len(payoffs.matrix))),
        level=level,
    )


def nash_diversity(
    payoffs: Payoffs,
    mixture: Mixture,
    rng: np.random.Generator,
    *,
    tie: float = 0.0,
    draws: int = 400,
    level: float = 0.95,
) -> Estimate:
    """Estimate the effective diversity under a mixture.

    Noise around a tie only ever adds to it, and no formula removes all of that: compare the value
    with its null interval.

    `mixture`: [N], or a function of payoffs, called again for each sample.
    """

    def measure(matrix: Numbers) -> float:
        return effective_diversity(matrix, _asked(mixture, matrix), tie)

    return estimate(payoffs, measure, rng, draws=draws, bounds=(0.0, np.inf), level=level)


@dataclass(frozen=True)
class TrainingPlan:
    """The opponents of each policy under PSRO_rN.

    Attributes:
        names: of the policies.
        weights: [N, N] at the means: by row, the mixture of a policy's opponents.
        shares: [N, N] of the samples in which this policy trains against that one.
        trains: [N] of the samples in which this policy trains at all.
    """

    names: tuple[str, ...]
    weights: Numbers
    shares: Numbers
    trains: Numbers

    def as_summary(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "names": list(self.names),
            "weights": plain(self.weights),
            "shares": plain(self.shares),
            "trains": plain(self.trains),
        }


def rectified_plan(
    payoffs: Payoffs,
    mixture: Mixture,
    rng: np.random.Generator,
    *,
    tie: float = 0.0,
    draws: int = 400,
) -> TrainingPlan:
    """Return the PSRO_rN training plan, and how often samples of the payoffs agree."""
    check_draws(draws)
    matrix = payoffs.matrix
    weights = rectified_nash(matrix, _asked(mixture, matrix), tie)
    shares = np.zeros_like(weights)
    trains = np.zeros(len(weights))
    for sample in payoffs.sample(draws, rng):
        drawn = rectified_nash(sample[0], _asked(mixture, sample[0]), tie) > 0.0
        shares += drawn
        trains += drawn.any(1)
    return TrainingPlan(payoffs.names, weights, shares / draws, trains / draws)


def _asked(mixture: Mixture, matrix: Numbers) -> npt.ArrayLike:
    return mixture(matrix) if callable(mixture) else mixture


def _matrix(matrix: npt.ArrayLike, square: bool = False) -> Numbers:
    found = np.asarray(matrix, np.float64)
    if found.ndim != 2 or min(found.shape) < 1 or (square and found.shape[0] != found.shape[1]):
        wanted = "[N, N]" if square else "[N, M]"
        raise UsageError(f"payoffs are {found.shape}; they must be {wanted}")
    missing: Bools = ~np.isfinite(found)
    if missing.any():
        row, column = np.argwhere(missing)[0]
        raise UsageError(
            f"payoffs: {found[row, column]} at row {row}, column {column}; let these two play, or "
            "leave one out"
        )
    return found


def _like(values: npt.ArrayLike, matrix: Numbers, what: str) -> Numbers:
    found = np.asarray(values, np.float64)
    if found.shape != matrix.shape or not np.isfinite(found).all():
        raise UsageError(f"{what} are {found.shape}; they must be finite, {matrix.shape}")
    return found


def _mixture(mixture: npt.ArrayLike, count: int) -> Numbers:
    p = np.asarray(mixture, np.float64)
    if p.shape != (count,):
        raise UsageError(f"mixture is {p.shape}; it must be ({count},), one for each policy")
    if not ((p >= -1e-9).all() and abs(p.sum() - 1.0) <= 1e-6):
        raise UsageError(f"mixture adds up to {p.sum():g}; it must be probabilities")
    return np.maximum(p, 0.0)
