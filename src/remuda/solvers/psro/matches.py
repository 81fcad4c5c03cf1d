"""Payoffs between the policies of two players, from fresh matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import t as student

from remuda.envs.description import EnvSpec
from remuda.envs.registry import RANDOM
from remuda.errors import UsageError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.entrants import Entrant
from remuda.solvers.exploit.matches import Lineup, play_lineups
from remuda.solvers.exploit.target import Target
from remuda.types import Integers, Numbers

INTERVAL = 0.95  # confidence level of intervals
LEAST = 0.25  # smallest deficit to play, as a share of a new pair's matches


class PairSums:
    """Sums of the returns of pairs (i, j): policy i of player 0 against policy j of player 1."""

    def __init__(self) -> None:
        self._sums: Numbers = np.zeros((5, 1, 1))
        """[5, n, m]: numbers of matches, sums of both players' returns, and of their squares."""

    def add(self, pair: tuple[int, int], sums: Sequence[float]) -> None:
        _, *known = self._sums.shape
        lacking = [max(index + 1 - count, 0) for index, count in zip(pair, known, strict=True)]
        self._sums = np.pad(self._sums, [(0, 0), *((0, count) for count in lacking)])
        self._sums[:, *pair] += sums

    def has(self, pair: tuple[int, int]) -> bool:
        return bool(self.matches([index + 1 for index in pair])[pair])

    def payoffs(self, counts: Sequence[int]) -> Numbers:
        """Return the means, [2, n, m]; NaN: no match."""
        matches, sums, _ = self._within(counts)
        return sums / matches

    def variances(self, counts: Sequence[int]) -> Numbers:
        """Return the variances of one match's returns, [2, n, m]; 0: no match."""
        matches, sums, squares = self._within(counts)
        return np.nan_to_num(np.maximum(squares / matches - (sums / matches) ** 2, 0.0))

    def errors(self, counts: Sequence[int]) -> Numbers:
        """Return the variances of the means, [2, n, m]; NaN: no match.

        The variance over all pairs is added to each pair as one more match, because a few equal
        results do not make a mean certain.
        """
        matches, sums, squares = self._within(counts)
        count, total, total_squares = (
            np.nansum(each, axis=(-2, -1), keepdims=True) for each in (matches, sums, squares)
        )
        with np.errstate(invalid="ignore"):  # without any match, NaN
            spread = np.maximum(total_squares / count - (total / count) ** 2, 0.0)
        errors: Numbers = (np.maximum(squares - sums**2 / matches, 0.0) + spread) / matches**2
        return errors

    def matches(self, counts: Sequence[int]) -> Integers:
        """Return the numbers of matches: [n, m]."""
        return np.nan_to_num(self._within(counts)[0]).astype(np.int64)

    def _within(self, counts: Sequence[int]) -> tuple[Numbers, Numbers, Numbers]:
        """Return the matches [n, m], NaN for 0, and both sums [2, n, m], of the first policies."""
        found = np.full((5, *counts), np.nan)
        known = self._sums[:, : counts[0], : counts[1]]
        found[:, : known.shape[1], : known.shape[2]] = np.where(known[0] > 0.0, known, np.nan)
        return found[0], found[1:3], found[3:5]


def play_pairs(
    env: EnvSpec,
    rows: Mapping[int, Entrant],
    column: tuple[int, Entrant],
    matches: int,
    seed: int,
    limits: Limits | None = None,
) -> list[dict[str, Any]]:
    """Play several policies of player 0 against one policy of player 1, in parallel."""
    number, opponent = column
    target = Target(env, (f"policy {number}",), (1.0,), ((RANDOM, opponent),))
    lineups = [Lineup(0, player) for player in rows.values()]
    played = play_lineups(target, lineups, matches, seed, limits)
    found = []
    for row, returns in zip(rows, played, strict=True):
        met = returns[~np.isnan(returns).any(1)]  # drop matches in which a player took no part
        if len(returns) and not len(met):
            raise UsageError(
                f"{env.game}: in none of {len(returns):,} matches between policy {row} of player "
                f"0 and policy {number} of player 1 did both players act, so there is no payoff to "
                "solve; choose a game in which both act, or play more matches"
            )
        sums = [float(len(met)), *met.sum(0), *(met**2).sum(0)]
        found.append({"pair": [row, number], "sums": [float(value) for value in sums]})
    return found


def share_out(
    mixtures: Sequence[Numbers], variances: Numbers, played: Integers, total: int, first: int
) -> Integers:
    """Distribute matches over pairs to minimise the error of the mixtures' value: [n, m].

    The payoff of mixtures x and y has the variance sum_ij (x_i y_j)^2 s_ij^2 / n_ij. For a fixed
    number of matches it is smallest with n_ij in proportion to x_i y_j s_ij (Neyman 1934). Here 1/n
    is added to each probability, because unused policies may enter the mixtures.

    `variances`: [2, n, m] of one match; `played`: [n, m] matches so far; `total`: most matches to
    distribute; `first`: matches of each new pair. Deficits below `LEAST * first` are ignored.
    """
    likely = [mixture + 1.0 / len(mixture) for mixture in mixtures]
    weights = np.outer(likely[0], likely[1]) * np.sqrt(variances.max(0))
    if not weights.sum() > 0.0:
        return np.zeros(played.shape, np.int64)
    wanted = weights / weights.sum() * (played.sum() + total)
    lacking = np.maximum(wanted - played, 0.0)
    lacking[lacking < LEAST * first] = 0.0
    if lacking.sum() > total:
        lacking *= total / lacking.sum()
    found: Integers = np.floor(lacking).astype(np.int64)
    return found


def gains_of(
    sums: PairSums, counts: Sequence[int], mixtures: Sequence[Numbers]
) -> tuple[Numbers, float]:
    """Return the gains [2] of later policies against earlier mixtures, and their sum's margin.

    Each gain is the gain of a player's best later policy, so the interval covers all later policies
    (Bonferroni). The interval uses Student's t with the degrees of freedom of the pair with the
    fewest matches.
    """
    payoffs, noise = sums.payoffs(counts), sums.errors(counts)
    x, y = mixtures
    values = np.einsum("rij,i,j->r", payoffs[:, : len(x), : len(y)], x, y)
    spread = np.einsum("rij,i,j->r", noise[:, : len(x), : len(y)], x**2, y**2)
    gains, error, choices = np.zeros(2), 0.0, 1
    for player in range(2):
        opponent, old = mixtures[1 - player], len(mixtures[player])
        later = np.moveaxis(payoffs[player], player, 0)[old:, : len(opponent)] @ opponent
        choices *= max(len(later), 1)
        if not len(later) or later.max() <= values[player]:
            continue
        best = int(later.argmax())
        own_noise = np.moveaxis(noise[player], player, 0)[old + best, : len(opponent)]
        gains[player] = later[best] - values[player]
        error += float(own_noise @ opponent**2) + float(spread[player])
    fewest = int(sums.matches(counts).min())
    wide = float(student.ppf(1.0 - (1.0 - INTERVAL) / 2.0 / choices, max(fewest - 1, 1)))
    return gains, wide * float(np.sqrt(error))
