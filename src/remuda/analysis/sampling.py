"""Draw payoffs from their posterior, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from remuda.analysis.payoff import KNOWN, Numbers, Payoffs
from remuda.errors import UsageError

PIECE = 1 << 22
"""Numbers drawn at once: some tens of megabytes."""


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
