"""The payoffs of an empirical game by meeting, with their uncertainty.

They are what two strategies earn when they meet, whatever other seats play. Means always come with
the covariances of the returns and the numbers of matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import as_json
from remuda.analysis.frame import data_frame
from remuda.errors import UsageError
from remuda.types import Bools, Integers, Numbers

PRIOR = 4.0
"""Weight of the pooled variance in each cell's variance, in degrees of freedom (Smyth 2004, "Linear
models and empirical Bayes methods", equation 3). So three equal results do not make a payoff
certain."""
UNLIKE = 6.0  # limit of a cell's weight in the pooled variance, in degrees of freedom
KNOWN = 1 << 40  # number of matches that marks an exactly known payoff


@dataclass(frozen=True)
class Payoffs:
    """The mean returns of two strategies in the matches in which they met.

    A cell is a strategy of the first role, the rows, and one of the second, the columns. The
    payoffs are symmetric if both roles have the same strategies and are interchangeable. In that
    case `means[1]` is `means[0]` transposed, and a match of two different strategies is counted in
    both cells.

    Attributes:
        strategies: by role, the names of its strategies.
        means: [2, n, m] mean returns; NaN: no match.
        covariances: [2, 2, n, m] of the roles' returns in one match, unbiased; NaN: fewer than two
            matches.
        counts: [n, m] matches; a match with several opponents is shared among them, so counts may
            be fractions.
        units: [n, m] the mean weight of a match in `counts`.
        meetings: [n, m] matches in which these strategies met, with or without others; None: equal
            to `counts`.
        matches: number of matches in which any two strategies met; None: unknown.
    """

    strategies: tuple[tuple[str, ...], ...]
    means: Numbers = field(repr=False)
    covariances: Numbers = field(repr=False)
    counts: npt.NDArray[Any] = field(repr=False)
    symmetric: bool = False
    units: npt.NDArray[Any] | None = field(default=None, repr=False)
    meetings: npt.NDArray[Any] | None = field(default=None, repr=False)
    matches: int | None = None

    def __post_init__(self) -> None:
        shape = tuple(len(names) for names in self.strategies)
        if len(shape) != 2:
            raise UsageError(f"payoffs: they have two roles, and {len(shape)} are named")
        for what, array, wanted in (
            ("means", self.means, (2, *shape)),
            ("covariances", self.covariances, (2, 2, *shape)),
            ("counts", self.counts, shape),
        ):
            if array.shape != wanted:
                raise UsageError(f"payoffs: {what} are {array.shape}, and must be {wanted}")
        for names in self.strategies:
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise UsageError(
                    f"payoffs: {twice[0]} is named twice among the strategies of a role"
                )
        if np.isinf(self.means).any():
            raise UsageError("payoffs: a mean is infinite")
        if (np.isnan(self.means).any(0) & (self.counts > 0)).any():
            raise UsageError("payoffs: a mean is not a number although matches were played")
        if self.symmetric and self.strategies[0] != self.strategies[1]:
            raise UsageError("payoffs: a symmetric game has two roles with the same strategies")

    @property
    def names(self) -> tuple[str, ...]:
        """The strategies of the first role; in a symmetric game, of both roles."""
        return self.strategies[0]

    @property
    def matrix(self) -> Numbers:
        """The payoffs of the first role: [n, m]."""
        found: Numbers = self.means[0]
        return found

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Numbers:
        """Return the mean returns for functions of arrays: `matrix` if symmetric, else `means`."""
        found = self.matrix if self.symmetric else self.means
        return np.array(found, dtype) if copy is not False else np.asarray(found, dtype)

    def without_rounding(self, value: float) -> float:
        """Return a difference or a mean of payoffs, and 0 instead of a rounding error."""
        return value if abs(value) >= 1e-9 * float(np.nanmax(np.abs(self.means))) else 0.0

    @property
    def missing(self) -> Bools:
        """Cells without a match: [n, m]."""
        found: Bools = self.counts == 0
        return found

    @property
    def met(self) -> npt.NDArray[Any]:
        """Matches in which the strategies met, [n, m]; `KNOWN`: known exactly."""
        met = self.counts if self.meetings is None else self.meetings
        return np.where(self.counts < KNOWN, met, KNOWN)

    def missing_names(self, most: int = 5) -> str:
        """Return cells without a match as text: `a and b, and 7 others`; empty: no such cell."""
        cells = np.argwhere(self.missing)
        if self.symmetric:
            cells = cells[cells[:, 0] <= cells[:, 1]]
        return self._names_of(cells, most)

    def _names_of(self, cells: Integers, most: int = 5) -> str:
        words = [
            " and ".join(names[place] for names, place in zip(self.strategies, cell, strict=True))
            for cell in cells[:most]
        ]
        if len(cells) > most:
            words.append(f"and {len(cells) - most} others")
        return ", ".join(words)

    @property
    def pooled(self) -> Numbers:
        """The covariances of returns within cells, pooled over all cells: [2, 2].

        A cell with f degrees of freedom has the weight 1 / (1 / f + 1 / `UNLIKE`), so a pair with
        very many matches does not dominate (Cochran 1954, "The combination of estimates from
        different experiments").
        """
        own = self.own_freedom
        weights = np.where(self.counts < KNOWN, own / (own + UNLIKE), 0.0)
        if not weights.any():
            unknown = 0.0 if self._is_known else np.nan
            return np.full((2, 2), unknown)
        known = np.where(weights > 0, self.covariances, 0.0)
        pooled: Numbers = (known * weights).sum((2, 3)) / weights.sum()
        # If the matches of each pair all ended equally, use the differences between pairs instead.
        constant = np.diagonal(pooled) <= 1e-12 * np.diagonal(self._between)
        return np.where(constant.any(), self._between, pooled)

    @property
    def _between(self) -> Numbers:
        """The covariances of mean returns between cells: [2, 2]."""
        played = (self.counts > 0) & (self.counts < KNOWN)
        means = self.means[:, played]
        away = means - means.mean(1, keepdims=True)
        found: Numbers = away @ away.T / max(played.sum() - 1, 1)
        return found

    @property
    def moderated(self) -> Numbers:
        """Covariances of one match, shrunk towards `pooled` (`PRIOR`): [2, 2, n, m]."""
        weights = self.own_freedom
        known = np.where(weights > 0, self.covariances, 0.0)
        prior = np.where(self.counts < KNOWN, PRIOR, 0.0)
        return (known * weights + self.pooled[:, :, None, None] * prior) / (weights + prior)

    @property
    def own_freedom(self) -> Numbers:
        """Degrees of freedom of the cells' own covariances, [n, m]; 0: never met twice.

        Their sum over opponents that share matches is the number of matches minus one.
        """
        unit = 1.0 if self.units is None else self.units
        return np.maximum(self.counts - unit, 0.0)

    @property
    def freedom(self) -> Numbers:
        """Degrees of freedom of the moderated covariances: [n, m]."""
        return self.own_freedom + PRIOR

    @property
    def errors(self) -> Numbers:
        """Standard errors of the means, [2, n, m]; NaN: no match."""
        variances = np.einsum("rrij->rij", self.moderated)
        with np.errstate(divide="ignore", invalid="ignore"):
            errors: Numbers = np.sqrt(variances / np.where(self.counts > 0, self.counts, np.nan))
        return errors

    def intervals(self, level: float = 0.95) -> Numbers:
        """Return the moderated t intervals of the means: [2, 2, n, m]."""
        check_level(level)
        from scipy import stats  # imported here: it needs half a second, and actors load this file

        half = stats.t.ppf(0.5 + level / 2.0, self.freedom) * self.errors
        return np.stack([self.means - half, self.means + half])

    @property
    def is_zero_sum(self) -> bool:
        """True if the two roles' returns have the same sum in every match."""
        if not (self.counts > 0).any():
            return False
        sums = self.means.sum(0)[self.counts > 0]
        scale = float(np.nanmax(np.abs(self.means))) + 1e-12
        of_sums = self.covariances.sum((0, 1))[self.own_freedom > 0.0]
        spread = np.abs(of_sums) / scale / scale  # the square of a scale may overflow
        return bool(np.ptp(sums) <= 1e-6 * scale and (spread <= 1e-6).all())

    def sample(self, number: int, rng: np.random.Generator) -> Numbers:
        """Draw payoffs from their posterior: [number, 2, n, m].

        Cells have t distributions, jointly over roles: draws of a zero-sum game are zero-sum, and
        draws of a symmetric game are symmetric.
        """
        self.check_whole()
        shape = self.counts.shape
        covariances = np.moveaxis(self.moderated.reshape(2, 2, -1), 2, 0)
        values, vectors = np.linalg.eigh(covariances)
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        normal = rng.standard_normal((number, self.counts.size, 2))
        freedom = self.freedom.reshape(-1)
        scale = np.sqrt(freedom / rng.chisquare(freedom, (number, len(freedom))))
        scale /= np.sqrt(self.counts.reshape(-1))
        drawn = np.einsum("cij,kcj->kci", roots, normal) * scale[..., None]
        drawn = np.moveaxis(drawn, 2, 1).reshape(number, 2, *shape)
        if self.symmetric:
            turned = np.swapaxes(drawn[:, ::-1], 2, 3)
            upper = np.triu(np.ones(shape, np.bool_), 1)
            drawn = np.where(upper, drawn, turned)
            own = np.einsum("krii->kri", drawn)
            own[...] = own.mean(1, keepdims=True)
        found: Numbers = self.means + drawn
        return found

    def as_summary(self) -> dict[str, object]:
        """Return means, standard errors and matches as plain data; None: unknown, or exact."""
        return {
            "means": as_json(self.matrix),
            "standard_errors": as_json(self.errors[0]),
            "matches": [
                [None if count >= KNOWN else int(count) for count in row]
                for row in self.met.tolist()
            ],
        }

    def part(self, members: Sequence[int]) -> Payoffs:
        """Return the game restricted to some strategies of both roles."""
        if self.strategies[0] != self.strategies[1]:
            raise UsageError("payoffs: the roles have different strategies; select by role")
        names = tuple(self.names[place] for place in members)
        index: tuple[Any, ...] = np.ix_(members, members)
        return replace(
            self,
            strategies=(names, names),
            means=self.means[(slice(None), *index)],
            covariances=self.covariances[(slice(None), slice(None), *index)],
            counts=self.counts[index],
            units=None if self.units is None else self.units[index],
            meetings=None if self.meetings is None else self.meetings[index],
            matches=None,
        )

    def between(self, rows: Sequence[int], columns: Sequence[int]) -> Payoffs:
        """Return the game of two roles, with these strategies of a symmetric game."""
        self.check_symmetric("roles")
        index: tuple[Any, ...] = np.ix_(list(rows), list(columns))
        every = slice(None)
        return Payoffs(
            tuple(tuple(self.names[place] for place in role) for role in (rows, columns)),
            self.means[(every, *index)],
            self.covariances[(every, every, *index)],
            self.counts[index],
            units=None if self.units is None else self.units[index],
            meetings=None if self.meetings is None else self.meetings[index],
            matches=self.matches,
        )

    def completed(self) -> Payoffs:
        """Return the game with self-play payoffs filled in where symmetry determines them.

        In a symmetric constant-sum game these payoffs are half of the sum, however few self-play
        matches were played.
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
        """Return the first role's payoffs as a `pandas.DataFrame` with names."""
        return data_frame(
            self.matrix, index=list(self.strategies[0]), columns=list(self.strategies[1])
        )

    def pooled_roles(self) -> Payoffs:
        """Return the symmetric game in which each player plays both roles equally often."""
        if self.symmetric:
            return self
        if self.strategies[0] != self.strategies[1]:
            raise UsageError("payoffs: the roles have different strategies, and cannot be pooled")
        if not self._is_known and not (self.own_freedom > 0.0).any():
            raise UsageError("no two policies met twice in these seats: leave out `roles`")
        both = (self.counts > 0) & (self.counts.T > 0)
        one_way = np.argwhere((self.counts > 0) & ~both)
        if len(one_way):
            raise UsageError(
                f"these met only in one order of seats: {self._names_of(one_way)}; leave "
                "out `roles`"
            )
        diagonal = np.eye(len(self.names), dtype=np.bool_)
        counts, units, meetings = self._counts_of_both(both, diagonal)
        errors = self.errors**2
        own = (self.means[0] + self.means[1].T) / 2.0
        # The variance of the mean over both roles, scaled to a single match.
        moderated = self.moderated
        shared = moderated[0, 1] / np.where(self.counts > 0, self.counts, 1)
        variance = (errors[0] + errors[1].T) / 4.0 * counts
        covariance = (shared + shared.T) / 4.0 * counts
        # In self-play a policy receives both returns of a match.
        of_self_play = (moderated[0, 0] + moderated[1, 1] + 2.0 * moderated[0, 1]) / 4.0
        variance, covariance = (
            np.where(diagonal, of_self_play, each) for each in (variance, covariance)
        )
        covariances = np.stack(
            [np.stack([variance, covariance]), np.stack([covariance, variance.T])]
        )
        means = np.stack([own, own.T])
        return Payoffs(
            self.strategies, means, covariances, counts, True, units, meetings, self.matches
        )

    def _counts_of_both(self, both: Bools, itself: Bools) -> tuple[Numbers, Numbers, Numbers]:
        """Return [N, N] counts, units and meetings, each summed over both seat orders."""

        def added(each: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.where(both, each + np.where(itself, 0, each.T), 0)

        counts = added(self.counts)
        squares = added(self.counts * (1.0 if self.units is None else self.units))
        meetings = counts if self.meetings is None else added(self.meetings)
        return counts, squares / np.where(counts > 0, counts, 1), meetings

    def check_symmetric(self, what: str) -> None:
        """Raise a `UsageError` unless the game is symmetric; `what` names the computation."""
        if not self.symmetric:
            raise UsageError(
                f"{what}: this needs a symmetric game; pool the seats (`pooled_roles`)"
            )

    def check_whole(self) -> None:
        """Raise a `UsageError` that names the cells without a match, if there are any."""
        missing = self.missing_names()
        if missing:
            raise UsageError(
                f"these never met: {missing}; let them play (`remuda tournament`), or leave out "
                "policies with `only`"
            )
        if not self._is_known and not ((self.own_freedom > 0.0) & (self.counts < KNOWN)).any():
            raise UsageError(
                "no two policies met twice: the uncertainty of their payoffs is unknown"
            )

    @property
    def _is_known(self) -> bool:
        return bool((self.counts >= KNOWN).all())


def check_level(level: float) -> None:
    """Raise a `UsageError` unless a level of confidence is between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise UsageError(f"level is {level}; it is a probability between 0 and 1, such as 0.95")


def exact(
    rows: npt.ArrayLike,
    columns: npt.ArrayLike | None = None,
    *,
    names: Sequence[Sequence[str]] = (),
    symmetric: bool = False,
) -> Payoffs:
    """Return payoffs that are known exactly, without uncertainty.

    `rows`, `columns`: [n, m] what each role earns; without `columns`, the game is zero-sum.
    """
    first = np.asarray(rows, np.float64)
    second = -first if columns is None else np.asarray(columns, np.float64)
    if first.shape != second.shape or first.ndim != 2:
        raise UsageError(f"payoffs are {first.shape} and {second.shape}; both must be [n, m]")
    names = names or [[str(place) for place in range(size)] for size in first.shape]
    return Payoffs(
        tuple(tuple(of_role) for of_role in names),
        np.stack([first, second]),
        np.zeros((2, 2, *first.shape)),
        np.full(first.shape, KNOWN, np.int64),
        symmetric,
    )


def from_sums(
    strategies: Sequence[str], sums: Numbers, symmetric: bool, matches: int | None = None
) -> Payoffs:
    """Return the payoffs of two roles from the sums of `add_up`.

    Covariances are unbiased for weighted observations: the sum of squares is divided by V1 - V2 /
    V1, with V1 the sum of the weights and V2 the sum of their squares (Galassi et al. 2009, "GNU
    Scientific Library reference manual", weighted samples).

    `sums`: [8, N, N] from `add_up`, or [6, N, N] if each match has two seats and weight 1;
    `matches`: the total number of matches; None: unknown.
    """
    count, row_sum, column_sum, one_squared, other_squared, product = sums[:6]
    played = np.where(count > 0, count, np.nan)
    units, meetings = (sums[6] / played, sums[7]) if len(sums) > 6 else (np.ones_like(count), count)
    units = np.where(count > 0, units, 1.0)
    means = np.stack([row_sum, column_sum]) / played
    freedom = np.where(count - units > 1e-9 * count, count - units, np.nan)
    squares = np.array([[one_squared, product], [product, other_squared]])
    centered = squares - count * np.einsum("i...,j...->ij...", means, means)
    covariances = centered / freedom
    for role in range(2):
        covariances[role, role] = np.maximum(covariances[role, role], 0.0)
    # Remove rounding errors from sums of thirds and sevenths.
    count, meetings = np.round(count, 9), np.round(meetings, 9)
    units = np.where(np.isnan(freedom) & (count > 0), count, units)
    names = tuple(strategies)
    return Payoffs((names, names), means, covariances, count, symmetric, units, meetings, matches)


def count_matches(payoffs: Payoffs) -> str:
    """Return the number of matches, as `12,345 matches`; empty: exactly known payoffs.

    With more than two seats and an unknown number of matches, return the number of meetings of two
    policies: `12,345 meetings`.
    """
    upper = np.triu(payoffs.met)
    meetings = int(np.ceil(upper[upper < KNOWN].sum() - 1e-6))
    if not meetings:
        return ""
    # Without weights, matches have two seats each: each match is one meeting.
    shared = payoffs.units is not None and bool((payoffs.units[~payoffs.missing] != 1.0).any())
    if payoffs.matches is None and shared:
        return f"{meetings:,} meetings" if meetings > 1 else "1 meeting"
    matches = meetings if payoffs.matches is None else payoffs.matches
    return f"{matches:,} matches" if matches > 1 else "1 match"
