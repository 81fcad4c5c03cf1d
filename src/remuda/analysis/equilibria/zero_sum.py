"""Values and equilibria of zero-sum games of two roles, by linear programs.

The equilibria are all pairs of optimal mixtures of the two roles, which form two polytopes (von
Neumann 1928). The equilibrium with the largest entropy is unique. Duplicating a strategy only
splits its mass (Balduzzi et al. 2018, "Re-evaluating evaluation", section 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import Summary
from remuda.analysis.equilibria.lemke_howson import bimatrix_path
from remuda.analysis.equilibria.maximum_entropy import Face, find_face, maximize, solve_program
from remuda.analysis.equilibria.regret import as_two_roles, regret, to_distribution
from remuda.errors import UsageError
from remuda.types import Bools, Numbers

ENOUGH = 1e-9  # largest accepted regret, relative to half the payoff range
SMALL = 80  # most strategies of both roles for which pivots are faster than a linear program
LENGTH = 1_000  # most pivots
EXACT = 1e-13  # largest gap between the bounds of the value, relative to half the payoff range
APART = 1e-8  # probabilities below this, and slacks below this share of half the range, may be zero


@dataclass(frozen=True)
class ZeroSum(Summary):
    """An equilibrium of a zero-sum game."""

    value: float  # the row's payoff
    mixtures: tuple[Numbers, Numbers]  # of the row [n] and of the column [m]
    regret: Numbers  # [2] of row and column; computed from the payoffs
    dimensions: tuple[int, ...] = ()  # of both polytopes of optimal mixtures; empty: unknown
    note: str = ""  # remarks

    @property
    def unique(self) -> bool:
        """True if the game is known to have no other equilibrium."""
        return bool(self.dimensions) and not any(self.dimensions)


def solve(matrix: npt.ArrayLike) -> ZeroSum:
    """Return the equilibrium of a zero-sum game, [n, m], at which the linear program ends."""
    game, scaled, middle, span = _scaled(matrix)
    return _answer(game, _vertex(scaled), middle, span)


def solve_max_entropy(matrix: npt.ArrayLike) -> ZeroSum:
    """Return the equilibrium of a zero-sum game whose mixtures have the largest entropy.

    This equilibrium is unique. If it is not found to within 1e-9 of half the payoff range, the
    result is another equilibrium, and its note says so.

    `matrix`: [n, m] the row's payoffs.
    """
    game, scaled, middle, span = _scaled(matrix)
    symmetric = np.array_equal(game, -game.T)
    vertex = _by_pivots(scaled, symmetric) or _vertex(scaled)
    first = _answer(game, vertex, middle, span)
    found = _most_entropy(scaled, vertex, symmetric)
    if found is not None:
        mixtures, dimensions = found
        best = _answer(game, mixtures, middle, span, dimensions)
        if best.unique and first.regret.max() < best.regret.max():
            return replace(first, dimensions=dimensions)
        if best.regret.max() <= max(ENOUGH * span, first.regret.max()):
            return best
    note = "the equilibrium of the largest entropy was not found; this is another one"
    return replace(first, note=note)


def _scaled(matrix: npt.ArrayLike) -> tuple[Numbers, Numbers, float, float]:
    """Check payoffs; return them, rescaled to [-1, 1], and the middle and half of their range."""
    payoffs = np.asarray(matrix, np.float64)
    game: Numbers = as_two_roles(payoffs, -payoffs)[0]
    middle = float(game.max() + game.min()) / 2.0
    span = float(game.max() - game.min()) / 2.0
    if not np.isfinite(middle) or not np.isfinite(span):
        raise UsageError("payoffs: they are too large to compute with; scale them down")
    return game, (game - middle) / (span or 1.0), middle, span or 1.0


def _vertex(game: Numbers) -> tuple[Numbers, Numbers]:
    """Solve the row's linear program; its multipliers are the column's optimal mixture."""
    rows, columns = game.shape
    objective = np.zeros(rows + 1)
    objective[-1] = -1.0
    found = solve_program(
        objective,
        np.hstack([-game.T, np.ones((columns, 1))]),
        np.zeros(columns),
        np.append(np.ones(rows), 0.0)[None],
        [1.0],
        [(0.0, None)] * rows + [(None, None)],
    )
    return to_distribution(found.x[:-1]), to_distribution(-found.ineqlin.marginals)


def _by_pivots(game: Numbers, symmetric: bool) -> tuple[Numbers, Numbers] | None:
    """Solve a small game by pivots, much faster than by a linear program; None: not found."""
    if sum(game.shape) > SMALL:
        return None
    found = bimatrix_path(game + 2.0, 2.0 - game, symmetric, 0, LENGTH, math.inf)
    if found is None:
        return None
    row, column = found
    gap = float((game @ column).max() - (row @ game).min())
    return (row, column) if gap <= EXACT else None


def _most_entropy(
    game: Numbers, vertex: tuple[Numbers, Numbers], symmetric: bool
) -> tuple[tuple[Numbers, Numbers], tuple[int, ...]] | None:
    row, column = vertex
    value = float((game @ column).max() + (row @ game).min()) / 2.0
    spare, spare_columns = value - game @ column, row @ game - value
    used, used_columns = row > APART, column > APART
    worse, worse_columns = spare > APART, spare_columns > APART
    of_row = maximize(game.T - value, _face(game.T - value, row, ~worse, used_columns))
    of_column = of_row
    if not symmetric:
        of_column = maximize(value - game, _face(value - game, column, ~worse_columns, used))
    if of_row is None or of_column is None:
        return None
    mixtures = to_distribution(of_row[0]), to_distribution(of_column[0])
    return mixtures, (of_row[1], of_column[1])


def _face(gains: Numbers, optimal: Numbers, possible: Bools, tight: Bools) -> Face | None:
    """Return the face of all optimal mixtures of a role, from one pair of optimal mixtures.

    If every strategy of both roles is either used or strictly worse, that pair determines both
    faces (Goldman and Tucker 1956); otherwise a linear program is needed.
    """
    loose = gains @ optimal > APART
    if ((optimal > APART) == possible).all() and (loose == ~tight).all():
        return Face(possible, tight, to_distribution(np.where(possible, optimal, 0.0)))
    return find_face(gains, possible, tight)


def _answer(
    game: Numbers,
    mixtures: tuple[Numbers, Numbers],
    middle: float,
    span: float,
    dimensions: tuple[int, ...] = (),
) -> ZeroSum:
    row, column = mixtures
    gained = regret(np.stack([game, -game]), mixtures)
    scaled = (game - middle) / span
    value, note = float(row @ scaled @ column) * span + middle, ""
    if gained.max() > ENOUGH * span:
        note = f"its regret is {gained.max():.1e}: the payoffs differ too little for float64"
    return ZeroSum(value, mixtures, gained, dimensions, note)
