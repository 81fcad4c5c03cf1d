"""Estimates from noisy payoffs: bias correction, intervals and null distributions.

Noise inflates sums of squares and maxima: equal policies look diverse, and a Pareto front looks too
good. An estimate therefore comes with a bias-corrected value, an interval, and the distribution of
values if all policies were equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from remuda.analysis.as_json import Summary
from remuda.analysis.payoffs.payoffs import Payoffs, check_level
from remuda.errors import UsageError
from remuda.types import Numbers

Plain = dict[str, Any]


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


def estimate_from(
    value: float,
    drawn: Numbers,
    *,
    unbiased: float | None = None,
    null: Numbers | None = None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
    level: float = 0.95,
) -> Estimate:
    """Build an estimate from the values of samples.

    - `unbiased`: the value by a less biased formula; None: the same as `value`.
    - `drawn`: [draws] values by the formula of `unbiased`.
    - `null`: [draws] values by the formula of `value`, if all policies are equal.
    """
    check_level(level)
    check_draws(len(drawn))
    start = value if unbiased is None else unbiased
    away = drawn - value
    ends = np.array([0.5 + level / 2.0, 0.5 - level / 2.0])
    low, high = np.clip(start - np.quantile(away, ends), *bounds)
    null_interval, null_share = (np.nan, np.nan), np.nan
    if null is not None:
        null_low, null_high = np.quantile(null, ends[::-1])
        null_interval = (float(null_low), float(null_high))
        # Values that differ only by rounding count as equal.
        as_large = null >= value - 1e-9 * max(abs(value), 1.0)
        null_share = float((1 + as_large.sum()) / (1 + len(null)))
    return Estimate(
        float(value),
        float(np.clip(start - away.mean(), *bounds)),
        (float(low), float(high)),
        null_interval,
        null_share,
        len(drawn),
        level,
    )


def estimate(
    payoffs: Payoffs,
    measure: Callable[[Numbers], float],
    rng: np.random.Generator,
    *,
    unbiased: Callable[[Numbers], float] | None = None,
    draws: int = 400,
    bounds: tuple[float, float] = (-np.inf, np.inf),
    level: float = 0.95,
) -> Estimate:
    """Estimate a measure of a population with its bias, interval and null distribution.

    `measure`: a function of the first role's payoffs [n_1, n_2].
    """
    check_draws(draws)
    matrix = payoffs.matrix
    formula = unbiased or measure
    drawn = np.array([formula(each[0]) for each in payoffs.sample(draws, rng)])
    null = np.array([measure(each[0]) for each in all_equal(payoffs).sample(draws, rng)])
    return estimate_from(
        measure(matrix), drawn, unbiased=formula(matrix), null=null, bounds=bounds, level=level
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
