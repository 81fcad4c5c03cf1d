"""What several quantities of one population may be, given noisy estimates of all of them.

Estimates of policies that are nearly equal lie farther apart than the policies do: noise adds to
the spread. Draws around the estimates have that noise twice, and take orders for surer than they
are. Here the quantities are taken for a sample of a normal distribution whose spread tau is unknown
(Rubin 1981, "Estimation in parallel randomized experiments"), with the same density for every tau
(Gelman 2006, "Prior distributions for variance parameters in hierarchical models", section 7.1), or
with sigma / (sigma + tau)^2, where sigma is the noise: a population is then as likely to spread by
less than its noise as by more (DuMouchel 1994, "Hierarchical Bayes linear models for
meta-analysis"), which a few quantities that are looked at again and again call for.
Where they are far apart that changes nothing; where noise is all that is seen, it draws them
together. Ranks of such draws are those of Laird and Louis 1989, "Empirical Bayes ranking methods".
"""

from __future__ import annotations

import numpy as np

from remuda.analysis.payoff import Numbers
from remuda.errors import UsageError

SPREADS = 80
"""Values of tau that are looked at."""
NARROWEST, WIDEST = 1e-3, 10.0
"""The smallest and the largest tau, in units of the spread of estimates and of their noise."""


def shrink(
    estimates: Numbers,
    drawn: Numbers,
    rng: np.random.Generator,
    *,
    center: float | None = None,
    independent: bool = False,
    cautious: bool = False,
) -> Numbers:
    """Draw what quantities may be, given that they are of one population: [S, n].

    With too few of them to tell a spread from (fewer than 3; 2 if the center is known), and without
    any noise, these are the draws that were given.

    Args:
        estimates: [n] of the quantities.
        drawn: [S, n] draws around the estimates, as noisy as these are.
        rng: what is drawn with.
        center: the mean of the population; None: unknown.
        independent: whether the noise of each quantity is independent of that of the others.
        cautious: take the second density of tau.

    Raises:
        UsageError: the arrays do not fit each other, or there are fewer than 2 draws.
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
    """Values [..., n] along the columns of an orthogonal matrix; None: as they are."""
    found: Numbers = values if vectors is None else values @ vectors
    return found


def _noise(drawn: Numbers, independent: bool) -> tuple[Numbers, Numbers | None]:
    """Variances [n] of the noise along orthogonal columns [n, n]; None: along the axes."""
    if independent:
        return drawn.var(0, ddof=1), None
    covariance = np.atleast_2d(np.cov(drawn.T))
    values, vectors = np.linalg.eigh(covariance)
    floor = 1e-12 * max(float(values[-1]), 0.0)
    return np.where(values > floor, values, 0.0), vectors


def _spreads(
    seen: Numbers, variances: Numbers, ones: Numbers, apart: float
) -> tuple[Numbers, Numbers]:
    """Values of tau, and how probable each is, given the estimates (Rubin 1981, equation 4).

    Args:
        seen: [n] the estimates along the directions of their noise.
        variances: [n] of the noise.
        ones: [n] what a common mean of 1 is along them; zeros: the mean is known, and 0.
        apart: how far the estimates spread.
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
