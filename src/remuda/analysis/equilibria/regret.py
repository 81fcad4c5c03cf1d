"""Equilibria, and the regrets of mixtures, which verify every equilibrium."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import Summary
from remuda.errors import UsageError
from remuda.types import Numbers

UNLIKELY = -1e-12  # a negative probability above this is a rounding error


@dataclass(frozen=True)
class Solution(Summary):
    """An equilibrium of one game."""

    mixtures: tuple[Numbers, ...]  # by role, [n_r]
    values: Numbers  # [R] the roles' payoffs
    regret: Numbers  # [R] the gain of each role's best deviation; computed from the payoffs
    note: str  # how the equilibrium was found or selected, and other remarks
    joint: Numbers | None = None  # [n_1, ..., n_R]; None: the roles play independently


def as_payoffs(payoffs: npt.ArrayLike) -> Numbers:
    """Check the payoffs of a game: [R, n_1, ..., n_R], finite, with a strategy for each role."""
    found = np.asarray(payoffs, np.float64)
    if found.ndim < 2 or found.shape[0] != found.ndim - 1 or 0 in found.shape:
        raise UsageError(
            f"payoffs: the array is {found.shape}; for R roles it must be [R, n_1, ..., n_R], "
            "with at least one strategy for each role"
        )
    if not np.isfinite(found).all():
        raise UsageError(
            "payoffs: some are NaN or infinite; play the matches that are missing, or leave "
            "strategies out"
        )
    return found


def as_two_roles(a: npt.ArrayLike, b: npt.ArrayLike) -> Numbers:
    """Check the payoffs of two roles, [n, m] each, and stack them: [2, n, m]."""
    row, column = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if row.ndim != 2 or row.shape != column.shape:
        raise UsageError(f"payoffs: a is {row.shape} and b is {column.shape}; both must be [n, m]")
    return as_payoffs(np.stack([row, column]))


def against(payoffs: Numbers, mixtures: Sequence[Numbers], role: int) -> Numbers:
    """Return the payoff of each strategy of a role against the others' mixtures: [n_role].

    `payoffs`: [R, n_1, ..., n_R]; `mixtures`: by role, [n_r].
    """
    found: Numbers = payoffs[role]
    for axis in reversed(range(len(mixtures))):
        if axis != role:
            found = np.moveaxis(found, axis, -1) @ mixtures[axis]
    return found


def values(payoffs: Numbers, mixtures: Sequence[Numbers]) -> Numbers:
    """Return each role's payoff under all mixtures: [R]."""
    earned = [against(payoffs, mixtures, role) @ mix for role, mix in enumerate(mixtures)]
    return np.array(earned, np.float64)


def regret(payoffs: npt.ArrayLike, mixtures: Sequence[npt.ArrayLike]) -> Numbers:
    """Return the gain of each role's best reply to the others' mixtures: [R], at least 0.

    All are 0 in a Nash equilibrium (Nash 1951, "Non-cooperative games").

    `payoffs`: [R, n_1, ..., n_R]; `mixtures`: by role, [n_r].
    """
    game = as_payoffs(payoffs)
    found = [np.asarray(mixture, np.float64) for mixture in mixtures]
    shapes = [mixture.shape for mixture in found]
    if shapes != [(size,) for size in game.shape[1:]]:
        raise UsageError(
            f"mixtures have the shapes {shapes}; the numbers of strategies are {game.shape[1:]}"
        )
    gains = []
    for role, mixture in enumerate(found):
        if not (mixture.min() >= UNLIKELY and abs(mixture.sum() - 1.0) <= 1e-9):
            raise UsageError(f"mixtures: that of role {role} is not a distribution: {mixture}")
        payoffs_of_role = against(game, found, role)
        gains.append(float(payoffs_of_role.max() - payoffs_of_role @ mixture))
    return np.maximum(np.array(gains, np.float64), 0.0)


def correlated_regret(payoffs: npt.ArrayLike, joint: npt.ArrayLike, coarse: bool) -> Numbers:
    """Return the gain of each role's best deviation from a joint distribution: [R], at least 0.

    A role may deviate differently from each recommended strategy (Aumann 1974, "Subjectivity and
    correlation in randomized strategies"). In the coarse case it deviates before the recommendation
    (Moulin and Vial 1978).

    `payoffs`: [R, n_1, ..., n_R]; `joint`: [n_1, ..., n_R].
    """
    game = as_payoffs(payoffs)
    found = np.asarray(joint, np.float64)
    if found.shape != game.shape[1:]:
        raise UsageError(f"joint is {found.shape}; it must be {game.shape[1:]}")
    if not (found.min() >= UNLIKELY and abs(found.sum() - 1.0) <= 1e-9):
        raise UsageError("joint: its numbers are not a distribution")
    gains = []
    for role, size in enumerate(found.shape):
        recommended = np.moveaxis(found, role, 0).reshape(size, -1)
        earns = np.moveaxis(game[role], role, 0).reshape(size, -1)
        table = recommended @ earns.T
        obeyed = np.diag(table)
        gain = table.sum(0).max() - obeyed.sum() if coarse else (table.max(1) - obeyed).sum()
        gains.append(float(gain))
    return np.maximum(np.array(gains, np.float64), 0.0)


def to_distribution(numbers: Numbers) -> Numbers:
    """Clip negative numbers to zero and normalise the rest to sum 1."""
    found: Numbers = np.maximum(numbers, 0.0)
    found /= found.sum()
    return found


def marginals(joint: Numbers) -> tuple[Numbers, ...]:
    """Return each role's mixture, [n_r] each, from a joint distribution."""
    axes = range(joint.ndim)
    return tuple(joint.sum(tuple(axis for axis in axes if axis != role)) for role in axes)
