"""Values worked out from noisy payoffs, with the noise taken out as far as it can be.

Whatever adds up squares or takes what is largest finds more in noisy numbers than in exact ones:
policies that are all equal look diverse, a front looks farther out than it is. A value comes
therefore with what is left of it without that bias, with an interval, and, of a population, with
what the same matches show where all policies are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from remuda.analysis.payoff import Numbers, Payoffs, check_level
from remuda.analysis.plain import plain
from remuda.errors import UsageError

Plain = dict[str, Any]


@dataclass(frozen=True)
class Estimate:
    """A value worked out from noisy numbers.

    Attributes:
        value: at the means; on average too large where noise adds to it.
        corrected: the same without the bias that resampling shows, within the bounds.
        interval: (low, high) the basic bootstrap interval of the corrected value (Davison and
            Hinkley 1997, "Bootstrap methods and their application", chapter 2).
        null_interval: (low, high) between what `value` lies where all policies are equal and the
            matches as many and as noisy; NaN where that was not asked for.
        null_share: how often `value` is as large where all policies are equal, a p-value; NaN
            likewise.
        draws: how many samples this is from.
        level: of both intervals.
    """

    value: float
    corrected: float
    interval: tuple[float, float]
    null_interval: tuple[float, float] = (float("nan"), float("nan"))
    null_share: float = float("nan")
    draws: int = 0
    level: float = 0.95

    def as_summary(self) -> Plain:
        """All of it as plain data; None stands for what is not known."""
        return {
            "value": plain(self.value),
            "corrected": plain(self.corrected),
            "interval": [plain(end) for end in self.interval],
            "null_interval": [plain(end) for end in self.null_interval],
            "null_share": plain(self.null_share),
            "draws": self.draws,
            "level": self.level,
        }


def estimate_from(
    value: float,
    drawn: Numbers,
    *,
    unbiased: float | None = None,
    null: Numbers | None = None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
    level: float = 0.95,
) -> Estimate:
    """Put an estimate together from values of samples around the means.

    Args:
        value: at the means.
        drawn: [draws] of samples around the means, by the formula that `unbiased` is from.
        unbiased: of a formula that takes the noise out by itself; none: `value`.
        null: [draws] what `value` would be where all policies are equal.
        bounds: what the value can be at all.
        level: of the intervals.

    Raises:
        UsageError: there are no samples, or the level is no probability.
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
        # What rounding makes of equal numbers counts as equal.
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
    """Work a measure of a population out with its bias, its interval, and its null.

    Args:
        payoffs: of two roles.
        measure: of the payoffs of the first role, [n_1, n_2].
        rng: for the samples.
        unbiased: the same measure with the noise of one set of matches taken out.
        draws: samples, of the payoffs and of equal policies each.
        bounds: what the measure can be at all.
        level: of the intervals.

    Raises:
        UsageError: cells were never played, `draws` or `level` cannot be used.
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
    """The game in which the strategies of the first role are all equal, with the same noise.

    In a symmetric game these are the strategies of both, so that all means are the same; else each
    mean is that over the strategies of the first role. Matches are as many and as noisy as before.

    Raises:
        UsageError: cells were never played.
    """
    payoffs.check_whole()
    if payoffs.symmetric:
        means = np.full_like(payoffs.means, payoffs.means.mean())
    else:
        means = np.broadcast_to(payoffs.means.mean(1, keepdims=True), payoffs.means.shape).copy()
    return replace(payoffs, means=means)


def check_draws(draws: int) -> None:
    """Raise a `UsageError` unless there are samples enough for an interval."""
    if draws < 2:
        raise UsageError(f"draws is {draws}; an interval takes at least 2, better 400")
