"""Draws of payoffs from their posterior, and of several quantities of one population."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from remuda.analysis.payoff import KNOWN, Payoffs
from remuda.errors import UsageError
from remuda.types import Numbers

PIECE = 1 << 22  # numbers drawn at once: some tens of megabytes
SPREADS = 80  # number of values of tau in the grid
NARROWEST, WIDEST = 1e-3, 10.0  # the range of tau, in units of the estimates' spread and noise


def with_own(payoffs: Payoffs) -> Payoffs:
    """Return payoffs that can be drawn although strategies never met themselves.

    In a symmetric constant-sum game symmetry gives a strategy's payoff against itself; in others
    unplayed self-play is 0 and must not be used.
    """
    if not payoffs.symmetric:
        payoffs.check_whole()
        return payoffs
    unplayed = np.eye(len(payoffs.names), dtype=np.bool_) & payoffs.missing
    filled = replace(
        payoffs,
        means=np.where(unplayed, 0.0, payoffs.means),
        covariances=np.where(unplayed, 0.0, payoffs.covariances),
        counts=np.where(unplayed, 1, payoffs.counts),
    )
    filled.check_whole()
    filled = replace(filled, counts=np.where(unplayed, KNOWN, filled.counts))
    return payoffs.completed() if payoffs.is_zero_sum else filled


def draws(payoffs: Payoffs, samples: int, rng: np.random.Generator) -> Iterator[Numbers]:
    """Draw payoffs one after another: [R, n_1, ..., n_R] each."""
    if samples < 2:
        raise UsageError(f"samples: at least 2 draws tell an uncertainty; this is {samples}")
    whole = with_own(payoffs)
    at_once = max(1, PIECE // whole.means.size)
    for begin in range(0, samples, at_once):
        now = min(at_once, samples - begin)
        if whole.symmetric:
            for row in symmetric_draws(whole, now, rng):
                yield np.stack([row, row.T])
        else:
            yield from whole.sample(now, rng)


def symmetric_draws(payoffs: Payoffs, samples: int, rng: np.random.Generator) -> Numbers:
    """Draw the row's payoffs of a symmetric game: [samples, N, N].

    Distributed as those of `Payoffs.sample`, but each pair is drawn once.
    """
    one, other = np.triu_indices(len(payoffs.names))
    moderated = payoffs.moderated[:, :, one, other]
    own = one == other
    # A strategy against itself has the mean of both seats.
    shared = moderated.sum((0, 1)) / 4.0
    (row, both), (_, column) = np.where(own, shared, moderated)
    first = np.sqrt(row)
    second = np.divide(both, first, out=np.zeros_like(row), where=first > 0.0)
    rest = np.maximum(column - second**2, 0.0)
    rest = np.sqrt(np.where(rest > 1e-12 * column, rest, 0.0))
    open_ = np.flatnonzero((row > 0.0) | (column > 0.0))
    one, other = one[open_], other[open_]
    first, second, rest = first[open_], second[open_], rest[open_]
    freedom, counts = payoffs.freedom[one, other], payoffs.counts[one, other]
    scale = np.sqrt(freedom / rng.chisquare(freedom, (samples, len(open_))) / counts)
    normal = rng.standard_normal(scale.shape) * scale
    found = np.repeat(payoffs.means[:1], samples, 0)
    found[:, one, other] += normal * first
    off = one != other
    turned = (normal * second)[:, off]
    if rest.any():
        turned += (rng.standard_normal(scale.shape) * scale * rest)[:, off]
    found[:, other[off], one[off]] += turned
    return found


def shrink(estimates: Numbers, drawn: Numbers, rng: np.random.Generator) -> Numbers:
    """Draw quantities of one population: [S, n].

    Estimates of nearly equal policies spread more than the policies do, since noise adds to the
    spread. Draws around the estimates have that noise twice, and make orders look surer than they
    are. Here the quantities are samples of a normal distribution of unknown spread tau (Rubin 1981,
    "Estimation in parallel randomized experiments") with a uniform prior (Gelman 2006, "Prior
    distributions for variance parameters in hierarchical models", section 7.1). Quantities that are
    far apart are hardly changed; where noise dominates, they are drawn together. Ranks of such
    draws are those of Laird and Louis 1989, "Empirical Bayes ranking methods". With fewer than
    three quantities, or without noise, these are the given draws.

    `estimates`: [n]; `drawn`: [S, n] around them, with their noise.
    """
    if drawn.ndim != 2 or estimates.shape != drawn.shape[1:] or len(drawn) < 2:
        raise UsageError(
            f"shrink: estimates are of shape {estimates.shape} and draws of {drawn.shape}; they "
            "must be [n] and [S, n], two draws at least"
        )
    samples, count = drawn.shape
    variances, vectors = np.linalg.eigh(np.atleast_2d(np.cov(drawn.T)))
    floor = 1e-12 * max(float(variances[-1]), 0.0)
    variances = np.where(variances > floor, variances, 0.0)
    if count < 3 or not variances.any():
        return drawn
    seen, around, ones = estimates @ vectors, drawn @ vectors, np.ones(count) @ vectors
    spreads, chances = _spreads(seen, variances, ones, float(estimates.std()))
    spread = rng.choice(spreads, (samples, 1), p=chances)
    # A draw from the posterior is one from the prior, moved by what its noisy observation lacks
    # (Matheron's rule; Hoffman and Ribak 1991, "Constrained realizations of Gaussian fields").
    weights = 1.0 / (spread**2 + variances)
    prior = spread * rng.standard_normal((samples, count))
    lacking = around - prior
    total = np.maximum((weights * ones**2).sum(1, keepdims=True), 1e-300)
    mean = (weights * ones * lacking).sum(1, keepdims=True) / total * ones
    found: Numbers = (prior + mean + spread**2 * weights * (lacking - mean)) @ vectors.T
    return found


def _spreads(
    seen: Numbers, variances: Numbers, ones: Numbers, apart: float
) -> tuple[Numbers, Numbers]:
    """Return values of tau with their probabilities (Rubin 1981, equation 4).

    `seen`: [n] the estimates along the directions of their noise; `variances`: [n]; `ones`: [n] a
    common mean of 1 along them.
    """
    unit = apart + float(np.sqrt(variances.mean()))
    spreads = np.geomspace(NARROWEST, WIDEST, SPREADS) * unit
    weights = 1.0 / (spreads[:, None] ** 2 + variances)
    total = (weights * ones**2).sum(1)
    away = seen - ((weights * ones * seen).sum(1) / total)[:, None] * ones
    log = 0.5 * (np.log(weights).sum(1) - (weights * away**2).sum(1))
    log -= 0.5 * np.log(total)
    # The grid is even in log tau; a density that is even in tau has tau as its weight there.
    log += np.log(spreads)
    chances = np.exp(log - log.max())
    return spreads, chances / chances.sum()
