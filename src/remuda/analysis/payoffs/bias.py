"""Estimates from noisy payoffs: bias correction, intervals and null distributions.

Noise inflates sums of squares and maxima: equal policies look diverse, and a Pareto front looks too
good. An estimate therefore comes with a bias-corrected value, an interval, and the distribution of
values if all policies were equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from remuda.analysis.as_json import Summary
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.errors import UsageError
from remuda.types import Numbers

ENDS = np.array([0.025, 0.975])  # the quantiles of a 95% interval


@dataclass(frozen=True)
class Estimate(Summary):
    """A value estimated from noisy numbers."""

    value: float  # computed from the means; biased upwards if noise inflates it
    corrected: float  # the value minus the bootstrap estimate of its bias, clipped to the bounds
    interval: tuple[float, float]
    """The basic bootstrap interval of `corrected` (Davison and Hinkley 1997, chapter 2)."""
    null_interval: tuple[float, float] = (float("nan"), float("nan"))  # if all policies are equal
    null_share: float = float("nan")  # p-value: how often equal policies have as large a value
    draws: int = 0
    level: float = 0.95  # of both intervals


def estimate(
    payoffs: Payoffs,
    measure: Callable[[Numbers], float],
    unbiased: Callable[[Numbers], float],
    rng: np.random.Generator,
    draws: int = 400,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> Estimate:
    """Estimate a measure of a population with its bias, interval and null distribution.

    `measure`: a function of the first role's payoffs [n, m]; `unbiased`: a less biased formula
    of the same quantity.
    """
    check_draws(draws)
    value, start = measure(payoffs.matrix), unbiased(payoffs.matrix)
    away = np.array([unbiased(each[0]) for each in payoffs.sample(draws, rng)]) - value
    null = np.array([measure(each[0]) for each in all_equal(payoffs).sample(draws, rng)])
    low, high = np.clip(start - np.quantile(away, ENDS[::-1]), *bounds)
    null_low, null_high = np.quantile(null, ENDS)
    # Values that differ only by rounding count as equal.
    as_large = null >= value - 1e-9 * max(abs(value), 1.0)
    return Estimate(
        value,
        float(np.clip(start - away.mean(), *bounds)),
        (float(low), float(high)),
        (float(null_low), float(null_high)),
        float((1 + as_large.sum()) / (1 + draws)),
        draws,
    )


def all_equal(payoffs: Payoffs) -> Payoffs:
    """Return the game in which all strategies of the first role are equal, with the same noise.

    In a symmetric game all means become equal; otherwise each mean becomes the mean over the first
    role's strategies.
    """
    payoffs.check_whole()
    if payoffs.symmetric:
        means = np.full_like(payoffs.means, payoffs.means.mean())
    else:
        means = np.broadcast_to(payoffs.means.mean(1, keepdims=True), payoffs.means.shape).copy()
    return replace(payoffs, means=means)


def check_draws(draws: int) -> None:
    """Raise a `UsageError` for fewer samples than an interval needs."""
    if draws < 2:
        raise UsageError(f"draws is {draws}; an interval needs at least 2, preferably 400")
