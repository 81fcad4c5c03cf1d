"""Measures of a population's diversity, based on the results of its policies.

The measured policies are the strategies of the first of two roles. They are compared by their
payoffs against the strategies of the second role. Noise makes equal policies look diverse, so
functions of `Payoffs` return an estimate without that bias, and its null distribution
(`remuda.analysis.payoffs.bias`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist, squareform

from remuda.analysis.payoffs.bias import Estimate, estimate
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.errors import UsageError
from remuda.types import Bools, Numbers


def expected_cardinality(
    matrix: npt.ArrayLike, scale: float = 1.0, errors: npt.ArrayLike | None = None
) -> float:
    """Return the expected cardinality of a determinantal point process over payoff rows.

    trace(I - (L + I)^-1) with L = M M^T (Perez-Nieves et al. 2021, "Modelling behavioural diversity
    for learning in open-ended games"), where a row of M holds a policy's payoffs against each
    opponent. The result is between 0 and N. It depends on the unit of payoffs: a policy adds
    almost 1 if the part of its row that is orthogonal to the others is long relative to `scale`.

    - `matrix`: [N, M] payoffs.
    - `errors`: [N, M] standard errors, whose squares are subtracted from the diagonal of L, to
      remove the bias from noise. Positive and negative eigenvalues then cancel.
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
