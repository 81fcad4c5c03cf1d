"""Find cycles of strategies in which each beats the next.

An edge leads from a strategy to another that it beats significantly: the margin is above 0, and
noise does not explain it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse, stats
from scipy.sparse import csgraph

from remuda.analysis.as_json import Summary
from remuda.analysis.payoffs.payoffs import KNOWN, Payoffs, check_level
from remuda.analysis.structure.transitivity import margin_variances
from remuda.errors import UsageError
from remuda.types import Bools, Numbers

ROUNDING = 1e-9  # margins below this share of the largest one are treated as 0


@dataclass(frozen=True)
class Cycle(Summary):
    """A cycle of strategies: each beats the next, and the last beats the first."""

    names: tuple[str, ...]  # [L] starting at the strategy with the lowest index
    margins: Numbers  # [L] half the difference of the payoffs when each meets the next
    intervals: Numbers = field(repr=False)  # [2, L] of the margins, at the level of `cycles`

    @property
    def weakest(self) -> float:
        """The smallest margin: the strength of the cycle."""
        return float(self.margins.min())

    def as_summary(self) -> dict[str, Any]:
        return super().as_summary() | {"weakest": self.weakest}


@dataclass(frozen=True)
class Cycles(Summary):
    """The cycles of a game, formed by significant edges."""

    edges: int  # number of pairs with a significant winner
    pairs: int  # number of pairs that met
    groups: tuple[tuple[str, ...], ...]  # strongly connected sets of strategies, the largest first
    strongest: Cycle | None  # the shortest of the cycles with the largest minimum margin
    triangles: tuple[Cycle, ...]  # the strongest cycles of three, the strongest first
    num_triangles: int  # number of all cycles of three
    level: float  # the probability that all edges are right (`joint`), or that one edge is
    joint: bool


def cycles(payoffs: Payoffs, level: float = 0.95, *, joint: bool = True, most: int = 10) -> Cycles:
    """Find the cycles that significant edges form in a symmetric game.

    Pairs that never met have no edge. A two-sided t test of the margin decides whether an edge is
    significant.

    `joint`: test all edges together (Bonferroni): with probability `level`, all cycles that are
    found exist. Otherwise each edge is tested separately, and some of many edges are wrong.
    """
    check_level(level)
    of_pairs, half = _margins(payoffs, level, joint)
    scale = float(np.nanmax(np.abs(of_pairs), initial=0.0))
    beats = of_pairs > half + ROUNDING * scale  # False for NaN: the pair never met
    triangles, number = _triangles(of_pairs, beats, most)

    def named(cycle: list[int]) -> Cycle:
        edges = cycle, [*cycle[1:], *cycle[:1]]
        found = of_pairs[edges]
        names = tuple(payoffs.names[place] for place in cycle)
        return Cycle(names, found, np.stack([found - half[edges], found + half[edges]]))

    strongest = strongest_cycle(of_pairs, beats)
    return Cycles(
        int(beats.sum()),
        int(np.triu(payoffs.counts > 0, 1).sum()),
        tuple(tuple(payoffs.names[place] for place in group) for group in _groups(beats)),
        named(strongest) if strongest else None,
        tuple(named(cycle) for cycle in triangles),
        number,
        level,
        joint,
    )


def _margins(payoffs: Payoffs, level: float, joint: bool) -> tuple[Numbers, Numbers]:
    """Return the margins [n, n] and the half-widths of their intervals; NaN: no match."""
    payoffs.check_symmetric("cycles")
    distinct = ~np.eye(len(payoffs.names), dtype=np.bool_)
    if not (payoffs.own_freedom[distinct] > 0.0).any():
        raise UsageError("no two strategies met twice: the uncertainty of their payoffs is unknown")
    of_pairs = np.where(distinct, (payoffs.matrix - payoffs.matrix.T) / 2.0, 0.0)
    uncertain = np.triu((payoffs.counts > 0) & (payoffs.counts < KNOWN), 1).sum()
    error_rate = (1.0 - level) / (max(int(uncertain), 1) if joint else 1)
    errors = np.sqrt(margin_variances(payoffs))
    half: Numbers = stats.t.isf(error_rate / 2.0, payoffs.freedom) * errors
    return of_pairs, half


def _groups(beats: Bools) -> list[list[int]]:
    """Return the strongly connected components of at least two strategies, the largest first."""
    count, labels = csgraph.connected_components(
        sparse.csr_matrix(beats), directed=True, connection="strong"
    )
    found = [np.flatnonzero(labels == label).tolist() for label in range(count)]
    groups = [group for group in found if len(group) > 1]
    return sorted(groups, key=lambda group: (-len(group), group))


def strongest_cycle(of_pairs: Numbers, beats: Bools) -> list[int]:
    """Return the cycle with the largest minimum margin; of several, the first of the shortest.

    Bisection finds the largest threshold at which the edges still contain a cycle. All cycles at
    this threshold contain an edge with exactly that margin.

    `of_pairs`: [n, n] margins; `beats`: [n, n] the edges.
    """
    if not _groups(beats):
        return []
    levels = np.unique(of_pairs[beats])
    low, high = 0, len(levels)  # at `low` there is a cycle, at `high` none
    while high - low > 1:
        middle = (low + high) // 2
        if _groups(beats & (of_pairs >= levels[middle])):
            low = middle
        else:
            high = middle
    strong = beats & (of_pairs >= levels[low])
    paths = [
        _path(strong, int(column), int(row))
        for row, column in np.argwhere(strong & (of_pairs == levels[low]))
    ]
    return min((_rotated(path) for path in paths if path), key=lambda path: (len(path), path))


def _path(beats: Bools, start: int, end: int) -> list[int]:
    """Return the shortest path between two strategies, both included; empty: no path."""
    before = csgraph.breadth_first_order(sparse.csr_matrix(beats), start)[1]
    path = [end]
    while path[0] != start:
        if before[path[0]] < 0:
            return []
        path.insert(0, int(before[path[0]]))
    return path


def _rotated(cycle: list[int]) -> list[int]:
    """Return the same cycle, rotated to start at its lowest index."""
    start = cycle.index(min(cycle))
    return [*cycle[start:], *cycle[:start]]


def _triangles(of_pairs: Numbers, beats: Bools, most: int) -> tuple[list[list[int]], int]:
    """Return the strongest cycles of three, and the total number of such cycles."""
    best: list[tuple[float, list[int]]] = []
    number = 0
    for first in range(len(beats)):
        after = first + 1 + np.flatnonzero(beats[first, first + 1 :])
        before = first + 1 + np.flatnonzero(beats[first + 1 :, first])
        at = np.argwhere(beats[np.ix_(after, before)])
        if not len(at):
            continue
        number += len(at)
        seconds, thirds = after[at[:, 0]], before[at[:, 1]]
        weakest = np.minimum(
            np.minimum(of_pairs[first, seconds], of_pairs[seconds, thirds]), of_pairs[thirds, first]
        )
        for place in np.argsort(-weakest, kind="stable")[:most]:
            best.append((-float(weakest[place]), [first, int(seconds[place]), int(thirds[place])]))
        best = sorted(best)[:most]
    return [cycle for _, cycle in best], number
