"""Draws of payoffs from their posterior, and shrinkage of the estimates of one population."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from remuda.analysis.payoffs.payoffs import KNOWN, Payoffs
from remuda.errors import UsageError
from remuda.types import Numbers

PIECE = 1 << 22  # numbers per batch of draws: tens of megabytes
SPREADS = 80  # number of values of tau in the grid
NARROWEST, WIDEST = 1e-3, 10.0  # the range of tau, relative to the estimates' spread plus noise


def with_own(payoffs: Payoffs) -> Payoffs:
    """Fill in missing self-play payoffs, so that payoffs can be drawn.

    In a symmetric constant-sum game, symmetry determines the self-play payoffs. In other symmetric
    games, unplayed self-play payoffs become 0 and must not be used.
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


def with_predicted_own(payoffs: Payoffs) -> Payoffs:
    """Fill in unplayed self-play payoffs as sums of effects of the row and the column.

    The effects are those of least squares over the played cells of a symmetric game, and the
    filled payoffs count as exact. Use them only for measures of how rows differ.
    """
    own = np.eye(len(payoffs.names), dtype=np.bool_) & payoffs.missing
    rows, columns = np.nonzero(~payoffs.missing)
    effects = np.eye(len(own))
    design = np.hstack([effects[rows], effects[columns]])
    found = np.linalg.lstsq(design, payoffs.matrix[rows, columns], rcond=None)[0]
    predicted = found[: len(own), None] + found[len(own) :]
    return replace(
        payoffs,
        means=np.where(own, predicted, payoffs.means),
        covariances=np.where(own, 0.0, payoffs.covariances),
        counts=np.where(own, KNOWN, payoffs.counts),
    )


def draws(payoffs: Payoffs, samples: int, rng: np.random.Generator) -> Iterator[Numbers]:
    """Draw payoffs one after another: [2, n, m] each."""
    if samples < 2:
        raise UsageError(f"samples: an uncertainty needs at least 2 draws; this is {samples}")
    whole = with_own(payoffs)
    at_once = max(1, PIECE // whole.means.size)
    for start in range(0, samples, at_once):
        now = min(at_once, samples - start)
        if whole.symmetric:
            for row in symmetric_draws(whole, now, rng):
                yield np.stack([row, row.T])
        else:
            yield from whole.sample(now, rng)


def symmetric_draws(payoffs: Payoffs, samples: int, rng: np.random.Generator) -> Numbers:
    """Draw like `Payoffs.sample`, but each pair of a symmetric game once: [samples, N, N]."""
    rows, columns = np.triu_indices(len(payoffs.names))
    moderated = payoffs.moderated[:, :, rows, columns]
    own = rows == columns
    # In self-play a strategy receives the mean of both seats.
    shared = moderated.sum((0, 1)) / 4.0
    (row, both), (_, column) = np.where(own, shared, moderated)
    first = np.sqrt(row)
    second = np.divide(both, first, out=np.zeros_like(row), where=first > 0.0)
    rest = np.maximum(column - second**2, 0.0)
    rest = np.sqrt(np.where(rest > 1e-12 * column, rest, 0.0))
    open_ = np.flatnonzero((row > 0.0) | (column > 0.0))
    rows, columns = rows[open_], columns[open_]
    first, second, rest = first[open_], second[open_], rest[open_]
    freedom, counts = payoffs.freedom[rows, columns], payoffs.counts[rows, columns]
    scale = np.sqrt(freedom / rng.chisquare(freedom, (samples, len(open_))) / counts)
    normal = rng.standard_normal(scale.shape) * scale
    found = np.repeat(payoffs.means[:1], samples, 0)
    found[:, rows, columns] += normal * first
    off = rows != columns
    turned = (normal * second)[:, off]
    if rest.any():
        turned += (rng.standard_normal(scale.shape) * scale * rest)[:, off]
    found[:, columns[off], rows[off]] += turned
    return found


def shrink(estimates: Numbers, drawn: Numbers, rng: np.random.Generator) -> Numbers:
    """Draw the quantities of one population, shrunk towards their common mean: [S, n].

    Estimates of nearly equal policies spread more than the policies do, since noise adds to the
    spread. Draws around the estimates contain that noise twice, and make rankings look too certain.
    Here the quantities are samples of a normal distribution of unknown spread tau (Rubin 1981,
    "Estimation in parallel randomized experiments") with a uniform prior (Gelman 2006, "Prior
    distributions for variance parameters in hierarchical models", section 7.1). Quantities that are
    far apart hardly change; noise pulls the others together. Ranks of such draws are those of Laird
    and Louis 1989, "Empirical Bayes ranking methods". With fewer than three quantities, or without
    noise, `drawn` is returned unchanged.

    `estimates`: [n]; `drawn`: [S, n] around them, with their noise.
    """
    if drawn.ndim != 2 or estimates.shape != drawn.shape[1:] or len(drawn) < 2:
        raise UsageError(
            f"shrink: estimates have the shape {estimates.shape} and draws {drawn.shape}; "
            "they must be [n] and [S, n], with at least two draws"
        )
    samples, count = drawn.shape
    variances, vectors = np.linalg.eigh(np.atleast_2d(np.cov(drawn.T)))
    floor = 1e-12 * max(float(variances[-1]), 0.0)
    variances = np.where(variances > floor, variances, 0.0)
    if count < 3 or not variances.any():
        return drawn
    rotated, rotated_draws, ones = estimates @ vectors, drawn @ vectors, np.ones(count) @ vectors
    spreads, probabilities = _spreads(rotated, variances, ones, float(estimates.std()))
    spread = rng.choice(spreads, (samples, 1), p=probabilities)
    # A posterior draw is a prior draw, corrected by the error of its noisy observation (Matheron's
    # rule; Hoffman and Ribak 1991, "Constrained realizations of Gaussian fields").
    weights = 1.0 / (spread**2 + variances)
    prior = spread * rng.standard_normal((samples, count))
    difference = rotated_draws - prior
    total = np.maximum((weights * ones**2).sum(1, keepdims=True), 1e-300)
    mean = (weights * ones * difference).sum(1, keepdims=True) / total * ones
    found: Numbers = (prior + mean + spread**2 * weights * (difference - mean)) @ vectors.T
    return found


def _spreads(
    estimates: Numbers, variances: Numbers, ones: Numbers, deviation: float
) -> tuple[Numbers, Numbers]:
    """Return values of tau with their probabilities (Rubin 1981, equation 4).

    `estimates`: [n] in the eigenbasis of their noise; `variances`: [n]; `ones`: [n] the vector of
    ones in that basis; `deviation`: standard deviation of the estimates.
    """
    unit = deviation + float(np.sqrt(variances.mean()))
    spreads = np.geomspace(NARROWEST, WIDEST, SPREADS) * unit
    weights = 1.0 / (spreads[:, None] ** 2 + variances)
    total = (weights * ones**2).sum(1)
    residuals = estimates - ((weights * ones * estimates).sum(1) / total)[:, None] * ones
    log = 0.5 * (np.log(weights).sum(1) - (weights * residuals**2).sum(1))
    log -= 0.5 * np.log(total)
    # The grid is uniform in log tau, so a uniform density of tau gets the weight tau.
    log += np.log(spreads)
    probabilities = np.exp(log - log.max())
    return spreads, probabilities / probabilities.sum()
