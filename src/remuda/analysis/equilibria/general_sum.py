"""Equilibria of games of two roles: all equilibria of a small game, one of a larger game."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csgraph
from scipy.spatial.distance import cdist

from remuda.analysis.as_json import Summary
from remuda.analysis.equilibria.extreme_equilibria import EQUAL, STRATEGIES, pairs
from remuda.analysis.equilibria.lemke_howson import bimatrix_path, complementary
from remuda.analysis.equilibria.maximum_entropy import TIGHT
from remuda.analysis.equilibria.regret import (
    Solution,
    as_two_roles,
    regret,
    to_distribution,
    values,
)
from remuda.errors import UsageError
from remuda.types import Integers, Numbers

EXACT = 1e-9  # the regret, relative to the range of a role's payoffs, that ends a search
ENOUGH = 1e-7  # the largest relative regret of an equilibrium
BASES = 1_000_000  # most pairs of supports of equal size enumerated: games of up to 11 by 11
PERTURBATION = 1e-6  # relative change of the payoffs if no path in the game itself succeeds
PERTURBED = 50  # perturbed games tried in a round
LENGTHS = (1_000, 10_000, 1_000_000)  # maximum pivots of a path, by round; most paths are short


@dataclass(frozen=True)
class AllEquilibria(Summary):
    """All extreme equilibria of a game of two roles."""

    rows: Numbers  # [E, n] mixtures of the row
    columns: Numbers  # [E, m] mixtures of the column
    values: Numbers  # [E, 2] payoffs
    regrets: Numbers  # [E, 2] computed from the payoffs
    components: Integers  # [E] by equilibrium, the number of its connected component
    infinite: bool  # two equilibria share a role's mixture, so all between them are equilibria too

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def note(self) -> str:
        """The number of equilibria, in words."""
        if not self.infinite:
            return f"{len(self)} equilibria; there are no others"
        return (
            f"infinitely many equilibria, in {len(set(self.components.tolist()))} components; "
            f"these {len(self)} are the extreme ones"
        )


def can_enumerate(rows: int, columns: int, bases: int = BASES) -> bool:
    """Return whether all equilibria of a game can be enumerated."""
    return rows + columns <= STRATEGIES and math.comb(rows + columns, rows) <= bases


def all_equilibria(a: npt.ArrayLike, b: npt.ArrayLike) -> AllEquilibria:
    """Return all extreme equilibria of a small game of two roles.

    Payoffs that differ by less than 1e-9 of their range are treated as equal.

    `a`, `b`: [n, m] payoffs of row and column.
    """
    game = as_two_roles(a, b)
    shape = game.shape[1:]
    if not can_enumerate(*shape):
        raise UsageError(
            f"a game of {shape[0]} by {shape[1]} strategies is too large to list all equilibria "
            f"(at most {STRATEGIES} strategies, and {BASES} pairs of supports); use `solve`"
        )
    row_payoffs, column_payoffs = _positive(game)
    rows, columns = pairs(row_payoffs, column_payoffs)
    regrets = np.array([regret(game, both) for both in zip(rows, columns, strict=True)])
    right = (regrets <= ENOUGH * _ranges(game)).all(1)
    rows, columns, regrets = rows[right], columns[right], regrets[right]
    order = np.lexsort(np.hstack([np.round(columns, 9), np.round(rows, 9)]).T[::-1])[::-1]
    rows, columns, regrets = rows[order], columns[order], regrets[order]
    equilibrium_values = np.array([values(game, both) for both in zip(rows, columns, strict=True)])
    components = _components(rows, columns)
    infinite = len(set(components.tolist())) < len(components)
    return AllEquilibria(rows, columns, equilibrium_values, regrets, components, infinite)


def _components(rows: Numbers, columns: Numbers) -> Integers:
    """Return [E] component numbers: equilibria that share one role's mixture are connected."""
    near = cdist(rows, rows, "chebyshev") <= EQUAL
    near |= cdist(columns, columns, "chebyshev") <= EQUAL
    found: Integers = csgraph.connected_components(near, directed=False)[1].astype(np.int64)
    return found


def solve(
    a: npt.ArrayLike, b: npt.ArrayLike, seconds: float = 10.0, symmetric: bool = False
) -> Solution | None:
    """Search for an equilibrium of a game of two roles within a time limit.

    The Lemke-Howson algorithm starts from every strategy in turn. If that fails, it solves slightly
    perturbed payoffs, and the supports of their equilibria are tried in the original game. The
    regret of a solution is at most 1e-7 of the range of a role's payoffs, usually about 1e-14.
    None: no equilibrium was found.

    `a`, `b`: [n, m] payoffs of row and column; `symmetric`: both roles must use the same mixture,
    and `b` must be `a.T`.
    """
    game = as_two_roles(a, b)
    if not seconds > 0.0 or not math.isfinite(seconds):
        raise UsageError(f"seconds is {seconds}; it must be above 0")
    complementary(np.ones((1, 1)), 0, 1, 0.0)  # compile it before the time limit starts
    ranges = _ranges(game)
    deadline = time.monotonic() + seconds
    best, least, how = None, math.inf, ""
    for mixtures, how_found in _candidates(game, symmetric, deadline):
        worst = float((regret(game, mixtures) / ranges).max())
        if worst < least:
            best, least, how = mixtures, worst, how_found
        if least <= EXACT or time.monotonic() > deadline:
            break
    if best is None or least > ENOUGH:
        return None
    return Solution(best, values(game, best), regret(game, best), how)


def _candidates(
    game: Numbers, symmetric: bool, deadline: float
) -> Iterator[tuple[tuple[Numbers, Numbers], str]]:
    """Yield candidate mixtures, and how they were found."""
    row_payoffs, column_payoffs = _positive(game)
    labels = len(row_payoffs) if symmetric else sum(row_payoffs.shape)
    rng = np.random.default_rng(0)
    for max_pivots in LENGTHS:
        for label in range(labels):
            found = bimatrix_path(
                row_payoffs, column_payoffs, symmetric, label, max_pivots, deadline
            )
            if found is not None:
                yield found, f"the Lemke-Howson algorithm, label {label}"
            if time.monotonic() > deadline:
                return
        for attempt in range(PERTURBED):
            noise = rng.uniform(0.0, PERTURBATION, (2, *row_payoffs.shape))
            noise[1] = noise[0].T if symmetric else noise[1]
            near = bimatrix_path(
                row_payoffs + noise[0],
                column_payoffs + noise[1],
                symmetric,
                attempt % labels,
                max_pivots,
                deadline,
            )
            if near is not None:
                yield near, "the Lemke-Howson algorithm on slightly perturbed payoffs"
                row, column = near
                mended = _on_supports(column_payoffs.T, column, row)
                other = mended if symmetric else _on_supports(row_payoffs, row, column)
                if mended is not None and other is not None:
                    how = "a linear program on the supports of a perturbed game"
                    yield (mended, other), how
            if time.monotonic() > deadline:
                return


def _on_supports(game: Numbers, replies: Numbers, mixture: Numbers) -> Numbers | None:
    """Return a mixture with the support of `mixture` against which all `replies` are optimal.

    A linear program minimises the shortfall of these replies from the best. `game`: [n, m] the
    other role's payoffs; `replies`: [n]; `mixture`: [m].
    """
    used, best = mixture > EQUAL, replies > EQUAL
    count = int(used.sum())
    ones = np.ones((len(game), 1))
    # Columns: the mixture, the best payoff, the shortfall.
    limits = np.vstack(
        [
            np.hstack([game[:, used], -ones, 0.0 * ones]),
            np.hstack([-game[best][:, used], ones[best], -ones[best]]),
        ]
    )
    found = linprog(
        np.append(np.zeros(count + 1), 1.0),
        limits,
        np.zeros(len(limits)),
        np.append(np.ones(count), [0.0, 0.0])[None],
        [1.0],
        [(0.0, None)] * count + [(None, None), (0.0, None)],
        method="highs",
        options=TIGHT,
    )
    if found.status != 0:
        return None
    mended = np.zeros(len(mixture))
    mended[used] = found.x[:count]
    return to_distribution(mended)


def _ranges(game: Numbers) -> Numbers:
    """Return [2] the range of each role's payoffs; 1 if all are equal."""
    spans = game.max((1, 2)) - game.min((1, 2))
    return np.where(spans > 0.0, spans, 1.0)


def _positive(game: Numbers) -> tuple[Numbers, Numbers]:
    """Return the payoffs of both roles, rescaled to [1, 2]."""
    low = game.min((1, 2), keepdims=True)
    scaled = (game - low) / _ranges(game)[:, None, None] + 1.0
    return scaled[0], scaled[1]
