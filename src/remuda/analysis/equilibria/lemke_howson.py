"""The Lemke-Howson algorithm: paths of pivots that end at an equilibrium.

The algorithm of Lemke and Howson 1964, "Equilibrium points of bimatrix games", runs here on one
symmetric game that contains the strategies of both roles (von Stengel 2002, "Computing equilibria
for two-person games", section 2.3). This form also finds symmetric equilibria of symmetric games.
Ties in the ratio test are broken lexicographically, so no path cycles (von Stengel, section 2.6).
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from remuda.analysis.equilibria.regret import to_distribution
from remuda.system.kernels import njit
from remuda.types import Integers, Numbers

DONE: Final = 0  # the path reached an equilibrium
MORE: Final = 1  # the path continues
LOST: Final = 2  # rounding errors spoiled the path
PIVOT: Final = 1e-11  # entries of a column below this are treated as zero
TIE: Final = 1e-12  # ratios closer than this are treated as equal
WORK: Final = 2e7  # approximate number of updated entries between two checks of the clock


@njit(cache=True)
def _leaving(tableau: Numbers, column: int) -> int:
    """Return the row of the lexicographically smallest ratio; -1: no positive entry."""
    size = tableau.shape[0]
    rows = np.empty(size, np.int64)
    count = 0
    for row in range(size):
        if tableau[row, column] > PIVOT:
            rows[count] = row
            count += 1
    if count == 0:
        return -1
    # Compare the right side first, then the inverse of the basis, column by column.
    for place in range(-1, size):
        if count == 1:
            break
        by = 2 * size if place < 0 else size + place
        best = np.inf
        for k in range(count):
            best = min(best, tableau[rows[k], by] / tableau[rows[k], column])
        left = 0
        for k in range(count):
            if tableau[rows[k], by] / tableau[rows[k], column] <= best + TIE:
                rows[left] = rows[k]
                left += 1
        count = left
    return int(rows[0])


@njit(cache=True)
def _follow(
    tableau: Numbers, basis: Integers, entering: int, label: int, pivots: int
) -> tuple[int, int]:
    """Pivot until an equilibrium or a limit is reached; return the outcome and next variable.

    `tableau`: [n, 2n + 1] columns of z, columns of the slacks, and the right side, changed in
    place; `basis`: [n] the basic column of each row, changed in place.
    """
    size = tableau.shape[0]
    for _ in range(pivots):
        row = _leaving(tableau, entering)
        if row < 0:
            return LOST, entering
        tableau[row] /= tableau[row, entering]
        for below in range(size):
            factor = tableau[below, entering]
            if below != row and factor != 0.0:
                for k in range(2 * size + 1):
                    tableau[below, k] -= factor * tableau[row, k]
                tableau[below, entering] = 0.0
        leaving = basis[row]
        basis[row] = entering
        if leaving % size == label:
            return DONE, leaving
        entering = leaving + size if leaving < size else leaving - size
    return MORE, entering


def complementary(matrix: Numbers, label: int, max_pivots: int, deadline: float) -> Numbers | None:
    """Find z [n] >= 0, not all 0, with C z <= 1, where each entry is zero or its row is tight.

    - `matrix`: [n, n] C, nonnegative, with a positive entry in every column.
    - `label`: the entry at which the path starts; `max_pivots`: maximum number of pivots.
    - `deadline`: by `time.monotonic`, checked only after the first batch of pivots.

    Returns: z; None: not found.
    """
    size = len(matrix)
    tableau = np.hstack([matrix, np.eye(size), np.ones((size, 1))])
    basis = np.arange(size, 2 * size, dtype=np.int64)
    pivots = max(1, int(WORK / tableau.size))
    status, entering = MORE, label
    for done in range(0, max_pivots, pivots):
        if status == MORE and (done == 0 or time.monotonic() <= deadline):
            now = min(pivots, max_pivots - done)
            status, entering = _follow(tableau, basis, entering, label, now)
    if status != DONE:
        return None
    # Solve again from the original columns of the basis, because the tableau has rounding errors.
    columns = np.hstack([matrix, np.eye(size)])[:, basis]
    try:
        solved = np.linalg.solve(columns, np.ones(size))
    except np.linalg.LinAlgError:
        return None
    found = np.zeros(2 * size)
    found[basis] = solved
    return np.maximum(found[:size], 0.0)


def bimatrix_path(
    row_payoffs: Numbers,
    column_payoffs: Numbers,
    symmetric: bool,
    label: int,
    max_pivots: int,
    deadline: float,
) -> tuple[Numbers, Numbers] | None:
    """Return the mixtures of both roles at the end of a path; None: not found.

    - `row_payoffs`, `column_payoffs`: [n, m], above 0.
    - `symmetric`: the column's payoffs are the row's transposed, and both use the same mixture.
    - `label`, `max_pivots`, `deadline`: those of `complementary`.
    """
    rows, columns = row_payoffs.shape
    matrix = row_payoffs
    if not symmetric:
        matrix = np.zeros((rows + columns, rows + columns))
        matrix[:rows, rows:] = row_payoffs
        matrix[rows:, :rows] = column_payoffs.T
    found = complementary(matrix, label, max_pivots, deadline)
    if found is None or not (found[:rows].sum() > 0.0 and found[-columns:].sum() > 0.0):
        return None
    return to_distribution(found[:rows]), to_distribution(found[-columns:])
