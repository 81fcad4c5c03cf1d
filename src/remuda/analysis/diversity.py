"""How many different ways to play a population has, by whom its policies beat.

All of it is worked out from the payoffs of a game of two roles; the policies in question are the
strategies of the first role, and those of the second are what they are compared against. Noise
makes equal policies look diverse, so that functions of `Payoffs` say what is left of a value
without it, and how large it is where all policies are equal (`remuda.analysis.bias`).
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
"""Probabilities [N] of the policies, or what works them out from payoffs [N, N]."""


def expected_cardinality(
    matrix: npt.ArrayLike, scale: float = 1.0, errors: npt.ArrayLike | None = None
) -> float:
    """How many policies a determinantal point process draws that avoids policies which are alike.

    trace(I - (L + I)^-1) with L = M M^T (Perez-Nieves et al. 2021, "Modelling behavioural
    diversity for learning in open-ended games", their expected cardinality), where a row of M is
    what a policy earns against each opponent: between 0 and N. It depends on the unit of payoffs:
    a policy counts fully where its row is long in units of `scale`.

    Args:
        matrix: [N, M] payoffs.
        scale: the difference of payoffs that matters, in units of reward.
        errors: [N, M] standard errors. With them, the noise is taken out: each square on the
            diagonal of L is by the squares of its errors too large on average, and the rest is
            right. What noise leaves of eigenvalues of 0 has both signs, and both count, so that
            they cancel.

    Raises:
        UsageError: the matrix cannot be used.
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
    """What the policies of a mixture win of each other where they win, in units of payoffs.

    p^T max(A, 0) p for a mixture p, the Nash equilibrium's, and payoffs A (Balduzzi et al. 2019,
    "Open-ended learning in symmetric zero-sum games", their effective diversity). It is 0 where one
    policy beats all, and so are the payoffs between policies of the mixture that only tie.

    Args:
        matrix: [N, N] payoffs.
        mixture: [N] probabilities of the policies.
        tie: the payoff of a tie: 0 in a zero-sum game, 0.5 where payoffs are shares of wins.

    Raises:
        UsageError: the matrix or the mixture cannot be used.
    """
    m = _matrix(matrix, square=True)
    p = _mixture(mixture, len(m))
    return float(p @ np.maximum(m - tie, 0.0) @ p)


def rectified_nash(matrix: npt.ArrayLike, mixture: npt.ArrayLike, tie: float = 0.0) -> Numbers:
    """Against whom PSRO_rN trains each policy: [N, N], by row the mixture of its opponents.

    A policy of the Nash mixture trains against those of the mixture that it beats or ties with, in
    proportion to their probabilities (Balduzzi et al. 2019, their rectified Nash response); it ties
    with itself. The others do not train: their rows are 0.

    Args:
        matrix: [N, N] payoffs.
        mixture: [N] the Nash equilibrium.
        tie: the payoff of a tie.

    Raises:
        UsageError: the matrix or the mixture cannot be used.
    """
    m = _matrix(matrix, square=True)
    p = _mixture(mixture, len(m))
    trains = ((m >= tie) | np.eye(len(m), dtype=np.bool_)) & (p > 0.0)[:, None]
    weights = np.where(trains, p, 0.0)
    total = weights.sum(1, keepdims=True)
    rows: Numbers = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0.0)
    return rows


def payoff_distances(matrix: npt.ArrayLike, errors: npt.ArrayLike | None = None) -> Numbers:
    """How differently each two policies fare, [N, N], in units of payoffs.

    The root of the mean squared difference of two rows, over all opponents.

    Args:
        matrix: [N, M] payoffs.
        errors: [N, M] standard errors. With them, what noise adds to the squares on average is
            taken out, and what is less than 0 then is 0; equal policies are at 0 about half the
            time.

    Raises:
        UsageError: the matrix cannot be used.
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
    """Expected cardinality of the strategies of the first role, with its uncertainty.

    Args:
        payoffs: of two roles.
        rng: for the samples.
        scale: as for `expected_cardinality`.
        draws: samples.
        level: of the intervals.

    Raises:
        UsageError: cells were never played, or an argument cannot be used.
    """
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
    """Effective diversity under a mixture, with its uncertainty.

    Noise around a tie only ever adds to it, and no formula takes that out whole: compare the value
    with its null interval before anything is made of it.

    Args:
        payoffs: of two roles with as many strategies.
        mixture: [N], or what works it out from payoffs, which is asked anew for each sample.
        rng: for the samples.
        tie: the payoff of a tie.
        draws: samples.
        level: of the intervals.

    Raises:
        UsageError: cells were never played, or an argument cannot be used.
    """

    def measure(matrix: Numbers) -> float:
        return effective_diversity(matrix, _asked(mixture, matrix), tie)

    return estimate(payoffs, measure, rng, draws=draws, bounds=(0.0, np.inf), level=level)


@dataclass(frozen=True)
class TrainingPlan:
    """Whom each policy trains against by PSRO_rN.

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
        """All of it as plain data."""
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
    """Whom PSRO_rN trains each policy against, and how often samples of the payoffs agree.

    Args:
        payoffs: of two roles with as many strategies.
        mixture: as for `nash_diversity`.
        rng: for the samples.
        tie: the payoff of a tie.
        draws: samples.

    Raises:
        UsageError: cells were never played, or an argument cannot be used.
    """
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
