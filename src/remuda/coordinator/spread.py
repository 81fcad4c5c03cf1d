"""The spread of returns in an interval, from all actors' counts since its mark."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remuda.scoreboard import Policy, Row

Numbers = list[float | None]


class Spread(NamedTuple):
    """Extremes and deviation of each policy's returns in an interval; None: no episode ended."""

    low: Numbers
    high: Numbers
    deviation: Numbers


def spread_of(rows: Row, mark: float, means: Numbers) -> Spread:
    """Combine the actors' counts since a mark.

    The standard deviation is that of all returns around their mean; sums of squares are combined as
    in Chan et al. 1983. An actor that ends an episode during the reading, or just before the mark,
    may count it on one side only; then the mean itself serves as an extreme.
    """
    fresh = (rows[..., Policy.MARK] == mark) & (rows[..., Policy.RETURNS] > 0)
    count = np.where(fresh, rows[..., Policy.RETURNS], 0.0)
    total = count.sum(0)
    divisor = np.maximum(total, 1.0)
    above = np.where(fresh, rows[..., Policy.ABOVE_SUM], 0.0)
    above_mean = above / np.maximum(count, 1.0)
    mean = np.where(fresh, rows[..., Policy.FIRST] + above_mean, 0.0)
    joined = (count * mean).sum(0) / divisor
    squares = np.where(fresh, rows[..., Policy.ABOVE_SQUARES] - above * above_mean, 0.0)
    squares = np.maximum(squares, 0.0) + count * np.square(mean - joined)
    deviation = np.sqrt(squares.sum(0) / divisor)
    low = np.where(fresh, rows[..., Policy.LOW], np.inf).min(0)
    high = np.where(fresh, rows[..., Policy.HIGH], -np.inf).max(0)
    known = [n > 0 and m is not None for n, m in zip(total.tolist(), means, strict=True)]
    return Spread(
        [
            min(x, m or 0.0) if k else None
            for x, m, k in zip(low.tolist(), means, known, strict=True)
        ],
        [
            max(x, m or 0.0) if k else None
            for x, m, k in zip(high.tolist(), means, known, strict=True)
        ],
        [x if k else None for x, k in zip(deviation.tolist(), known, strict=True)],
    )
