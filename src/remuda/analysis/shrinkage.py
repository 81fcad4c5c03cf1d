"""Draw several quantities of one population from their noisy estimates, by shrinkage.

Estimates of nearly equal policies spread more than the policies do, since noise adds to the spread.
Draws around the estimates have that noise twice, and make orders look surer than they are. Here the
quantities are samples of a normal distribution of unknown spread tau (Rubin 1981, "Estimation in
parallel randomized experiments"). Its prior is uniform (Gelman 2006, "Prior distributions for
variance parameters in hierarchical models", section 7.1), or sigma / (sigma + tau)^2 with the noise
sigma: then the spread is as likely below the noise as above (DuMouchel 1994, "Hierarchical Bayes
linear models for meta-analysis"), which a few quantities under repeated looks call for. Quantities
that are far apart are hardly changed; where noise dominates, they are drawn together. Ranks of such
draws are those of Laird and Louis 1989, "Empirical Bayes ranking methods".
"""

from __future__ import annotations

import numpy as np

from remuda.analysis.payoff import Numbers
from remuda.errors import UsageError

SPREADS = 80
"""Number of values of tau in the grid."""
NARROWEST, WIDEST = 1e-3, 10.0
"""The range of tau, in units of the estimates' spread and noise."""


def shrink(
    estimates: Numbers,
    drawn: Numbers,
    rng: np.random.Generator,
    *,
    center: float | None = None,
    independent: bool = False,
    cautious: bool = False,
) -> Numbers:
    """Draw quantities of one population: [S, n].

    With too few of them to estimate a spread (fewer than 3; 2 if the center is known), or without
    noise, these are the given draws.

    `estimates`: [n]; `drawn`: [S, n] around them, with their noise; `independent`: quantities have
    independent noise; `cautious`: use the second prior.
    """
    if drawn.ndim != 2 or estimates.shape != drawn.shape[1:] or len(drawn) < 2:
        raise UsageError(
            f"shrink: estimates are of shape {estimates.shape} and draws of {drawn.shape}; they "
            "must be [n] and [S, n], two draws at least"
        )
    samples, count = drawn.shape
    variances, vectors = _noise(drawn, independent)
    back = None if vectors is None else vectors.T
    if count < (3 if center is None else 2) or not variances.any():
        return drawn
    middle = 0.0 if center is None else center
    seen, around = _turned(estimates - middle, vectors), _turned(drawn - middle, vectors)
    ones = _turned(np.full(count, float(center is None)), vectors)
    spreads, chances = _spreads(seen, variances, ones, float(estimates.std()))
    if cautious:
        chances = chances / (np.sqrt(variances.mean()) + spreads) ** 2
        chances /= chances.sum()
    spread = rng.choice(spreads, (samples, 1), p=chances)
    # A draw from the posterior is one from the prior, moved by what its noisy observation lacks
    # (Matheron's rule; Hoffman and Ribak 1991, "Constrained realizations of Gaussian fields").
    weights = 1.0 / (spread**2 + variances)
    prior = spread * rng.standard_normal((samples, count))
    lacking = around - prior
    total = np.maximum((weights * ones**2).sum(1, keepdims=True), 1e-300)
    mean = (weights * ones * lacking).sum(1, keepdims=True) / total * ones
    found: Numbers = prior + mean + spread**2 * weights * (lacking - mean)
    return _turned(found, back) + middle


def _turned(values: Numbers, vectors: Numbers | None) -> Numbers:
    """Rotate values [..., n] by an orthogonal matrix; None: leave them."""
    found: Numbers = values if vectors is None else values @ vectors
    return found


def _noise(drawn: Numbers, independent: bool) -> tuple[Numbers, Numbers | None]:
    """Return variances [n] of the noise along orthogonal columns [n, n]; None: along the axes."""
    if independent:
        return drawn.var(0, ddof=1), None
    covariance = np.atleast_2d(np.cov(drawn.T))
    values, vectors = np.linalg.eigh(covariance)
    floor = 1e-12 * max(float(values[-1]), 0.0)
    return np.where(values > floor, values, 0.0), vectors


def _spreads(
    seen: Numbers, variances: Numbers, ones: Numbers, apart: float
) -> tuple[Numbers, Numbers]:
    """Return values of tau with their probabilities (Rubin 1981, equation 4).

    `seen`: [n] the estimates along the directions of their noise; `variances`: [n]; `ones`: [n] a
    common mean of 1 along them; zeros: the mean is known to be 0.
    """
    unit = apart + float(np.sqrt(variances.mean()))
    spreads = np.geomspace(NARROWEST, WIDEST, SPREADS) * unit
    weights = 1.0 / (spreads[:, None] ** 2 + variances)
    total = (weights * ones**2).sum(1)
    unknown = total > 0.0
    mean = (weights * ones * seen).sum(1) / np.where(unknown, total, 1.0)
    away = seen - mean[:, None] * ones
    log = 0.5 * (np.log(weights).sum(1) - (weights * away**2).sum(1))
    log -= 0.5 * np.where(unknown, np.log(np.where(unknown, total, 1.0)), 0.0)
    # The grid is even in log tau; a density that is even in tau has tau as its weight there.
    log += np.log(spreads)
    chances = np.exp(log - log.max())
    return spreads, chances / chances.sum()
