"""Payoffs of line-ups, from fresh matches.

In a symmetric game the seats of each match are dealt at random. All orders of a line-up are then
one line-up, which is written in ascending order. A seat that took no part in a match has no return
in it, and its mean is over its other matches. In a two-player constant-sum game it gets the rest of
the sum, so that the payoffs stay constant-sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy.stats import t as student

from remuda.analysis.equilibria.regret import marginals
from remuda.envs.description import EnvSpec
from remuda.errors import UsageError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.entrants import Entrant
from remuda.evaluation.tournaments.random_numbers import derive
from remuda.evaluation.tournaments.schedule import Schedule, numbered
from remuda.solvers.exploit.matches import play
from remuda.solvers.psro.meta_solvers import TOLERANCE, is_zero_sum
from remuda.solvers.psro.meta_strategy import SUPPORT, MetaStrategy, gain_of, payoffs_against
from remuda.solvers.psro.populations import orders_of
from remuda.types import Integers, Numbers

INTERVAL = 0.95  # confidence level of intervals
LEAST = 0.25  # smallest deficit to play, as a share of a new line-up's matches
FEWEST = 2  # matches of a new line-up, at least

LineUp = tuple[int, ...]  # the policy in each seat


class LineUpSums:
    """Sums of the returns of line-ups, by seat."""

    def __init__(self, seats: int, symmetric: bool = False) -> None:
        self._seats, self.is_symmetric = seats, symmetric
        self._sums: Numbers = np.zeros((3 * seats, *[1] * seats))
        """[3 N, n_1, ..., n_N]: by seat, the matches, sums of returns, and of their squares."""

    def add(self, line_up: Sequence[int], sums: Sequence[float]) -> None:
        """Add by seat a line-up's matches [N], sums of returns [N], and of their squares [N]."""
        seats = self._seats
        by_seat = np.array(sums, np.float64).reshape(3, seats)
        if self.is_symmetric:  # seats of one policy have one mean
            same = np.equal.outer(line_up, line_up)
            by_seat = by_seat @ same / same.sum(0)
        _, *known = self._sums.shape
        highest = [max(line_up)] * seats if self.is_symmetric else line_up
        lacking = [max(index + 1 - n, 0) for index, n in zip(highest, known, strict=True)]
        self._sums = np.pad(self._sums, [(0, 0), *((0, count) for count in lacking)])
        for order in orders_of(line_up) if self.is_symmetric else (tuple(range(seats)),):
            index: tuple[slice | int, ...] = (slice(None), *(line_up[seat] for seat in order))
            self._sums[index] += by_seat[:, order].reshape(-1)

    def line_ups(self, counts: Sequence[int]) -> list[LineUp]:
        """Return all line-ups of so many policies in each seat."""
        if self.is_symmetric:
            return list(combinations_with_replacement(range(counts[0]), self._seats))
        return list(np.ndindex(*counts))

    def payoffs(self, counts: Sequence[int]) -> Numbers:
        """Return the means, [N, n_1, ..., n_N]; NaN: no match. `counts`: policies by seat."""
        matches, sums, _ = self._within(counts)
        return sums / matches

    def variances(self, counts: Sequence[int]) -> Numbers:
        """Return the variances of one match's returns, [N, n_1, ..., n_N]; 0: no match."""
        matches, sums, squares = self._within(counts)
        return np.nan_to_num(np.maximum(squares / matches - (sums / matches) ** 2, 0.0))

    def errors(self, counts: Sequence[int]) -> Numbers:
        """Return the variances of the means, [N, n_1, ..., n_N]; NaN: no match.

        The variance over all line-ups is added to each as one more match, because a few equal
        results do not make a mean certain.
        """
        matches, sums, squares = self._within(counts)
        axes = tuple(range(-self._seats, 0))
        count, total, total_squares = (
            np.nansum(each, axis=axes, keepdims=True) for each in (matches, sums, squares)
        )
        with np.errstate(invalid="ignore"):  # without any match, NaN
            spread = np.maximum(total_squares / count - (total / count) ** 2, 0.0)
        errors: Numbers = (np.maximum(squares - sums**2 / matches, 0.0) + spread) / matches**2
        return errors

    def matches(self, counts: Sequence[int]) -> Integers:
        """Return the matches of the seat that took part in the fewest: [n_1, ..., n_N]."""
        found: Integers = np.nan_to_num(self._within(counts)[0].min(0)).astype(np.int64)
        return found

    def _within(self, counts: Sequence[int]) -> tuple[Numbers, Numbers, Numbers]:
        """Return matches, sums and sums of squares, each [N, n_1, ..., n_N]; NaN: no match."""
        found = np.full((3, self._seats, *counts), np.nan)
        known = self._sums[(slice(None), *map(slice, counts))]
        known = known.reshape(3, self._seats, *known.shape[1:])
        inner = tuple(map(slice, known.shape[2:]))
        found[(slice(None), slice(None), *inner)] = np.where(known[0] > 0.0, known, np.nan)
        matches, sums, squares = found
        return matches, sums, squares


class LineUpSchedule(Schedule):
    """Matches of line-ups, a number of matches for each.

    Every match has its own luck, so the means of line-ups are independent. Intervals of weighted
    sums of them need that.
    """

    def __init__(
        self,
        line_ups: Sequence[Sequence[Entrant]],
        matches: Sequence[int],
        seed: int,
        symmetric: bool,
    ) -> None:
        self.episodes, self._seed, self._symmetric = max(matches), seed, symmetric
        self.seatings = np.repeat(np.arange(len(line_ups)), matches)  # [M]: each match's line-up
        self.players, indices = numbered(each for line_up in line_ups for each in line_up)
        self._line_ups = np.array([[indices[id(each)] for each in own] for own in line_ups])

    @property
    def num_matches(self) -> int:
        return len(self.seatings)

    def may_sit(self, seat: int) -> list[int]:
        """Return the sorted indices of all policies that play a seat in any match."""
        own = self._line_ups if self._symmetric else self._line_ups[:, seat]
        found: list[int] = np.unique(own).tolist()
        return found

    def orders_of(self, numbers: Integers) -> Integers:
        """Return the place in its line-up of each seat's policy: [M, N]."""
        seats = self._line_ups.shape[1]
        if not self._symmetric:
            return np.tile(np.arange(seats), (len(numbers), 1))
        keys = derive(self._seed, numbers)
        drawn = [derive(keys, np.full(len(numbers), seat)) for seat in range(seats)]
        return np.stack(drawn, axis=1).argsort(axis=1)

    def players_of(self, numbers: Integers) -> Integers:
        """Return the policy index of each seat in the matches: [M, N]."""
        own = self._line_ups[self.seatings[numbers]]
        found: Integers = np.take_along_axis(own, self.orders_of(numbers), axis=1)
        return found

    def by_place(self, numbers: Integers, returns: Numbers) -> list[Numbers]:
        """Return the returns of matches [M, N] by line-up and place in it, each [matches, N]."""
        ordered = np.zeros(returns.shape)
        np.put_along_axis(ordered, self.orders_of(numbers), returns, axis=1)
        line_up = self.seatings[numbers]  # ascending, as the numbers are
        return np.split(ordered, np.searchsorted(line_up, np.arange(1, len(self._line_ups))))


def play_line_ups(
    env: EnvSpec,
    line_ups: Mapping[LineUp, Sequence[Entrant]],
    matches: Sequence[int],
    seed: int,
    symmetric: bool = False,
    limits: Limits | None = None,
) -> list[dict[str, Any]]:
    """Play line-ups, a number of matches of each, and return their sums."""
    schedule = LineUpSchedule(list(line_ups.values()), matches, seed, symmetric)
    numbers, all_returns = play(env, schedule, seed, limits).played()
    played = schedule.by_place(numbers, with_rest(all_returns.astype(np.float64)))
    found = []
    for line_up, returns in zip(line_ups, played, strict=True):
        acted = (~np.isnan(returns)).sum(0)
        if len(returns) and not acted.all():
            policies = ", ".join(map(str, line_up))
            absent = "a seat" if symmetric else env.agents[int(acted.argmin())].name
            raise UsageError(
                f"{env.game}: {absent} acted in none of {len(returns):,} matches of the policies "
                f"({policies}), by seat, so it has no payoff to solve for; choose a game in which "
                "all act, or play more matches"
            )
        sums = np.concatenate([acted, np.nansum(returns, 0), np.nansum(returns**2, 0)])
        found.append({"line_up": list(line_up), "sums": sums.tolist()})
    return found


def with_rest(returns: Numbers) -> Numbers:
    """Return returns [M, N] in which an absent seat of a constant-sum game has the rest of the sum.

    The game is one if it has two players, and all matches in which both act have the same sum.
    """
    both = returns[~np.isnan(returns).any(1)]
    if not len(both) or len(both) == len(returns) or not is_zero_sum(both.T, TOLERANCE):
        return returns
    rest = both.sum(1).mean() - returns[:, ::-1]
    return np.where(np.isnan(returns), rest, returns)


def first_matches(new: int, counts: Sequence[int], matches: int) -> int:
    """Return the matches of each new line-up.

    With two players each new line-up plays `matches`. With more players there are many more new
    line-ups, which share as many matches as if there were a line-up for each policy.
    """
    total = matches * (sum(counts) - len(counts) + 1)
    return max(min(matches, total // max(new, 1)), FEWEST)


def share_out(
    strategy: MetaStrategy, sums: LineUpSums, counts: Sequence[int], total: int, first: int
) -> dict[LineUp, int]:
    """Distribute matches over line-ups to minimise the error of the mixtures' value.

    The payoff of mixtures x and y has the variance sum_ij (x_i y_j)^2 s_ij^2 / n_ij. For a fixed
    number of matches it is smallest with n_ij in proportion to x_i y_j s_ij (Neyman 1934). Here 1/n
    is added to each probability, because unused policies may enter the mixtures.

    `counts`: policies by seat; `total`: most matches to distribute; `first`: matches of each new
    line-up. Deficits below `LEAST * first` are ignored.
    """
    line_ups = sums.line_ups(counts)
    index = tuple(np.array(line_ups).T)
    weights = np.sqrt(sums.variances(counts).max(0)[index])
    for seat, mixture in enumerate(marginals(strategy.joint)):
        weights *= (mixture + 1.0 / len(mixture))[index[seat]]
    if sums.is_symmetric:
        weights *= [len(orders_of(each)) for each in line_ups]
    if not weights.sum() > 0.0:
        return {}
    played = sums.matches(counts)[index]
    wanted = weights / weights.sum() * (played.sum() + total)
    lacking = np.maximum(wanted - played, 0.0)
    lacking[lacking < LEAST * first] = 0.0
    if lacking.sum() > total:
        lacking *= total / lacking.sum()
    more = np.floor(lacking).astype(np.int64).tolist()
    return {line_up: count for line_up, count in zip(line_ups, more, strict=True) if count}


def level_out(
    strategy: MetaStrategy, sums: LineUpSums, counts: Sequence[int], total: int
) -> dict[LineUp, int]:
    """Distribute matches so that played line-ups and all deviations from them have equally many.

    A gain is the difference of two means, which is surest if both have equally many matches. That
    suits many players, whose new line-ups begin with few.

    `counts`: policies by seat; `total`: most matches to distribute.
    """
    line_ups = sums.line_ups(counts)
    index = tuple(np.array(line_ups).T)
    is_near = np.zeros(strategy.joint.shape, np.bool_)
    for seat in range(len(counts)):
        is_near |= strategy.joint.sum(seat, keepdims=True) > SUPPORT
    played, is_played = sums.matches(counts), strategy.joint > SUPPORT
    lacking = np.where(is_near, played[is_played].max() - played, 0)[index].clip(0)
    if lacking.sum() > total:
        lacking = np.floor(lacking * (total / lacking.sum())).astype(np.int64)
    return {each: more for each, more in zip(line_ups, lacking.tolist(), strict=True) if more}


def gains_of(
    sums: LineUpSums, counts: Sequence[int], strategy: MetaStrategy
) -> tuple[Numbers, Numbers, float]:
    """Return the gains of all policies against an earlier strategy, and their uncertainty.

    A deviation plays the best policy of its role, which the strategy may contain already, or none
    if all of them lose. So intervals cover all these choices (Bonferroni). They use Student's t
    with the degrees of freedom of the line-up with the fewest matches.

    Returns: the gain of each role [R], half of its 95% interval [R], and half of that of the sum
    over all seats.
    """
    seats, old = len(counts), strategy.joint.shape
    payoffs, deviations = sums.payoffs(counts), np.sqrt(sums.errors(counts))
    early = tuple(map(slice, old))
    known, roles = payoffs[(slice(None), *early)], len(strategy.mixtures)
    gains, choices = np.zeros(roles), np.ones(roles)
    weights = np.zeros((roles, *payoffs.shape))  # of all payoffs in each role's gain
    for target in strategy.deviations:
        role = target.player
        # All policies of the role's own seat, and the earlier ones of the others.
        others = tuple(slice(None) if seat == role else early[seat] for seat in range(seats))
        own_part: tuple[int | slice, ...] = (role, role, *others)
        own_early: tuple[int | slice, ...] = (role, role, *early)
        earned = payoffs_against(payoffs[(slice(None), *others)], target)
        is_pure = strategy.mixtures[role].max() > 1.0 - SUPPORT
        is_one = is_pure or target.recommended is not None  # to play on is one of the policies
        choices[role] *= len(earned) + (not is_one)
        best = int(earned.argmax())
        gain = gain_of(known, strategy, target, float(earned[best]))
        if gain <= 0.0:
            continue
        gains[role] += gain
        own = np.moveaxis(weights[own_part], role, 0)  # a view
        own[best] += target.weight * target.others
        if target.recommended is None:
            weights[own_early] -= target.weight * strategy.joint
        else:
            own[target.recommended] -= target.weight * target.others
    fewest = max(int(sums.matches(counts).min()) - 1, 1)

    def margin(among: float, weights: Numbers) -> float:
        wide = float(student.ppf(1.0 - (1.0 - INTERVAL) / 2.0 / among, fewest))
        return wide * _deviation_of(weights, deviations, sums.is_symmetric)

    by_role = [margin(*pair) for pair in zip(choices.tolist(), weights, strict=True)]
    total = margin(float(choices.prod()), weights.sum(0)) * (seats // roles)
    return gains, np.array(by_role), total


def _deviation_of(weights: Numbers, deviations: Numbers, is_symmetric: bool) -> float:
    """Return the standard deviation of a weighted sum of payoffs [N, n_1, ..., n_N], at most.

    Payoffs of one line-up come from the same matches, and may be correlated in any way. In a
    symmetric game all orders of a line-up are the same matches.
    """
    found = np.where(weights != 0.0, np.abs(weights) * deviations, 0.0).sum(0)
    by_line_up = found.reshape(-1)
    if is_symmetric:
        line_ups = np.sort(np.indices(found.shape).reshape(found.ndim, -1), axis=0)
        number = np.unique(line_ups, axis=1, return_inverse=True)[1].reshape(-1)
        by_line_up = np.bincount(number, by_line_up)
    return float(np.linalg.norm(by_line_up))
