"""The returns of matches that count: shared with team-mates, or as wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from remuda.types import Array, Numbers

Adjust = Callable[[Numbers, Array], Numbers]  # from returns and records to what counts


def shared_returns(returns: Numbers, teams: Sequence[int], shares: Numbers) -> Numbers:
    """Mix returns [M, seats] with the means of their teams, as `policy.share_rewards` does.

    Seats that took no part (NaN) count as 0 in the mean, and stay NaN.

    `teams`: the team number of each seat, also of scripted ones; `shares`: [M, seats] of the
    policies on the seats.
    """
    of_seat, mixed = np.array(teams), returns.copy()
    for number in set(teams):
        team = of_seat == number
        mean = np.nan_to_num(returns[:, team]).mean(1, keepdims=True)
        mixed[:, team] += shares[:, team] * (mean - returns[:, team])
    return mixed


def sharing(policies: Sequence[str], teams: Sequence[int], shares: Mapping[str, float]) -> Adjust:
    """Return what maps returns to those that the policies of a ledger, by index, learn from.

    `teams`: as for `shared_returns`; `shares`: by policy; others have 0.
    """
    weights = np.array([shares.get(name, 0.0) for name in policies])

    def adjust(returns: Numbers, matches: Array) -> Numbers:
        if not weights.any():
            return returns
        return shared_returns(returns, teams, weights[matches["policy"]])

    return adjust


def won(returns: Numbers, sides: Sequence[int]) -> Numbers:
    """Return the share of opponents with a lower return, a draw as half: [M, seats].

    `sides`: the team number of each seat; -1: a scripted seat, which is no opponent.
    """
    of_seat = np.array(sides)
    is_opponent = (of_seat[:, None] != of_seat) & (of_seat[:, None] >= 0) & (of_seat >= 0)
    better = 0.5 + 0.5 * np.sign(returns[:, :, None] - returns[:, None, :])
    known = is_opponent & ~np.isnan(better)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Numbers = np.where(known, better, 0.0).sum(2) / known.sum(2)
    return np.where(np.isnan(returns), np.nan, found)
