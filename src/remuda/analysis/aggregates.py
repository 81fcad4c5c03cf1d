"""Robust aggregates of scores over runs, with bootstrap confidence intervals.

Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from remuda.analysis.payoffs.payoffs import check_level
from remuda.errors import UsageError


def interquartile_mean(values: npt.ArrayLike, axis: int = -1) -> Any:
    """Return the mean of the middle half of the values: the 25% trimmed mean, or IQM.

    With fewer than four values nothing is trimmed.

    Args:
        values: [..., N].
        axis: the axis of the values.

    Returns:
        A number, or an array without this axis.

    Raises:
        UsageError: there are no values.
    """
    values = np.asarray(values, np.float64)
    if not values.size:
        raise UsageError("interquartile_mean: there are no values")
    return stats.trim_mean(values, 0.25, axis=axis)


def bootstrap_interval(
    values: Sequence[float],
    statistic: Callable[..., Any] = interquartile_mean,
    level: float = 0.95,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic of the values [N].

    Args:
        values: one score of each run.
        statistic: a function with a keyword `axis`, such as `np.mean` or `interquartile_mean`.
        level: the confidence level.
        resamples: the number of resamples with replacement.
        seed: the seed of the resampling; equal arguments give equal intervals.

    Raises:
        UsageError: there are fewer than two values, or the level is not between 0 and 1.
    """
    check_level(level)
    if len(values) < 2:
        raise UsageError(f"bootstrap_interval: two values at least; there are {len(values)}")
    picks = np.random.default_rng(seed).integers(len(values), size=(resamples, len(values)))
    found = statistic(np.asarray(values, np.float64)[picks], axis=-1)
    low, high = np.quantile(found, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)
