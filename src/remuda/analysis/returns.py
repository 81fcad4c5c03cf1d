"""Statistics of returns; an agent that took no part in an episode has none there, which is NaN."""

from __future__ import annotations

import math

import numpy as np

from remuda.types import Numbers


def known(values: Numbers) -> Numbers:
    """[N]: the values that are not NaN; of returns, those of agents that took part."""
    found: Numbers = values[~np.isnan(values)]
    return found


def mean_of(values: Numbers) -> float:
    """Mean of [N] values, without those that are NaN; NaN where none is left."""
    found = known(values)
    return float(found.mean()) if len(found) else math.nan


def standard_error(values: Numbers) -> float:
    """Standard error of that mean; NaN where fewer than two values are left."""
    found = known(values)
    if len(found) < 2:
        return math.nan
    return float(found.std(ddof=1) / np.sqrt(len(found)))


def balanced(returns: Numbers) -> Numbers:
    """Returns of matches [N, S] without a gap, for statistics of sums over seats.

    Where a seat took no part (NaN), the mean of its other matches is filled in; the deviations of
    these are scaled up, so that sums over seats vary by match as the sum of the seats' own means
    does. Seats that never took part are left out. Without NaN these are the returns themselves.
    """
    there = ~np.isnan(returns)
    counts = there.sum(0)
    if (counts == len(returns)).all():
        return returns
    kept, counts = returns[:, counts > 0], counts[counts > 0]
    means = np.nanmean(kept, axis=0)
    scaled = means + (kept - means) * (len(returns) / counts)
    found: Numbers = np.where(np.isnan(kept), means, scaled)
    return found
