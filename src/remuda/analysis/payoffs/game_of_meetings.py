"""Empirical games of two seats, from payoffs by meeting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role, check_size
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.errors import UsageError


def game_of_meetings(payoffs: Payoffs, roles: Sequence[Role] = ()) -> EmpiricalGame:
    """Return the game of payoffs by meeting; without `roles`, that of two seats.

    The seats are interchangeable if they have the same strategies, or else two roles.
    """
    rows, columns = map(set, payoffs.strategies)
    if not roles and not rows & columns:
        return _of_table(payoffs)
    if not roles and rows != columns:
        first, last = (", ".join(names[:5]) for names in payoffs.strategies)
        raise UsageError(
            f"the roles have different policies, {first} and {last}; an analysis needs the same "
            "policies in rows and columns, or policies that are all different"
        )
    roles = tuple(roles) or (Role("players", payoffs.names, 2),)
    size = sum(len(role.strategies) for role in roles)
    none = np.zeros((0, size, size))
    profiles, counts = np.zeros((0, size), np.int64), np.zeros(0, np.int64)
    return EmpiricalGame(roles, profiles, none[:, 0], none, counts, payoffs, False)


def _of_table(payoffs: Payoffs) -> EmpiricalGame:
    """Return the game of two roles of one seat from its table."""
    names = zip(("rows", "columns"), payoffs.strategies, strict=True)
    roles = tuple(Role(name, strategies) for name, strategies in names)
    played = payoffs.counts > 0
    cells, size = np.argwhere(played), sum(played.shape)
    check_size(len(cells), size)
    rows, numbers = np.arange(len(cells))[:, None], cells + np.array([0, played.shape[0]])
    profiles, means = np.zeros((len(cells), size), np.int64), np.full((len(cells), size), np.nan)
    covariances = np.full((len(cells), size, size), np.nan)
    profiles[rows, numbers], means[rows, numbers] = 1, payoffs.means[:, played].T
    both = numbers[:, :, None], numbers[:, None, :]
    covariances[rows[:, :, None], *both] = np.moveaxis(payoffs.covariances[:, :, played], 2, 0)
    return EmpiricalGame(roles, profiles, means, covariances, payoffs.counts[played])
