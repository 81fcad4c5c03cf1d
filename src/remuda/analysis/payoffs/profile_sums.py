"""Sums over matches by profile, from which empirical games with roles are computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remuda.analysis.payoffs.empirical_game import LARGEST, EmpiricalGame, Role
from remuda.errors import UsageError
from remuda.types import Array, Integers, Numbers

PIECE = 1 << 15  # the most matches added at once
CELLS = 1 << 22  # the most covariances of matches added at once


class TooLargeError(UsageError):
    """The game has too many profiles to be computed."""

    def __init__(self, roles: Sequence[Role], count: int, size: int) -> None:
        super().__init__(
            f"the matches have {count:,} profiles of {size} strategies or more, too many for one "
            "game; select fewer policies"
        )
        self.roles = tuple(roles)


class ProfileSums:
    """Counts, means and sums of squares of the returns in each profile that was played.

    Seats are ordered by strategy, so profiles have one row each whatever seats their strategies
    had. Batches are merged by the formula of Chan, Golub and LeVeque 1983, "Algorithms for
    computing the sample variance".
    """

    def __init__(
        self, roles: Sequence[Role], role_of_seat: Sequence[int], largest: int = LARGEST
    ) -> None:
        """Check that `role_of_seat` [N], the index of each seat's role, fits the roles."""
        self._roles, self._largest = tuple(roles), largest
        self._seats = list(role_of_seat)
        for number, role in enumerate(roles):
            count = self._seats.count(number)
            if role.seats != count:
                raise UsageError(
                    f"the role {role.name} has {role.seats} seats, and {count} were named"
                )
        starts = np.cumsum([0, *(len(role.strategies) for role in roles)])
        self._starts: Integers = starts[self._seats]
        self._size, seats = int(starts[-1]), len(self._seats)
        self._rows: dict[tuple[int, ...], int] = {}
        self._counts: Numbers = np.zeros(0)
        self._means: Numbers = np.zeros((0, seats))
        self._squares: Numbers = np.zeros((0, seats, seats))

    def add(self, chosen: Integers, returns: Numbers) -> None:
        """Add matches; those with a NaN return, of a seat that took no part, are left out.

        Raise TooLargeError before the game becomes larger than allowed.

        chosen: [M, N] the number of each seat's strategy within its role; -1: none, which leaves
            the match out.
        returns: [M, N]
        """
        known = ~np.isnan(returns).any(1) & (chosen >= 0).all(1)
        numbers, returns = chosen[known] + self._starts, returns[known]
        piece = max(min(PIECE, CELLS // len(self._seats) ** 2), 1)
        for start in range(0, len(numbers), piece):
            self._add(numbers[start : start + piece], returns[start : start + piece])

    def scale_down(self, most: float) -> None:
        """Let the matches of each profile so far count as at most `most`."""
        scale = np.minimum(most / np.maximum(self._counts, 1.0), 1.0)
        self._counts *= scale
        self._squares *= scale[:, None, None]

    def forget(self, role: int, strategy: int) -> None:
        """Forget all matches with a strategy, numbered within its role."""
        number = strategy + int(self._starts[self._seats.index(role)])
        kept = [each for each in self._rows if number not in each]
        rows = [self._rows[each] for each in kept]
        self._rows = {each: row for row, each in enumerate(kept)}
        self._counts, self._means = self._counts[rows], self._means[rows]
        self._squares = self._squares[rows]

    def _add(self, numbers: Integers, returns: Numbers) -> None:
        order = np.argsort(numbers, axis=1, kind="stable")
        ordered = np.take_along_axis(numbers, order, 1)
        profiles, inverse = np.unique(ordered, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        found = list(map(tuple, profiles.tolist()))
        self._check_size(len(self._rows) + sum(each not in self._rows for each in found))
        # a strategy's return is the mean over its seats
        same = (ordered[:, :, None] == ordered[:, None, :]).astype(np.float64)
        earned = np.einsum("mij,mj->mi", same, np.take_along_axis(returns, order, 1)) / same.sum(2)
        counts = np.bincount(inverse, minlength=len(profiles)).astype(np.float64)
        means = np.zeros(profiles.shape)
        np.add.at(means, inverse, earned)
        means /= counts[:, None]
        away = earned - means[inverse]
        squares = np.zeros((*profiles.shape, profiles.shape[1]))
        np.add.at(squares, inverse, away[:, :, None] * away[:, None, :])
        self._merge(found, counts, means, squares)

    def _check_size(self, count: int) -> None:
        if count * max(self._size, len(self._seats)) ** 2 > self._largest:
            raise TooLargeError(self._roles, count, self._size)

    def _merge(
        self, profiles: list[tuple[int, ...]], counts: Numbers, means: Numbers, squares: Numbers
    ) -> None:
        rows = np.array([self._rows.setdefault(each, len(self._rows)) for each in profiles], int)
        more = len(self._rows) - len(self._counts)
        self._counts = _longer(self._counts, more)
        self._means, self._squares = _longer(self._means, more), _longer(self._squares, more)
        before, apart = self._counts[rows], means - self._means[rows]
        total = before + counts
        self._squares[rows] += (
            squares
            + (apart[:, :, None] * apart[:, None, :]) * ((before * counts / total)[:, None, None])
        )
        self._means[rows] += apart * (counts / total)[:, None]
        self._counts[rows] = total

    def game(self) -> EmpiricalGame:
        """Return the game of all matches that were added; its profiles are in order."""
        count, size = len(self._rows), self._size
        ordered: Integers = np.array(sorted(self._rows), np.int64).reshape(count, len(self._seats))
        rows = [self._rows[each] for each in map(tuple, ordered.tolist())]
        profiles: Integers = np.zeros((count, size), np.int64)
        places = np.arange(count)[:, None]
        np.add.at(profiles, (places, ordered), 1)
        means, covariances = np.full((count, size), np.nan), np.full((count, size, size), np.nan)
        counts = self._counts[rows]
        means[places, ordered] = self._means[rows]
        freedom = np.where(counts > 1, counts - 1.0, np.nan)[:, None, None]
        covariances[places[:, :, None], ordered[:, :, None], ordered[:, None, :]] = (
            self._squares[rows] / freedom
        )
        return EmpiricalGame(self._roles, profiles, means, covariances, counts.astype(np.int64))


def _longer(array: Array, more: int) -> Array:
    return np.concatenate([array, np.zeros((more, *array.shape[1:]))])


def game_of_matches(
    roles: Sequence[Role], role_of_seat: Sequence[int], chosen: Integers, returns: Numbers
) -> EmpiricalGame:
    """Return the game that matches sample.

    Matches with a NaN return, of a seat that took no part, are left out.

    role_of_seat: [N] the role's index of each seat.
    chosen: [M, N] the number of each seat's strategy within its role.
    returns: [M, N]
    """
    sums = ProfileSums(roles, role_of_seat)
    sums.add(chosen, returns)
    return sums.game()
