"""Values and equilibria of zero-sum games of two roles, by linear programs.

The equilibria are all pairs of optimal mixtures of the two roles, which form two polytopes (von
Neumann 1928). The equilibrium with the largest entropy is unique. Duplicating a strategy only
splits its mass (Balduzzi et al. 2018, "Re-evaluating evaluation", section 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import Summary
from remuda.analysis.equilibria.lemke_howson import complementary
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
    """Return the equilibrium of a zero-sum game at which the linear program ends.

    `matrix`: [n, m] the row's payoffs.
    """
    game = _as_game(matrix)
    scaled, low, span = _scaled(game)
    return _answer(game, _vertex(scaled), low, span, (), "")


def solve_max_entropy(matrix: npt.ArrayLike) -> ZeroSum:
    """Return the equilibrium of a zero-sum game whose mixtures have the largest entropy.

    This equilibrium is unique. If it is not found to within 1e-9 of half the payoff range, the
    result is another equilibrium, and its note says so.

    `matrix`: [n, m] the row's payoffs.
    """
    game = _as_game(matrix)
    scaled, low, span = _scaled(game)
    symmetric = _is_symmetric(game)
    vertex = _by_pivots(scaled, symmetric) or _vertex(scaled)
    first = _answer(game, vertex, low, span, (), "")
    found = _most_entropy(scaled, vertex, symmetric)
    if found is not None:
        mixtures, dimensions = found
        best = _answer(game, mixtures, low, span, dimensions, "")
        if best.unique and first.regret.max() < best.regret.max():
            return _answer(game, vertex, low, span, dimensions, "")
        if best.regret.max() <= max(ENOUGH * span, first.regret.max()):
            return best
    note = "the equilibrium of the largest entropy was not found; this is another one"
    return _answer(game, vertex, low, span, (), note)


def _as_game(matrix: npt.ArrayLike) -> Numbers:
    found = np.asarray(matrix, np.float64)
    game: Numbers = as_two_roles(found, -found)[0]
    return game


def _scaled(game: Numbers) -> tuple[Numbers, float, float]:
    """Return the payoffs rescaled to [-1, 1], with the middle and half of their range."""
    middle = float(game.max() + game.min()) / 2.0
    span = float(game.max() - game.min()) / 2.0
    if not np.isfinite(middle) or not np.isfinite(span):
        raise UsageError("payoffs: they are too large to compute with; scale them down")
    return (game - middle) / (span or 1.0), middle, span or 1.0


def _is_symmetric(game: Numbers) -> bool:
    return game.shape[0] == game.shape[1] and bool((game == -game.T).all())


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
    rows, columns = game.shape
    if rows + columns > SMALL:
        return None
    row_first = np.zeros((rows + columns, rows + columns))
    row_first[:rows, rows:] = game + 2.0
    row_first[rows:, :rows] = 2.0 - game.T
    found = complementary(game + 2.0 if symmetric else row_first, 0, LENGTH, math.inf)
    if found is None or not (found[:rows].sum() > 0.0 and found[-columns:].sum() > 0.0):
        return None
    row, column = to_distribution(found[:rows]), to_distribution(found[-columns:])
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
    dimensions: tuple[int, ...],
    note: str,
) -> ZeroSum:
    row, column = mixtures
    gained = regret(np.stack([game, -game]), mixtures)
    scaled = (game - middle) / span
    value = float(row @ scaled @ column) * span + middle
    if not note and gained.max() > ENOUGH * span:
        note = f"its regret is {gained.max():.1e}: the payoffs differ too little for float64"
    return ZeroSum(value, mixtures, gained, dimensions, note)
