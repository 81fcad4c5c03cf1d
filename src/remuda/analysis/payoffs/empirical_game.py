"""Empirical games: of two players, teams, interchangeable seats and unlike seats.

An empirical game (Wellman 2006, "Methods for empirical game-theoretic analysis") has policies as
strategies and mean returns as payoffs. A role is a group of interchangeable seats. A profile says
how many seats of each role play each of its strategies, so seats of a role need no order (Cheng,
Reeves, Vorobeychik and Wellman 2004, "Notes on equilibria in symmetric games"). A symmetric game of
two players is one role of two seats, two teams are two roles, n interchangeable seats are one role,
and unlike seats are roles with one seat each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from remuda.analysis.payoffs.payoffs import KNOWN, Payoffs
from remuda.errors import UsageError
from remuda.types import Bools, Integers, Numbers

MOST_PROFILES = 200_000  # of a complete game; more need gigabytes
LARGEST = 20_000_000
"""The default limit of a game's size: its profiles times the square of its strategies, or of its
seats if there are more. A larger game needs gigabytes."""


@dataclass(frozen=True)
class Role:
    """Interchangeable seats, and the strategies that may play them."""

    name: str
    strategies: tuple[str, ...]
    seats: int = 1

    @property
    def num_profiles(self) -> int:
        """How many multisets of strategies may take the seats."""
        return math.comb(len(self.strategies) + self.seats - 1, self.seats)


@dataclass(frozen=True)
class EmpiricalGame:
    """Mean returns of each strategy in each profile that was played.

    A strategy's return in a match is the mean over its seats. Strategies of all roles are numbered
    one after another, S in all. `from_arrays` makes a game from arrays.

    Attributes:
        roles: at least one.
        profiles: [P, S] the number of seats of each strategy; no profile is there twice.
        means: [P, S] mean returns; NaN: the strategy has no seat in the profile.
        covariances: [P, S, S] of returns in one match, unbiased; NaN: fewer than two matches, or
            no seat.
        counts: [P] matches.
        meetings: the payoffs by meeting, as the matches gave them; None: those of the profiles.
        counts_profiles: False: there are only `meetings`, of two seats, or of too many profiles.
    """

    roles: tuple[Role, ...]
    profiles: Integers = field(repr=False)
    means: Numbers = field(repr=False)
    covariances: Numbers = field(repr=False)
    counts: Integers = field(repr=False)
    meetings: Payoffs | None = field(default=None, repr=False)
    counts_profiles: bool = True

    def __post_init__(self) -> None:
        size = sum(len(role.strategies) for role in self.roles)
        _check_roles(self.roles)
        if self.profiles.shape[1:] != (size,):
            raise UsageError(f"profiles are {self.profiles.shape}, and must be [P, {size}]")
        for role, columns in zip(self.roles, self.columns, strict=True):
            seated = self.profiles[:, columns].sum(1)
            if (seated != role.seats).any() or (self.profiles < 0).any():
                raise UsageError(f"a profile does not fill the {role.seats} seats of {role.name}")
        if not np.isfinite(self.means[self.profiles > 0]).all():
            raise UsageError("a mean is missing or infinite although the profile was played")

    @staticmethod
    def from_arrays(
        means: npt.ArrayLike,
        roles: Mapping[str, Sequence[str]],
        *,
        errors: npt.ArrayLike | None = None,
        counts: npt.ArrayLike | None = None,
    ) -> EmpiricalGame:
        """Return the game with these payoffs.

        Args:
            means: of several roles, [R, n_1, ..., n_R]: what each role earns. Of a single role,
                [n, n] for two interchangeable seats, [n, n, n] for three, and so on: what the first
                index earns while the other seats play the others, in any order. NaN: never played.
            roles: the names of each role's strategies, by the name of the role.
            errors: standard errors of `means`; None: the payoffs are exact. Two seats of a
                zero-sum game earn 0 on average in self-play, whatever error is passed for it.
            counts: matches, at least two for each payoff that has an error; [n_1, ..., n_R], or of
                a single role the shape of `means`. Only with `errors`.

        Raises:
            UsageError: shapes do not fit, a role has no strategies, or the numbers of
                interchangeable seats depend on their order.
        """
        return _from_arrays(means, roles, errors, counts)

    @cached_property
    def columns(self) -> tuple[slice, ...]:
        """The numbers of each role's strategies."""
        ends = np.cumsum([0, *(len(role.strategies) for role in self.roles)]).tolist()
        return tuple(slice(*pair) for pair in itertools.pairwise(ends))

    @cached_property
    def payoffs(self) -> Payoffs:
        """The payoffs of every two strategies by meeting; a symmetric game, but for `meetings`.

        Two seats of different roles meet, and so do two seats of a single role.
        """
        return _by_meeting(self) if self.meetings is None else self.meetings

    @property
    def has_line_ups(self) -> bool:
        """True if profiles were counted, and say more than `payoffs`."""
        return self.counts_profiles and (len(self.roles) > 1 or self.roles[0].seats > 2)

    @property
    def num_strategies(self) -> int:
        """The number of strategies of all roles, S."""
        return int(self.profiles.shape[1])

    @property
    def num_profiles(self) -> int:
        """The number of all profiles, played or not."""
        return math.prod(role.num_profiles for role in self.roles)

    @cached_property
    def is_whole(self) -> bool:
        """True if all profiles were played."""
        return len(self.profiles) == self.num_profiles

    def missing(self) -> Iterator[Integers]:
        """Yield the profiles [S] that were never played."""
        if self.num_profiles > MOST_PROFILES:
            raise UsageError(
                f"the game has {self.num_profiles:,} profiles, more than {MOST_PROFILES:,}; "
                "select fewer policies"
            )
        played = set(map(tuple, self.profiles.tolist()))
        for profile in every_profile(self.roles):
            if tuple(profile.tolist()) not in played:
                yield profile

    def describe(self, profile: Integers) -> str:
        """Return a profile as text: `red: 2 x a, b against blue: c`."""
        words = []
        for role, columns in zip(self.roles, self.columns, strict=True):
            names = [
                name if count == 1 else f"{count} x {name}"
                for name, count in zip(role.strategies, profile[columns].tolist(), strict=True)
                if count
            ]
            prefix = f"{role.name}: " if len(self.roles) > 1 else ""
            words.append(prefix + ", ".join(names))
        return " against ".join(words)

    def deviation_payoffs(self, mixtures: Sequence[npt.ArrayLike]) -> Numbers:
        """Return the expected return of each strategy while all other seats play mixtures: [S].

        NaN: a profile that it needs was never played. `mixtures`: by role, [n_r].
        """
        likely = self.chances(mixtures)
        found = np.where(likely > 0.0, likely * self.means, 0.0).sum(0)
        return np.where(likely.sum(0) < 1.0 - 1e-9, np.nan, found)

    def chances(self, mixtures: Sequence[npt.ArrayLike]) -> Numbers:
        """Return the probability of each profile if a seat plays s and the others mix: [P, S]."""
        mixture = self._joined(mixtures)
        # The other seats of each role have a multinomial distribution. Of all seats' probability,
        # the seat of s is left out; if s has the probability 0, it must be the only such seat.
        is_played = mixture > 0.0
        logs = np.log(np.where(is_played, mixture, 1.0))
        unlikely = self.profiles @ ~is_played
        possible = (self.profiles > 0) & (unlikely[:, None] == ~is_played)
        found = (self.profiles @ logs)[:, None] - logs + self._log_orders
        return np.exp(np.where(possible, found, -np.inf))

    @cached_property
    def _log_orders(self) -> Numbers:
        """[P, S] the logarithm of the orders in which the other seats may be dealt.

        These are the orders of all seats, but for the seat of s among those of its strategy.
        """
        from scipy.special import gammaln  # imported here: every run imports this file

        total = np.log(np.maximum(self.profiles, 1))
        total -= gammaln(self.profiles + 1).sum(1)[:, None]
        total += sum(gammaln(role.seats + 1) for role in self.roles)
        for role, columns in zip(self.roles, self.columns, strict=True):
            total[:, columns] -= np.log(role.seats)
        return total

    def values(self, mixtures: Sequence[npt.ArrayLike]) -> Numbers:
        """Return the expected return of a seat of each role under mixtures: [R]."""
        gained, mixture = self.deviation_payoffs(mixtures), self._joined(mixtures)
        weighted = np.where(mixture > 0.0, mixture * gained, 0.0)
        return np.array([weighted[columns].sum() for columns in self.columns])

    def regret(self, mixtures: Sequence[npt.ArrayLike]) -> Numbers:
        """Return the gain of one seat's best deviation, by role: [R]; all 0 in an equilibrium."""
        gained, values = self.deviation_payoffs(mixtures), self.values(mixtures)
        best = [float(gained[columns].max()) for columns in self.columns]
        return np.array(best) - values

    def _joined(self, mixtures: Sequence[npt.ArrayLike]) -> Numbers:
        arrays = [np.asarray(each, np.float64) for each in mixtures]
        wanted = [(len(role.strategies),) for role in self.roles]
        if [each.shape for each in arrays] != wanted:
            raise UsageError(f"mixtures are {[a.shape for a in arrays]}, and must be {wanted}")
        return np.concatenate(arrays)

    def part(self, keep: Callable[[Role, str], bool]) -> EmpiricalGame:
        """Return the game restricted to some strategies of each role."""
        chosen: Bools = np.array(
            [keep(role, name) for role in self.roles for name in role.strategies]
        )
        roles = tuple(
            replace(role, strategies=tuple(n for n in role.strategies if keep(role, n)))
            for role in self.roles
        )
        rows = ~(self.profiles[:, ~chosen] > 0).any(1)
        left = {name for role in roles for name in role.strategies}
        meetings = self.meetings
        if meetings is not None:
            meetings = meetings.part([i for i, n in enumerate(meetings.names) if n in left])
        return EmpiricalGame(
            roles,
            self.profiles[np.ix_(rows, chosen)],
            self.means[np.ix_(rows, chosen)],
            self.covariances[np.ix_(rows, chosen, chosen)],
            self.counts[rows],
            meetings,
            self.counts_profiles,
        )

    def distinct(self) -> EmpiricalGame:
        """Return the game with `role: name` for all strategies if two roles share a name."""
        names = [name for role in self.roles for name in role.strategies]
        if len(set(names)) == len(names):
            return self
        roles = tuple(
            replace(role, strategies=tuple(f"{role.name}: {name}" for name in role.strategies))
            for role in self.roles
        )
        return replace(self, roles=roles)

    def tensor(self) -> Numbers:
        """Return the payoffs of all seats, each as a player: [N, n_1, ..., n_N].

        N is the number of all seats, in the order of the roles. NaN: not played.
        """
        players = [(r, role) for r, role in enumerate(self.roles) for _ in range(role.seats)]
        shape = tuple(len(role.strategies) for _, role in players)
        if math.prod(shape) > MOST_PROFILES:
            raise UsageError(
                f"{len(players)} seats have {math.prod(shape):,} joint strategies, more than "
                f"{MOST_PROFILES:,}; select fewer policies"
            )
        row_of = {tuple(profile): row for row, profile in enumerate(self.profiles.tolist())}
        found: Numbers = np.full((len(players), *shape), np.nan)
        for choice in np.ndindex(*shape):
            numbers = [self.columns[r].start + s for (r, _), s in zip(players, choice, strict=True)]
            profile = np.bincount(numbers, minlength=self.num_strategies)
            row = row_of.get(tuple(profile.tolist()))
            if row is not None:
                found[(slice(None), *choice)] = self.means[row, numbers]
        return found


def every_profile(roles: Sequence[Role]) -> Iterator[Integers]:
    """Yield all profiles of roles: [S] each."""
    by_role = []
    for role in roles:
        size = len(role.strategies)
        by_role.append(
            [
                np.bincount(seats, minlength=size)
                for seats in itertools.combinations_with_replacement(range(size), role.seats)
            ]
        )
    for parts in itertools.product(*by_role):
        yield np.concatenate(parts)


def exact_game(roles: Sequence[Role], payoff: Callable[[Integers], npt.ArrayLike]) -> EmpiricalGame:
    """Return an exactly known game; `payoff` maps a profile [S] to returns [S] of its strategies.

    The returns of strategies without a seat are ignored.
    """
    profiles = np.array(list(every_profile(roles)))
    means = np.array([np.asarray(payoff(profile), np.float64) for profile in profiles])
    means = np.where(profiles > 0, means, np.nan)
    both = (profiles[:, :, None] > 0) & (profiles[:, None, :] > 0)
    counts: Integers = np.full(len(profiles), KNOWN, np.int64)
    return EmpiricalGame(tuple(roles), profiles, means, np.where(both, 0.0, np.nan), counts)


def _by_meeting(game: EmpiricalGame) -> Payoffs:
    """Return the payoffs of every two strategies, over the profiles in which they met.

    A match with several opponents is shared among them, as in `add_up`.
    """
    check_size(len(game.profiles), game.num_strategies)
    seated = game.profiles.astype(np.float64)
    opponents = np.ones((game.num_strategies,) * 2) - np.eye(game.num_strategies)
    size: Numbers = np.zeros(game.num_strategies)
    for role, columns in zip(game.roles, game.columns, strict=True):
        size[columns] = role.seats
        if len(game.roles) > 1:
            opponents[columns, columns] = 0.0
    pairs = seated[:, :, None] * seated[:, None, :]
    if len(game.roles) > 1:
        most = np.maximum(size * seated[:, :, None], size[:, None] * seated[:, None, :])
        weights = opponents * pairs / (np.maximum(most, 1.0) * (len(game.roles) - 1))
    else:
        itself = seated * (seated - 1.0) / 2.0
        pairs = np.where(opponents > 0.0, pairs, itself[:, :, None])
        weights = pairs / max(game.roles[0].seats - 1, 1)
    known = game.counts >= KNOWN
    matches = np.where(known, 1.0, game.counts)[:, None, None]  # known cells have no others
    is_known = (weights[known] > 0.0).any(0)
    weights = np.where(is_known & ~known[:, None, None], 0.0, weights)
    counts = (matches * weights).sum(0)
    played = np.where(counts > 0.0, counts, np.nan)
    means = np.where(game.profiles > 0, game.means, 0.0)
    own = (matches * weights * means[:, :, None]).sum(0) / played
    units = (matches * weights**2).sum(0) / played
    freedom = np.where(counts - units > 1e-9 * counts, counts - units, np.nan)
    within = np.where(np.isnan(game.covariances), 0.0, game.covariances)
    variances = np.diagonal(within, axis1=1, axis2=2)
    row, column = (means[:, :, None] - own, means[:, None, :] - own.T)
    more = np.maximum(matches - 1.0, 0.0)

    def summed(inside: Numbers, between: Numbers) -> Numbers:
        found: Numbers = (weights * (more * inside + matches * between)).sum(0) / freedom
        return np.where(is_known, 0.0, found)

    rows, shared = summed(variances[:, :, None], row**2), summed(within, row * column)
    names = tuple(name for role in game.distinct().roles for name in role.strategies)
    return Payoffs(
        (names, names),
        np.stack([own, own.T]),
        np.array([[rows, shared], [shared, rows.T]]),
        np.where(is_known, KNOWN, np.round(counts, 9)),
        True,
        np.where(is_known | ~(counts > 0.0), 1.0, np.where(np.isnan(freedom), counts, units)),
        np.where(is_known, KNOWN, (matches * (weights > 0.0)).sum(0)),
        None if known.any() else int(game.counts.sum()),
    )


def _from_arrays(
    means: npt.ArrayLike,
    roles: Mapping[str, Sequence[str]],
    errors: npt.ArrayLike | None,
    counts: npt.ArrayLike | None,
) -> EmpiricalGame:
    if not isinstance(roles, Mapping):
        raise UsageError(f"roles: name the strategies of each role, by its name; this is {roles!r}")
    _check_names(roles)
    earned = _as_numbers("means", means)
    sizes, is_one = tuple(len(names) for names in roles.values()), len(roles) == 1
    dealt = sizes * max(earned.ndim, 2) if is_one else sizes
    players = tuple(
        Role(name, tuple(names), len(dealt) if is_one else 1) for name, names in roles.items()
    )
    _check_roles(players)
    if (errors is None) != (counts is None):
        raise UsageError("payoffs: pass `errors` and `counts` together, or neither")
    spread = np.zeros(earned.shape) if errors is None else _as_numbers("errors", errors)
    played = np.full(dealt, KNOWN) if counts is None else _as_numbers("counts", counts)
    shape = dealt if is_one else (len(roles), *sizes)
    for what, array, wanted in (
        ("means", earned, shape),
        ("errors", spread, shape),
        ("counts", played, dealt),
    ):
        if array.shape != wanted:
            raise UsageError(f"payoffs: {what} are {array.shape}, and must be {wanted}")
    _check_numbers(earned, spread, played, is_one)
    check_size(math.prod(player.num_profiles for player in players), sum(sizes))
    profiles = np.array(list(every_profile(players)))
    own, noise = np.full(profiles.shape, np.nan), np.full(profiles.shape, np.nan)
    matches: Integers = np.zeros(len(profiles), np.int64)
    starts = 0 if is_one else np.cumsum([0, *sizes[:-1]])
    for row, profile in enumerate(profiles):
        numbers = np.repeat(np.arange(sum(sizes)), profile)
        places = tuple((numbers - starts).tolist())
        matches[row] = played[places]
        for seat, number in enumerate(numbers):
            others = *places[:seat], *places[seat + 1 :]
            cell = (places[seat], *others) if is_one else (seat, *places)
            own[row, number], noise[row, number] = earned[cell], spread[cell]
    kept = (np.isfinite(own) == (profiles > 0)).all(1) & (matches > 0)
    profiles, own, noise, matches = profiles[kept], own[kept], noise[kept], matches[kept]
    if not len(profiles):
        raise UsageError("payoffs: all are NaN, or of 0 matches")
    if counts is not None and ((matches < 2).any() or not (noise[profiles > 0] >= 0.0).all()):
        raise UsageError("payoffs: `errors` must be at least 0, and `counts` at least 2")
    total = np.nansum(own * profiles, 1)
    is_zero_sum = len(dealt) == 2 and np.ptp(total) <= 1e-6 * np.nanmax(np.abs(own))
    if is_zero_sum:
        noise = np.where(profiles > 1, 0.0, noise)  # the mean of both seats is known
    deviations = noise * np.sqrt(matches)[:, None]
    covariances = deviations[:, :, None] * deviations[:, None, :] * (-1.0 if is_zero_sum else 0.0)
    variance = np.arange(len(profiles[0]))
    covariances[:, variance, variance] = deviations**2
    return EmpiricalGame(players, profiles, own, covariances, matches)


def _as_numbers(what: str, values: npt.ArrayLike) -> Numbers:
    try:
        found = np.asarray(values)
        if found.dtype.kind not in "biuf":
            raise TypeError
        return found.astype(np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"payoffs: {what} are not an array of numbers") from None


def _check_numbers(earned: Numbers, spread: Numbers, played: Numbers, is_one: bool) -> None:
    if np.isinf(earned).any() or np.isinf(spread).any():
        raise UsageError("payoffs: a mean or an error is infinite")
    if not np.isfinite(played).all() or (played != np.floor(played)).any() or (played < 0).any():
        raise UsageError("payoffs: counts must be whole numbers, at least 0")
    if is_one:
        _check_order("means", earned, 1)
        _check_order("errors", spread, 1)
        _check_order("counts", played, 0)


def _check_names(roles: Mapping[str, Sequence[str]]) -> None:
    for role, names in roles.items():
        is_list = isinstance(names, Sequence) and not isinstance(names, str)
        if not is_list or not all(isinstance(name, str) for name in (role, *names)):
            raise UsageError(
                f"roles: {role!r} has {names!r}; write a list of names, such as ['a', 'b']"
            )


def _check_order(what: str, array: Numbers, fixed: int) -> None:
    """Refuse numbers of interchangeable seats that depend on the seats' order."""
    for axis in range(fixed, array.ndim - 1):
        other = np.swapaxes(array, axis, axis + 1)
        if not np.allclose(array, other, rtol=1e-6, equal_nan=True):
            raise UsageError(
                f"payoffs: {what} differ when indexes {axis} and {axis + 1} are exchanged, but the "
                "seats of a role are interchangeable; write a role for each seat that differs"
            )


def _check_roles(roles: Sequence[Role]) -> None:
    if not roles:
        raise UsageError("an empirical game needs at least one role")
    for role in roles:
        if not role.strategies:
            raise UsageError(f"the role {role.name} has no strategies; each role needs one")
        if len(set(role.strategies)) < len(role.strategies):
            raise UsageError(f"the role {role.name} has a strategy twice")
        if role.seats < 1:
            raise UsageError(f"the role {role.name} has {role.seats} seats; it needs one")


def check_size(profiles: int, strategies: int) -> None:
    """Raise a `UsageError` if a game would need gigabytes."""
    if profiles * strategies**2 > LARGEST:
        raise UsageError(
            f"a game of {profiles:,} profiles of {strategies} strategies is too large; select "
            "fewer policies"
        )
