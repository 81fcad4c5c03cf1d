"""A map of a population: policies as points of a plane, with similar policies near each other.

The maps come from classical multidimensional scaling (Torgerson 1952, "Multidimensional scaling:
theory and method"), also called principal coordinates (Gower 1966). Procrustes alignment makes maps
of a population at different times comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import Summary
from remuda.analysis.payoffs.bias import check_draws
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.analysis.structure.diversity import payoff_distances
from remuda.errors import UsageError
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


def _checked(distances: npt.ArrayLike) -> Numbers:
    found = np.asarray(distances, np.float64)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or len(found) < 1:
        raise UsageError(f"distances are {found.shape}; they must be [N, N]")
    unknown = np.argwhere(~np.isfinite(found))
    if len(unknown):
        row, column = unknown[0]
        raise UsageError(
            f"distances: that of {row} and {column} is {found[row, column]}, and "
            f"{len(unknown)} are unknown in total; leave these policies out"
        )
    scale = float(np.abs(found).max())
    symmetric = np.allclose(found, found.T, atol=TIED * max(scale, 1e-300))
    if (found < 0.0).any() or np.diag(found).any() or not symmetric:
        raise UsageError("distances must be symmetric, not negative, and 0 on the diagonal")
    return found


def classical_mds(distances: npt.ArrayLike, dimensions: int = 2) -> PolicyMap:
    """Place policies so that their distances on the map match `distances`.

    Equal distances give equal maps. Eigenvectors determine neither signs nor rotations among
    axes of equal variance, so both are fixed: on the first such axis the outermost policy gets a
    positive coordinate. Ties go to the first such policy.

    `distances`: [N, N].
    """
    d = _checked(distances)
    if dimensions < 1:
        raise UsageError(f"dimensions is {dimensions}; a map has at least 1, usually 2")
    return _map(d**2, dimensions)


def _map(squared: Numbers, dimensions: int) -> PolicyMap:
    count = len(squared)
    centered = squared - squared.mean(0)
    centered -= centered.mean(1, keepdims=True)
    values, vectors = np.linalg.eigh(-centered / 2.0)
    values, vectors = values[::-1], vectors[:, ::-1]
    size = np.abs(values).sum()
    kept = min(dimensions, count)
    positions, shares = np.zeros((count, dimensions)), np.zeros(dimensions)
    if size > 0.0:
        vectors = _canonical(values, vectors, kept)
        shown = np.where(values[:kept] > TIED * values[0], values[:kept], 0.0)
        positions[:, :kept] = vectors[:, :kept] * np.sqrt(np.maximum(shown, 0.0))
        shares[:kept] = np.maximum(shown, 0.0) / size
    return PolicyMap(positions, shares, np.zeros((count, dimensions, dimensions)))


def _canonical(values: Numbers, vectors: Numbers, kept: int) -> Numbers:
    """Return the first `kept` eigenvectors, or a few more, in a unique form.

    The projector of each group of equal eigenvalues is unique. The new vectors are its columns, the
    longest first. Each is made orthogonal to the previous ones.
    """
    found = np.zeros_like(vectors)
    start = 0
    while start < kept:
        end = start + 1
        while end < len(values) and values[end - 1] - values[end] <= TIED * abs(values[0]):
            end += 1
        basis = vectors[:, start:end]
        left = basis @ basis.T
        for place in range(start, end):
            lengths = np.diag(left)
            first = int(np.argmax(lengths >= (1.0 - 1e-6) * lengths.max()))
            column = left[:, first] / np.sqrt(max(left[first, first], 1e-300))
            found[:, place] = column
            left = left - np.outer(column, column)
        start = end
    return found


def align(
    positions: npt.ArrayLike,
    previous: npt.ArrayLike,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> Numbers:
    """Rotate, mirror and move a map towards an earlier one: [N, D].

    This is orthogonal Procrustes alignment (Schönemann 1966, "A generalized solution of the
    orthogonal Procrustes problem") without scaling: distances do not change.

    - `positions`: [N, D] of the new map.
    - `previous`: [M, D] of the earlier map.
    - `pairs`: (index in the new map, index in the old) of the policies in both; None: all, in the
      same order. A single pair only moves the map, an empty list leaves it unchanged.
    """
    new, old = np.asarray(positions, np.float64), np.asarray(previous, np.float64)
    if new.ndim != 2 or old.ndim != 2 or new.shape[1] != old.shape[1]:
        raise UsageError(f"maps are {new.shape} and {old.shape}; both must be [policies, D]")
    if pairs is None:
        if len(new) != len(old):
            raise UsageError(
                f"maps have {len(new)} and {len(old)} policies; list in `pairs` which are the same"
            )
        pairs = [(place, place) for place in range(len(new))]
    if any(not (0 <= a < len(new) and 0 <= b < len(old)) for a, b in pairs):
        raise UsageError(f"pairs: places must be below {len(new)} and {len(old)}")
    if not pairs:
        return new.copy()
    new_pairs, old_pairs = new[[a for a, _ in pairs]], old[[b for _, b in pairs]]
    center, target = new_pairs.mean(0), old_pairs.mean(0)
    rotation = np.eye(new.shape[1])
    if len(pairs) > 1:
        left, _, right = np.linalg.svd((new_pairs - center).T @ (old_pairs - target))
        rotation = left @ right
    aligned: Numbers = (new - center) @ rotation + target
    return aligned


def payoff_map(
    payoffs: Payoffs, rng: np.random.Generator, *, dimensions: int = 2, draws: int = 200
) -> PolicyMap:
    """Return a map of policies by their payoffs against each opponent, with position uncertainties.

    Maps of sampled payoffs are aligned to the map of the means. `spread` is the covariance of the
    aligned positions around that map's positions.
    """
    check_draws(draws)
    found = classical_mds(payoff_distances(payoffs.matrix), dimensions)
    away = [
        align(_map(payoff_distances(sample[0]) ** 2, dimensions).positions, found.positions)
        - found.positions
        for sample in payoffs.sample(draws, rng)
    ]
    spread = np.einsum("kni,knj->nij", np.array(away), np.array(away)) / draws
    return PolicyMap(found.positions, found.shares, spread)
