"""Populations whose true payoffs are known, with matches of all kinds played among them."""

from typing import NamedTuple

import numpy as np

from remuda.analysis.payoffs.payoffs import Payoffs

KINDS = ("wins", "normal", "skewed")
"""Of what a match returns."""
SHAPES = ("transitive", "cyclic", "mixed")
"""Of who beats whom."""


class Population(NamedTuple):
    """What is true of a population, and what was seen of it."""

    kind: str
    shape: str
    truth: np.ndarray  # [n, m] what the row earns
    payoffs: Payoffs


def population(seed, unlike_roles=False):
    """A zero-sum population: 3 to 12 policies; of two roles: 2 to 12 each.

    Matches of a pair vary by four times, and one pair in ten has 2 to 6 only; deviations of returns
    differ by pair, and how far policies are apart by population.
    """
    rng = np.random.default_rng((seed, unlike_roles))
    kind, shape = KINDS[seed % 3], SHAPES[seed // 3 % 3]
    rows = int(rng.integers(2 if unlike_roles else 3, 13))
    columns = int(rng.integers(2, 13)) if unlike_roles else rows
    truth = _truth(kind, shape, rows, columns, unlike_roles, rng)
    usual = int(np.exp(rng.uniform(np.log(8), np.log(300))))
    means = np.full((2, rows, columns), np.nan)
    covariances = np.full((2, 2, rows, columns), np.nan)
    counts = np.zeros((rows, columns), np.int64)
    total = 1.0 if kind == "wins" else 0.0
    for i, j in np.ndindex(rows, columns):
        if not unlike_roles and i >= j:
            continue
        few = rng.random() < 0.1
        matches = int(rng.integers(2, 7) if few else rng.integers(max(usual // 2, 2), 2 * usual))
        returns = _returns(kind, truth[i, j], np.exp(rng.uniform(-0.5, 0.5)), matches, rng)
        seen = np.array([returns.mean(), total - returns.mean()])
        variance = returns.var(ddof=1) * np.array([[1.0, -1.0], [-1.0, 1.0]])
        counts[i, j], means[:, i, j], covariances[:, :, i, j] = matches, seen, variance
        if not unlike_roles:
            counts[j, i], means[:, j, i], covariances[:, :, j, i] = matches, seen[::-1], variance
    row_names = tuple(f"row_{place}" for place in range(rows))
    column_names = tuple(f"column_{place}" for place in range(columns))
    names = (row_names, column_names if unlike_roles else row_names)
    return Population(
        kind, shape, truth, Payoffs(names, means, covariances, counts, not unlike_roles)
    )


def _truth(kind, shape, rows, columns, unlike_roles, rng):
    """Skill that adds up, and angles on a disc that beat what is less than half a turn ahead."""
    size = rows + columns if unlike_roles else rows
    skill, angle = rng.normal(size=size), rng.uniform(0.0, 2.0 * np.pi, size)
    radius = np.sqrt(rng.uniform(0.0, 2.0, size))
    one, other = np.arange(rows), np.arange(size - columns, size)
    better = np.subtract.outer(skill[one], skill[other])
    ahead = np.sin(np.subtract.outer(angle[one], angle[other]))
    ahead *= np.multiply.outer(radius[one], radius[other])
    transitive, cyclic = {"transitive": (1.0, 0.05), "cyclic": (0.0, 1.0), "mixed": (0.5, 0.7)}[
        shape
    ]
    payoffs = np.exp(rng.uniform(np.log(0.1), 0.0)) * (transitive * better + cyclic * ahead)
    return 1.0 / (1.0 + np.exp(-payoffs)) if kind == "wins" else payoffs


def _returns(kind, mean, deviation, matches, rng):
    if kind == "wins":
        return (rng.random(matches) < mean).astype(np.float64)
    if kind == "normal":
        return rng.normal(mean, deviation, matches)
    return mean + deviation * (rng.gamma(2.0, 1.0, matches) - 2.0) / np.sqrt(2.0)
