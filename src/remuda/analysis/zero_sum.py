"""Zero-sum games of two roles: their value and equilibria, by linear programs.

The equilibria of a zero-sum game are all pairs of an optimal mixture of each role, and these are
two polytopes (von Neumann 1928). Where they are more than points, an equilibrium has to be chosen:
the one of the largest entropy is unique, and does not change when a strategy stands there twice,
but that both share its mass (Balduzzi et al. 2018, "Re-evaluating evaluation", section 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from remuda.analysis.lemke_howson import complementary
from remuda.analysis.maximum_entropy import TIGHT, Face, find_face, maximize
from remuda.analysis.payoff import Numbers
from remuda.analysis.regret import as_two_roles, regret, to_distribution
from remuda.errors import UsageError
from remuda.types import Bools

ENOUGH = 1e-9
"""The regret of an answer, by the range of the payoffs."""
SMALL = 80
"""Strategies of both roles up to which pivots are faster than a linear program."""
LENGTH = 1_000
"""Pivots, at most."""
EXACT = 1e-13
"""How far apart the bounds of the value may be, in units of the range of the payoffs."""
APART = 1e-8
"""Probabilities and slacks below this, in units of the range of the payoffs, may be zero."""


@dataclass(frozen=True)
class ZeroSum:
    """An equilibrium of a zero-sum game.

    Attributes:
        value: what the row earns.
        mixtures: of the row [n] and of the column [m].
        regret: [2] what row and column could gain; computed from the payoffs.
        dimensions: of both polytopes of optimal mixtures, 0: there is one only; empty: unknown.
        note: what there is to know besides; empty: nothing.
    """

    value: float
    mixtures: tuple[Numbers, Numbers]
    regret: Numbers
    dimensions: tuple[int, ...] = ()
    note: str = ""

    @property
    def unique(self) -> bool:
        """Whether it is known that the game has no other equilibrium."""
        return bool(self.dimensions) and not any(self.dimensions)

    def as_summary(self) -> dict[str, object]:
        """Plain data."""
        return {
            "value": self.value,
            "mixtures": [mixture.tolist() for mixture in self.mixtures],
            "regret": self.regret.tolist(),
            "dimensions": list(self.dimensions),
            "unique": self.unique,
            "note": self.note,
        }


def solve(matrix: npt.ArrayLike) -> ZeroSum:
    """An equilibrium of a zero-sum game, whichever its linear program ends at.

    Args:
        matrix: [n, m] what the row earns and the column loses.

    Raises:
        UsageError: it is no matrix, or not finite.
    """
    game = _as_game(matrix)
    scaled, low, span = _scaled(game)
    return _answer(game, _vertex(scaled), low, span, (), "")


def solve_max_entropy(matrix: npt.ArrayLike) -> ZeroSum:
    """The equilibrium of a zero-sum game in which each role's mixture has the largest entropy.

    It is unique. Should its numbers not be found to within 1e-9 of the range of the payoffs, which
    is checked, then the answer is that of `solve`, and its note says so.

    Args:
        matrix: [n, m] what the row earns and the column loses.

    Raises:
        UsageError: it is no matrix, or not finite.
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
    """The payoffs between -1 and 1, and what to undo that with: their middle, and half range."""
    middle = float(game.max() + game.min()) / 2.0
    span = float(game.max() - game.min()) / 2.0
    if not np.isfinite(middle) or not np.isfinite(span):
        raise UsageError("payoffs: they are too large to compute with; scale them down")
    return (game - middle) / (span or 1.0), middle, span or 1.0


def _is_symmetric(game: Numbers) -> bool:
    return game.shape[0] == game.shape[1] and bool((game == -game.T).all())


def _vertex(game: Numbers) -> tuple[Numbers, Numbers]:
    """Optimal mixtures of both roles: the row's of its program, the column's of its multipliers."""
    rows, columns = game.shape
    worth = np.zeros(rows + 1)
    worth[-1] = -1.0
    found = linprog(
        worth,
        np.hstack([-game.T, np.ones((columns, 1))]),
        np.zeros(columns),
        np.append(np.ones(rows), 0.0)[None],
        [1.0],
        [(0.0, None)] * rows + [(None, None)],
        method="highs",
        options=TIGHT,
    )
    if found.status != 0:
        raise UsageError(
            f"payoffs: their linear program has no answer ({found.message}); look whether a few "
            "of them are larger than all others by many orders"
        )
    return to_distribution(found.x[:-1]), to_distribution(-found.ineqlin.marginals)


def _by_pivots(game: Numbers, symmetric: bool) -> tuple[Numbers, Numbers] | None:
    """Optimal mixtures of a small game, many times faster than by a program; None: take that."""
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
    """The face of all optimal mixtures of a role, from one mixture and what it and the other tell.

    Where every strategy of both roles is either used or worse, an optimal pair tells the faces of
    both (Goldman and Tucker 1956); else a linear program has to.
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
        note = f"its regret is {gained.max():.1e}: the payoffs cannot be told apart any better"
    return ZeroSum(value, mixtures, gained, dimensions, note)
