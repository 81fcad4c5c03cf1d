"""Statistics of returns. NaN marks an agent that took no part in an episode."""

from __future__ import annotations

import math

import numpy as np

from remuda.types import Numbers


def known(values: Numbers) -> Numbers:
    """Return the values that are not NaN, from [N]."""
    return values[~np.isnan(values)]


def mean_of(values: Numbers) -> float:
    """Return the mean of [N] values, ignoring NaN; NaN if no value is left."""
    found = known(values)
    return float(found.mean()) if len(found) else math.nan


def standard_error(values: Numbers) -> float:
    """Return the standard error of `mean_of`; NaN with fewer than two values."""
    found = known(values)
    if len(found) < 2:
        return math.nan
    return float(found.std(ddof=1) / np.sqrt(len(found)))


def balanced(returns: Numbers) -> Numbers:
    """Fill the gaps in returns of matches [N, S], for statistics of sums over seats.

    If a seat took no part (NaN), fill in the mean of its other returns. Scale up the deviations of
    these other returns, so that the mean of sums over seats has the same standard error as the sum
    of the seats' means. Seats that never took part are removed.
    """
    present = ~np.isnan(returns)
    counts = present.sum(0)
    if (counts == len(returns)).all():
        return returns
    columns, counts = returns[:, counts > 0], counts[counts > 0]
    means = np.nanmean(columns, axis=0)
    scaled = means + (columns - means) * (len(returns) / counts)
    found: Numbers = np.where(np.isnan(columns), means, scaled)
    return found
