"""Who earns what against whom, and how sure that is: the payoffs of an empirical game.

An empirical game (Wellman 2006, "Methods for empirical game-theoretic analysis") has policies for
strategies and mean returns for payoffs. All that is asked of a population begins with its payoffs
and ends with their uncertainty, so means never travel here without the covariances of the returns
and the counts of the matches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from remuda.errors import UsageError
from remuda.frame import data_frame
from remuda.kernels import njit
from remuda.types import Bools, Integers

Numbers = npt.NDArray[np.float64]

PRIOR = 4.0
"""So many degrees of freedom has the variance of all cells together in the variance of each
(Smyth 2004, "Linear models and empirical Bayes methods", equation 3): three equal results do not
make a payoff certain."""


KNOWN = 1 << 40
"""Matches that stand for any number: of a payoff that is known."""


@dataclass(frozen=True)
class Payoffs:
    """The payoffs of an empirical game: what each role earns, for each choice of strategies.

    Role r chooses one of n_r strategies; a cell is one strategy for each role. The game is
    symmetric where two roles have the same strategies and it makes no difference who plays which:
    then `means[1]` is `means[0]` with its axes turned, and a match of two different strategies
    counts in both of their cells.

    Attributes:
        strategies: by role, the names of its strategies.
        means: [R, n_1, ..., n_R] the mean return of each role; NaN where no match was played.
        covariances: [R, R, n_1, ..., n_R] of the roles' returns in one match, the unbiased ones;
            NaN where fewer than two were played.
        counts: [n_1, ..., n_R] matches; one with several opponents is shared out among them.
        symmetric: as above.
    """

    strategies: tuple[tuple[str, ...], ...]
    means: Numbers = field(repr=False)
    covariances: Numbers = field(repr=False)
    counts: Integers = field(repr=False)
    symmetric: bool = False

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit each other.

        Raises:
            UsageError: shapes differ, payoffs are infinite, or a name stands twice.
        """
        shape = tuple(len(names) for names in self.strategies)
        roles = len(shape)
        for what, array, wanted in (
            ("means", self.means, (roles, *shape)),
            ("covariances", self.covariances, (roles, roles, *shape)),
            ("counts", self.counts, shape),
        ):
            if array.shape != wanted:
                raise UsageError(f"payoffs: {what} are {array.shape}, and must be {wanted}")
        for names in self.strategies:
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise UsageError(f"payoffs: {twice[0]} stands twice among the strategies of a role")
        if np.isinf(self.means).any():
            raise UsageError("payoffs: a mean is infinite")
        if (np.isnan(self.means).any(0) & (self.counts > 0)).any():
            raise UsageError("payoffs: a mean is not a number although matches were played")
        if self.symmetric and (roles != 2 or self.strategies[0] != self.strategies[1]):
            raise UsageError("payoffs: a symmetric game has two roles of the same strategies")

    @property
    def num_roles(self) -> int:
        """R."""
        return len(self.strategies)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the strategies of the first role; in a symmetric game, of all."""
        return self.strategies[0]

    @property
    def matrix(self) -> Numbers:
        """[n_1, n_2]: what the first of two roles earns.

        Raises:
            UsageError: there are not two roles.
        """
        self._check_two()
        matrix: Numbers = self.means[0]
        return matrix

    @property
    def missing(self) -> Bools:
        """[n_1, ..., n_R]: cells in which no match was played."""
        missing: Bools = self.counts == 0
        return missing

    def missing_names(self, most: int = 5) -> str:
        """Cells without a match, in words: `a and b, and 7 others`; empty: none."""
        cells = np.argwhere(self.missing)
        if self.symmetric:
            cells = cells[cells[:, 0] <= cells[:, 1]]
        told = [
            " and ".join(names[place] for names, place in zip(self.strategies, cell, strict=True))
            for cell in cells[:most]
        ]
        if len(cells) > most:
            told.append(f"and {len(cells) - most} others")
        return ", ".join(told)

    @property
    def pooled(self) -> Numbers:
        """[R, R]: the covariances of returns within cells, over all matches that were played."""
        weights = np.where(self.counts < KNOWN, np.maximum(self.counts - 1, 0), 0)
        if not weights.any():
            unknown = 0.0 if self._is_known else np.nan
            return np.full((self.num_roles,) * 2, unknown)
        known = np.where(weights > 0, self.covariances, 0.0)
        axes = tuple(range(2, known.ndim))
        pooled: Numbers = (known * weights).sum(axes) / weights.sum()
        # Where the matches of each pair all ended alike, that is chance, too: then the returns of
        # different pairs tell how much a match may vary.
        alike = np.diagonal(pooled) <= 1e-12 * np.diagonal(self._between)
        return np.where(alike.any(), self._between, pooled)

    @property
    def _between(self) -> Numbers:
        """[R, R]: the covariances of mean returns, over cells that were played."""
        played = (self.counts > 0) & (self.counts < KNOWN)
        means = self.means[:, played]
        away = means - means.mean(1, keepdims=True)
        between: Numbers = away @ away.T / max(played.sum() - 1, 1)
        return between

    @property
    def moderated(self) -> Numbers:
        """[R, R, n_1, ..., n_R]: covariances of one match, drawn to the pooled ones (`PRIOR`)."""
        weights = np.maximum(self.counts - 1, 0)
        known = np.where(weights > 0, self.covariances, 0.0)
        prior = np.where(self.counts < KNOWN, PRIOR, 0.0)
        pooled = self.pooled.reshape(self.num_roles, self.num_roles, *([1] * self.counts.ndim))
        found: Numbers = (known * weights + pooled * prior) / (weights + prior)
        return found

    @property
    def freedom(self) -> Numbers:
        """[n_1, ..., n_R]: degrees of freedom of the moderated covariances."""
        return np.maximum(self.counts - 1, 0) + PRIOR

    @property
    def errors(self) -> Numbers:
        """[R, n_1, ..., n_R]: standard errors of the means; NaN where no match was played."""
        variances = np.stack([self.moderated[role, role] for role in range(self.num_roles)])
        with np.errstate(divide="ignore", invalid="ignore"):
            errors: Numbers = np.sqrt(variances / np.where(self.counts > 0, self.counts, np.nan))
        return errors

    def intervals(self, level: float = 0.95) -> Numbers:
        """[2, R, n_1, ..., n_R]: between what a mean lies with this probability (moderated t).

        Raises:
            UsageError: `level` is not between 0 and 1.
        """
        check_level(level)
        half = stats.t.ppf(0.5 + level / 2.0, self.freedom) * self.errors
        return np.stack([self.means - half, self.means + half])

    @property
    def is_zero_sum(self) -> bool:
        """Whether what two roles earn adds up to the same in every match."""
        if self.num_roles != 2 or not (self.counts > 0).any():
            return False
        sums = self.means.sum(0)[self.counts > 0]
        scale = float(np.nanmax(np.abs(self.means))) + 1e-12
        together = self.covariances.sum((0, 1))[self.counts > 1]
        spread = np.abs(together) / scale / scale  # the square of a scale may be too large a number
        return bool(np.ptp(sums) <= 1e-6 * scale and (spread <= 1e-6).all())

    def sample(self, number: int, rng: np.random.Generator) -> Numbers:
        """Draw payoffs as they may be, given what was seen: [number, R, n_1, ..., n_R].

        Each cell is drawn from its t distribution, the roles of a cell together, so that draws of a
        zero-sum game are zero-sum games, and draws of a symmetric one are symmetric.

        Raises:
            UsageError: a cell was never played; there is nothing to draw it from.
        """
        self.check_whole()
        roles, shape = self.num_roles, self.counts.shape
        covariances = np.moveaxis(self.moderated.reshape(roles, roles, -1), 2, 0)
        values, vectors = np.linalg.eigh(covariances)
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        normal = rng.standard_normal((number, math.prod(shape), roles))
        freedom = self.freedom.reshape(-1)
        scale = np.sqrt(freedom / rng.chisquare(freedom, (number, len(freedom))))
        scale /= np.sqrt(self.counts.reshape(-1))
        drawn = np.einsum("cij,kcj->kci", roots, normal) * scale[..., None]
        drawn = np.moveaxis(drawn, 2, 1).reshape(number, roles, *shape)
        if self.symmetric:
            turned = np.swapaxes(drawn[:, ::-1], 2, 3)
            upper = np.triu(np.ones(shape, np.bool_), 1)
            drawn = np.where(upper, drawn, turned)
            own = np.einsum("krii->kri", drawn)
            own[...] = own.mean(1, keepdims=True)
        found: Numbers = self.means + drawn
        return found

    def part(self, kept: Sequence[int]) -> Payoffs:
        """The game in which all roles have only these of their strategies, which all share.

        Raises:
            UsageError: the roles have other strategies each.
        """
        if any(names != self.names for names in self.strategies):
            raise UsageError("payoffs: the roles have other strategies each; choose by role")
        names = tuple(self.names[place] for place in kept)
        index: tuple[Any, ...] = np.ix_(*[list(kept)] * self.num_roles)
        return replace(
            self,
            strategies=(names,) * self.num_roles,
            means=self.means[(slice(None), *index)],
            covariances=self.covariances[(slice(None), slice(None), *index)],
            counts=self.counts[index],
        )

    def completed(self) -> Payoffs:
        """The same with what a policy earns against itself, where symmetry alone tells it.

        In a symmetric game whose payoffs add up to the same in every match that is half of it, by
        seat, however few such matches were played.
        """
        if not (self.symmetric and self.is_zero_sum):
            return self
        own = np.eye(len(self.names), dtype=np.bool_)
        half = float(np.nanmean(self.means.sum(0))) / 2.0
        return replace(
            self,
            means=np.where(own, half, self.means),
            covariances=np.where(own, 0.0, self.covariances),
            counts=np.where(own, KNOWN, self.counts),
        )

    def to_pandas(self) -> Any:
        """What the first role earns as a `pandas.DataFrame`, with names of rows and columns.

        Raises:
            UsageError: pandas is not installed, or there are not two roles.
        """
        return data_frame(
            self.matrix, index=list(self.strategies[0]), columns=list(self.strategies[1])
        )

    def pooled_roles(self) -> Payoffs:
        """The symmetric game of playing either of two roles, each as often.

        Raises:
            UsageError: there are not two roles of the same strategies.
        """
        self._check_two()
        if self.symmetric:
            return self
        if self.strategies[0] != self.strategies[1]:
            raise UsageError("payoffs: the roles have other strategies each, and cannot be pooled")
        if not self._is_known and not (self.counts > 1).any():
            raise UsageError("no two policies met twice in these seats: leave out `--roles`")
        both = (self.counts > 0) & (self.counts.T > 0)
        if ((self.counts > 0) & ~both).any():
            raise UsageError(
                f"these met in one order of seats only: {self._one_way_names(both)}; leave out "
                "`--roles`"
            )
        itself = np.eye(len(self.names), dtype=np.bool_)
        counts = np.where(both, self.counts + np.where(itself, 0, self.counts.T), 0)
        errors = self.errors**2
        own = (self.means[0] + self.means[1].T) / 2.0
        # The mean of both roles is as sure as these are; of so many matches as there were.
        moderated = self.moderated
        shared = moderated[0, 1] / np.maximum(self.counts, 1)
        variance = (errors[0] + errors[1].T) / 4.0 * counts
        covariance = (shared + shared.T) / 4.0 * counts
        # Of a match against itself a policy has both returns.
        alone = (moderated[0, 0] + moderated[1, 1] + 2.0 * moderated[0, 1]) / 4.0
        variance, covariance = (np.where(itself, alone, each) for each in (variance, covariance))
        covariances = np.stack(
            [np.stack([variance, covariance]), np.stack([covariance, variance.T])]
        )
        return Payoffs(self.strategies, np.stack([own, own.T]), covariances, counts, True)

    def _one_way_names(self, both: Bools) -> str:
        found = np.argwhere((self.counts > 0) & ~both)
        told = [f"{self.names[row]} and {self.names[column]}" for row, column in found[:5]]
        return ", ".join(told) + (f", and {len(found) - 5} others" if len(found) > 5 else "")

    def check_whole(self) -> None:
        """Raise a `UsageError` that names cells in which no match was played, if there are any."""
        missing = self.missing_names()
        if missing:
            raise UsageError(
                f"these never met: {missing}; let them play (`remuda tournament`), or leave out "
                "policies with `--only`"
            )
        if not self._is_known and not ((self.counts > 1) & (self.counts < KNOWN)).any():
            raise UsageError("no two policies met twice: how sure their payoffs are is unknown")

    @property
    def _is_known(self) -> bool:
        """Whether all payoffs are known exactly."""
        return bool((self.counts >= KNOWN).all())

    def _check_two(self) -> None:
        if self.num_roles != 2:
            raise UsageError(f"payoffs: this is of two roles only, and there are {self.num_roles}")


def check_level(level: float) -> None:
    """Raise a `UsageError` unless a level of confidence is between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise UsageError(f"level is {level}; it is a probability between 0 and 1, such as 0.95")


def exact(
    *means: npt.ArrayLike, names: Sequence[Sequence[str]] = (), symmetric: bool = False
) -> Payoffs:
    """The payoffs of a game that is known: without any uncertainty.

    Args:
        means: by role, what it earns: [n_1, ..., n_R]; one alone: a zero-sum game of two roles.
        names: by role, the names of its strategies; empty: numbers.
        symmetric: whether both of two roles are one.

    Raises:
        UsageError: the arrays do not fit each other.
    """
    arrays = [np.asarray(each, np.float64) for each in means]
    if len(arrays) == 1:
        arrays.append(-arrays[0])
    if any(array.shape != arrays[0].shape for array in arrays):
        raise UsageError(f"payoffs: the roles' are of shapes {[a.shape for a in arrays]}")
    shape = arrays[0].shape
    names = names or [[str(place) for place in range(size)] for size in shape]
    roles = len(arrays)
    return Payoffs(
        tuple(tuple(of_role) for of_role in names),
        np.stack(arrays),
        np.zeros((roles, roles, *shape)),
        np.full(shape, KNOWN, np.int64),
        symmetric,
    )


def from_sums(strategies: Sequence[str], sums: Numbers, symmetric: bool) -> Payoffs:
    """The payoffs of two roles, from what `add_up` found.

    Args:
        strategies: of both roles.
        sums: [6, N, N] as of `add_up`.
        symmetric: whether both roles are one.
    """
    count, one, other, one_squared, other_squared, product = sums
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.stack([one, other]) / np.where(count > 0, count, np.nan)
        freedom = np.where(count > 1, count - 1.0, np.nan)
        squares = np.array([[one_squared, product], [product, other_squared]])
        centered = squares - count * np.einsum("i...,j...->ij...", means, means)
        covariances = centered / freedom
    for role in range(2):
        covariances[role, role] = np.maximum(covariances[role, role], 0.0)
    names = tuple(strategies)
    return Payoffs(
        (names, names), means, covariances, np.ceil(count - 1e-6).astype(np.int64), symmetric
    )


@njit(inline="always")
def _add(sums: Numbers, one: int, other: int, a: float, b: float, weight: float) -> None:
    sums[0, one, other] += weight
    sums[1, one, other] += weight * a
    sums[2, one, other] += weight * b
    sums[3, one, other] += weight * a * a
    sums[4, one, other] += weight * b * b
    sums[5, one, other] += weight * a * b


@njit(cache=True)
def add_up(
    places: Integers,
    returns: Numbers,
    sides: Integers,
    symmetric: bool,
    wins: bool,
    sums: Numbers,
) -> None:
    """Add the returns of matches to the sums of the pairs who met.

    Every two seats of a match that are on two sides are a meeting. A return that is met by several
    opponents is one observation all the same: it is shared out among their meetings, so that means
    over them are as sure as there were matches. In a symmetric game a meeting counts for both
    orders; between two seats of one policy half each way, so that it counts once.

    Args:
        places: [M, seats] who sat where; -1: one that is left out.
        returns: [M, seats].
        sides: [seats] the team of each seat, as a number.
        symmetric: whether seats are alike; else the first of two seats is the first role.
        wins: count who has more with 1, less with 0 and as much with 0.5, instead of returns.
        sums: [6, N, N] to be added to: meetings, returns of the row and of the column, their
            squares, and their products.
    """
    seats = places.shape[1]
    opponents = np.zeros(seats, np.int64)
    for i in range(seats):
        for j in range(seats):
            opponents[i] += sides[i] != sides[j]
    for m in range(places.shape[0]):
        for i in range(seats):
            for j in range(i + 1, seats):
                one, other = places[m, i], places[m, j]
                if one < 0 or other < 0 or sides[i] == sides[j]:
                    continue
                a, b = returns[m, i], returns[m, j]
                if wins:
                    a, b = 0.5 + 0.5 * np.sign(a - b), 0.5 + 0.5 * np.sign(b - a)
                weight = 1.0 / max(opponents[i], opponents[j])
                if symmetric and one == other:
                    weight *= 0.5
                _add(sums, one, other, a, b, weight)
                if symmetric:
                    _add(sums, other, one, b, a, weight)
