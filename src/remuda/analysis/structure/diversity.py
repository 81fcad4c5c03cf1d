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
from remuda.types import Numbers


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
    m = _checked(matrix)
    if not (np.isfinite(scale) and scale > 0.0):
        raise UsageError(f"scale is {scale}; it must be a difference of payoffs greater than 0")
    kernel = (m @ m.T) / scale**2
    if errors is not None:
        kernel -= np.diag((np.asarray(errors) ** 2).sum(1)) / scale**2
    values = np.linalg.eigvalsh(kernel)
    if errors is None:
        values = np.maximum(values, 0.0)
    return float((values / (1.0 + np.abs(values))).sum())


def payoff_distances(matrix: npt.ArrayLike) -> Numbers:
    """Return the root mean squared difference of payoff rows: [N, N] from [N, M]."""
    m = _checked(matrix)
    found: Numbers = np.sqrt(squareform(pdist(m, "sqeuclidean")) / m.shape[1])
    return found


def response_diversity(
    payoffs: Payoffs, rng: np.random.Generator, scale: float = 1.0, draws: int = 400
) -> Estimate:
    """Estimate the expected cardinality of the first role's strategies."""
    errors = payoffs.errors[0]
    return estimate(
        payoffs,
        lambda matrix: expected_cardinality(matrix, scale),
        lambda matrix: expected_cardinality(matrix, scale, errors),
        rng,
        draws,
        bounds=(0.0, float(len(payoffs.matrix))),
    )


def _checked(matrix: npt.ArrayLike) -> Numbers:
    found = np.asarray(matrix, np.float64)
    if found.ndim != 2 or min(found.shape) < 1:
        raise UsageError(f"payoffs are {found.shape}; they must be [N, M]")
    missing = np.argwhere(~np.isfinite(found))
    if len(missing):
        row, column = missing[0]
        raise UsageError(
            f"payoffs: {found[row, column]} at row {row}, column {column}; let these two play, or "
            "leave one out"
        )
    return found
