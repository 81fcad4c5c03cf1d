"""What each role could gain by departing from what it plays: the check of every equilibrium."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from remuda.analysis.payoff import Numbers
from remuda.errors import UsageError

UNLIKELY = -1e-12
"""A probability below zero by no more than this is a rounding error."""


def as_payoffs(payoffs: npt.ArrayLike) -> Numbers:
    """Check the payoffs of a game: [R, n_1, ..., n_R], finite, with a strategy for each role.

    Raises:
        UsageError: they are not.
    """
    found = np.asarray(payoffs, np.float64)
    if found.ndim < 2 or found.shape[0] != found.ndim - 1 or 0 in found.shape:
        raise UsageError(
            f"payoffs: the array is {found.shape}; of R roles it must be [R, n_1, ..., n_R], "
            "with at least one strategy for each role"
        )
    if not np.isfinite(found).all():
        raise UsageError(
            "payoffs: some are NaN or infinite; play the matches that are missing, or leave "
            "strategies out"
        )
    return found


def as_two_roles(a: npt.ArrayLike, b: npt.ArrayLike) -> Numbers:
    """Check the payoffs of two roles, [n, m] each, and stack them: [2, n, m].

    Raises:
        UsageError: they are no matrices of one shape, or not finite.
    """
    one, other = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if one.ndim != 2 or one.shape != other.shape:
        raise UsageError(
            f"payoffs: the roles' are {one.shape} and {other.shape}; both must be [n, m]"
        )
    return as_payoffs(np.stack([one, other]))


def against(payoffs: Numbers, mixtures: Sequence[Numbers], role: int) -> Numbers:
    """What a role earns by each of its strategies while the others play their mixtures: [n_role].

    Args:
        payoffs: [R, n_1, ..., n_R].
        mixtures: by role, [n_r] probabilities.
        role: which.
    """
    found: Numbers = payoffs[role]
    for other in reversed(range(len(mixtures))):
        if other != role:
            found = np.moveaxis(found, other, -1) @ mixtures[other]
    return found


def values(payoffs: Numbers, mixtures: Sequence[Numbers]) -> Numbers:
    """What each role earns where all play their mixtures: [R]."""
    earned = [against(payoffs, mixtures, role) @ mix for role, mix in enumerate(mixtures)]
    return np.array(earned, np.float64)


def regret(payoffs: npt.ArrayLike, mixtures: Sequence[npt.ArrayLike]) -> Numbers:
    """What each role could gain by its best reply to the mixtures of the others: [R], 0 at least.

    In units of the payoffs. All are 0 in a Nash equilibrium (Nash 1951, "Non-cooperative games").

    Args:
        payoffs: [R, n_1, ..., n_R] what each role earns.
        mixtures: by role, [n_r] probabilities of its strategies.

    Raises:
        UsageError: shapes do not fit each other, or a mixture is no distribution.
    """
    game = as_payoffs(payoffs)
    found = [np.asarray(mixture, np.float64) for mixture in mixtures]
    shapes = [mixture.shape for mixture in found]
    if shapes != [(size,) for size in game.shape[1:]]:
        raise UsageError(f"mixtures: they are of shapes {shapes} in a game of {game.shape[1:]}")
    for role, mixture in enumerate(found):
        if not (mixture.min() >= UNLIKELY and abs(mixture.sum() - 1.0) <= 1e-9):
            raise UsageError(f"mixtures: that of role {role} is no distribution: {mixture}")
    gains = []
    for role, mixture in enumerate(found):
        earned = against(game, found, role)
        gains.append(float(earned.max() - earned @ mixture))
    return np.maximum(np.array(gains, np.float64), 0.0)


def correlated_regret(payoffs: npt.ArrayLike, joint: npt.ArrayLike, coarse: bool) -> Numbers:
    """What each role could gain by departing from a joint distribution: [R], 0 at least.

    A role that is told its strategy may depart from each of them in another way (Aumann 1974,
    "Subjectivity and correlation in randomized strategies"); in the coarse case it decides
    before it is told (Moulin and Vial 1978).

    Args:
        payoffs: [R, n_1, ..., n_R].
        joint: [n_1, ..., n_R] probabilities.
        coarse: which of the two.

    Raises:
        UsageError: shapes do not fit each other, or `joint` is no distribution.
    """
    game = as_payoffs(payoffs)
    found = np.asarray(joint, np.float64)
    if found.shape != game.shape[1:]:
        raise UsageError(f"joint: it is {found.shape} in a game of {game.shape[1:]}")
    if not (found.min() >= UNLIKELY and abs(found.sum() - 1.0) <= 1e-9):
        raise UsageError("joint: its numbers are no distribution")
    gains = []
    for role, size in enumerate(found.shape):
        told = np.moveaxis(found, role, 0).reshape(size, -1)
        earns = np.moveaxis(game[role], role, 0).reshape(size, -1)
        table = told @ earns.T
        kept = np.diag(table)
        gain = table.sum(0).max() - kept.sum() if coarse else (table.max(1) - kept).sum()
        gains.append(float(gain))
    return np.maximum(np.array(gains, np.float64), 0.0)


def to_distribution(numbers: Numbers) -> Numbers:
    """The nearest thing to these that is a distribution: nothing below zero, a sum of one."""
    found: Numbers = np.maximum(numbers, 0.0)
    found /= found.sum()
    return found
