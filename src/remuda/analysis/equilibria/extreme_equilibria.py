"""All extreme equilibria of a small game of two roles, degenerate or not.

Each role has a best-response polytope, whose points are scaled mixtures of the other role. An
extreme equilibrium is a pair of vertices, one of each polytope, at which every strategy is unused
or a best reply (Mangasarian 1964, "Equilibrium points of bimatrix games"; Avis, Rosenberg, Savani
and von Stengel 2010, "Enumeration of Nash equilibria for two-player games"). To find the vertices,
the code tries every set of used strategies with every set of as many best replies.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from remuda.system.kernels import njit
from remuda.types import Integers, Numbers

Labels = npt.NDArray[np.uint64]

EQUAL: Final = 1e-9  # payoffs closer than this, relative to their range, are treated as equal
SINGULAR: Final = 1e-11  # a pivot below this is treated as zero
STRATEGIES: Final = 60  # most strategies of both roles together: each is a bit of a uint64


@njit(cache=True)
def _next(chosen: Integers, size: int, most: int) -> bool:
    """Advance to the next subset of `size` numbers below `most`; return False after the last."""
    place = size - 1
    while place >= 0 and chosen[place] == most - size + place:
        place -= 1
    if place < 0:
        return False
    chosen[place] += 1
    for after in range(place + 1, size):
        chosen[after] = chosen[after - 1] + 1
    return True


@njit(cache=True)
def _solve(system: Numbers, size: int) -> bool:
    """Replace the last column of a system [size, size + 1] by the solution; False: singular."""
    for k in range(size):
        best = k
        for row in range(k + 1, size):
            if abs(system[row, k]) > abs(system[best, k]):
                best = row
        if abs(system[best, k]) < SINGULAR:
            return False
        if best != k:
            for at in range(k, size + 1):
                system[k, at], system[best, at] = system[best, at], system[k, at]
        for row in range(k + 1, size):
            factor = system[row, k] / system[k, k]
            if factor != 0.0:
                for at in range(k, size + 1):
                    system[row, at] -= factor * system[k, at]
    for k in range(size - 1, -1, -1):
        for at in range(k + 1, size):
            system[k, size] -= system[k, at] * system[at, size]
        system[k, size] /= system[k, k]
    return True


@njit(cache=True)
def _labels(limits: Numbers, used: Integers, solution: Numbers) -> tuple[bool, np.uint64]:
    """Return whether a point satisfies all limits, and the point's label (see `_vertices`)."""
    rows, count = limits.shape
    label = np.uint64(0)
    for i in range(count):
        label |= np.uint64(1) << np.uint64(i)
    for j in range(len(used)):
        if solution[j] > EQUAL:
            label ^= np.uint64(1) << np.uint64(used[j])
    for k in range(rows):
        reached = 0.0
        for j in range(len(used)):
            reached += limits[k, used[j]] * solution[j]
        if reached > 1.0 + EQUAL:
            return False, label
        if reached > 1.0 - EQUAL:
            label |= np.uint64(1) << np.uint64(count + k)
    return True, label


@njit(cache=True)
def _vertices(limits: Numbers, found: Numbers, labels: Labels) -> int:
    """Enumerate the vertices of {p >= 0, limits p <= 1} except 0, and return their number.

    Vertices may repeat. `limits`: [K, N] above 0. The function fills `found` [most, N] and `labels`
    [most]. A label has bit i set for p_i = 0, and bit N + k for a tight row k.
    """
    rows, count = limits.shape
    total = 0
    system = np.empty((min(rows, count), min(rows, count) + 1))
    for size in range(1, min(rows, count) + 1):
        used = np.arange(size)
        more = True
        while more:
            tight = np.arange(size)
            again = True
            while again:
                for i in range(size):
                    for j in range(size):
                        system[i, j] = limits[tight[i], used[j]]
                    system[i, size] = 1.0
                again = _next(tight, size, rows)
                if not _solve(system, size):
                    continue
                solution = system[:size, size]
                if solution.min() < -EQUAL:
                    continue
                feasible, label = _labels(limits, used, solution)
                if feasible:
                    if total < len(labels):
                        labels[total] = label
                        found[total] = 0.0
                        for j in range(size):
                            found[total, used[j]] = max(solution[j], 0.0)
                    total += 1
            more = _next(used, size, count)
    return total


def vertices(limits: Numbers) -> tuple[Numbers, Labels]:
    """Return the vertices of {p >= 0, limits p <= 1} except 0, [V, N], and their labels [V].

    Each vertex is scaled to sum 1. `limits`: [K, N] between 1 and 2.
    """
    capacity = 4096
    while True:
        found = np.empty((capacity, limits.shape[1]))
        labels = np.empty(capacity, np.uint64)
        total = int(_vertices(limits, found, labels))
        if total <= capacity:
            break
        capacity = total
    # Points with the same label are the same vertex.
    unique, first = np.unique(labels[:total], return_index=True)
    points = found[first]
    return points / points.sum(1, keepdims=True), unique


def pairs(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    """Return all extreme equilibria: mixtures of the row [E, n] and of the column [E, m].

    `a`, `b`: [n, m] payoffs of row and column, between 1 and 2.
    """
    rows, columns = a.shape
    of_row, row_labels = vertices(b.T.copy())
    of_column, column_labels = vertices(a.copy())
    # Reorder the bits of column labels: like row labels, the row's strategies come lowest.
    low = (column_labels >> np.uint64(columns)) & np.uint64((1 << rows) - 1)
    high = column_labels & np.uint64((1 << columns) - 1)
    turned = low | (high << np.uint64(rows))
    full = np.uint64((1 << (rows + columns)) - 1)
    row_indices, column_indices = [], []
    for place, label in enumerate(row_labels):
        for column in np.flatnonzero((turned | label) == full):
            row_indices.append(place)
            column_indices.append(int(column))
    return of_row[row_indices], of_column[column_indices]
