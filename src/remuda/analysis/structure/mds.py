"""A map of a population: policies as points of a plane, with similar policies near each other.

The maps come from classical multidimensional scaling (Torgerson 1952, "Multidimensional scaling:
theory and method"), also called principal coordinates (Gower 1966). Procrustes alignment makes maps
of a population at different times comparable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import Summary
from remuda.analysis.payoffs.bias import check_draws
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.analysis.structure.diversity import payoff_distances
from remuda.types import Numbers

TIED = 1e-8  # values that differ by less than this share of the largest are treated as equal


@dataclass(frozen=True)
class PolicyMap(Summary):
    """Policies as points of a map."""

    positions: Numbers  # [N, dimensions] with mean 0, the direction of most variance first
    shares: Numbers  # [dimensions] share of the sum of all absolute eigenvalues (Mardia 1978)
    spread: Numbers = field(repr=False)  # [N, dimensions, dimensions] covariances of the positions

    @property
    def share(self) -> float:
        """The share of variance that the whole map shows."""
        return float(self.shares.sum())


def classical_mds(distances: npt.ArrayLike, dimensions: int = 2) -> PolicyMap:
    """Place policies so that their distances on the map match `distances`.

    Equal distances give equal maps. Eigenvectors determine neither signs nor rotations among
    axes of equal variance, so both are fixed: on the first such axis the outermost policy gets a
    positive coordinate. Ties go to the first such policy.

    `distances`: [N, N], symmetric.
    """
    squared = np.asarray(distances, np.float64) ** 2
    count = len(squared)
    centered = squared - squared.mean(0)
    centered -= centered.mean(1, keepdims=True)
    values, vectors = np.linalg.eigh(-centered / 2.0)
    values, vectors = values[::-1], vectors[:, ::-1]
    size = np.abs(values).sum()
    shown = min(dimensions, count)
    positions, shares = np.zeros((count, dimensions)), np.zeros(dimensions)
    if size > 0.0:
        vectors = _canonical(values, vectors, shown)
        positive = np.where(values[:shown] > TIED * values[0], values[:shown], 0.0)
        positions[:, :shown] = vectors[:, :shown] * np.sqrt(positive)
        shares[:shown] = positive / size
    return PolicyMap(positions, shares, np.zeros((count, dimensions, dimensions)))


def _canonical(values: Numbers, vectors: Numbers, number: int) -> Numbers:
    """Return the first `number` eigenvectors, or a few more, in a unique form.

    The projector of each group of equal eigenvalues is unique. The new vectors are its columns, the
    longest first. Each is made orthogonal to the previous ones.
    """
    found = np.zeros_like(vectors)
    start = 0
    while start < number:
        end = start + 1
        while end < len(values) and values[end - 1] - values[end] <= TIED * abs(values[0]):
            end += 1
        basis = vectors[:, start:end]
        rest = basis @ basis.T
        for place in range(start, end):
            lengths = np.diag(rest)
            first = int(np.argmax(lengths >= (1.0 - 1e-6) * lengths.max()))
            column = rest[:, first] / np.sqrt(max(rest[first, first], 1e-300))
            found[:, place] = column
            rest = rest - np.outer(column, column)
        start = end
    return found


def align(positions: npt.ArrayLike, previous: npt.ArrayLike) -> Numbers:
    """Rotate, mirror and move a map towards an earlier one of the same policies: [N, D].

    This is orthogonal Procrustes alignment (Schönemann 1966, "A generalized solution of the
    orthogonal Procrustes problem") without scaling: distances do not change.

    `positions`, `previous`: [N, D].
    """
    new, old = np.asarray(positions, np.float64), np.asarray(previous, np.float64)
    center, target = new.mean(0), old.mean(0)
    left, _, right = np.linalg.svd((new - center).T @ (old - target))
    found: Numbers = (new - center) @ (left @ right) + target
    return found


def payoff_map(payoffs: Payoffs, rng: np.random.Generator, draws: int = 200) -> PolicyMap:
    """Return a map of policies by their payoffs against each opponent, with position uncertainties.

    Maps of sampled payoffs are aligned to the map of the means. `spread` is the covariance of the
    aligned positions around that map's positions.
    """
    check_draws(draws)
    found = classical_mds(payoff_distances(payoffs.matrix))
    away = [
        align(classical_mds(payoff_distances(sample[0])).positions, found.positions)
        - found.positions
        for sample in payoffs.sample(draws, rng)
    ]
    spread = np.einsum("kni,knj->nij", np.array(away), np.array(away)) / draws
    return PolicyMap(found.positions, found.shares, spread)
