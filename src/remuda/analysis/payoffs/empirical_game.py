"""Empirical games with roles: teams, interchangeable seats and unlike seats.

A role is a group of interchangeable seats. A profile says how many seats of each role play each of
its strategies, so seats of a role need no order (Cheng, Reeves, Vorobeychik and Wellman 2004,
"Notes on equilibria in symmetric games"). Two teams are two roles, n interchangeable seats are one
role, and unlike seats are roles with one seat each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from remuda.analysis.payoffs.payoffs import KNOWN
from remuda.errors import UsageError
from remuda.types import Bools, Integers, Numbers

MOST_PROFILES = 200_000  # of a complete game; more need gigabytes


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
    one after another, S in all.

    Attributes:
        roles: at least one.
        profiles: [P, S] the number of seats of each strategy; no profile is there twice.
        means: [P, S] mean returns; NaN: the strategy has no seat in the profile.
        covariances: [P, S, S] of returns in one match, unbiased; NaN: fewer than two matches, or
            no seat.
        counts: [P] matches.
    """

    roles: tuple[Role, ...]
    profiles: Integers = field(repr=False)
    means: Numbers = field(repr=False)
    covariances: Numbers = field(repr=False)
    counts: Integers = field(repr=False)

    def __post_init__(self) -> None:
        size = sum(len(role.strategies) for role in self.roles)
        if not self.roles:
            raise UsageError("an empirical game needs at least one role")
        for role in self.roles:
            if not role.strategies:
                raise UsageError(f"the role {role.name} has no strategies")
            if len(set(role.strategies)) < len(role.strategies):
                raise UsageError(f"the role {role.name} has a strategy twice")
            if role.seats < 1:
                raise UsageError(f"the role {role.name} has {role.seats} seats; it needs one")
        if self.profiles.shape[1:] != (size,):
            raise UsageError(f"profiles are {self.profiles.shape}, and must be [P, {size}]")
        for role, columns in zip(self.roles, self.columns, strict=True):
            seated = self.profiles[:, columns].sum(1)
            if (seated != role.seats).any() or (self.profiles < 0).any():
                raise UsageError(f"a profile does not fill the {role.seats} seats of {role.name}")
        if not np.isfinite(self.means[self.profiles > 0]).all():
            raise UsageError("a mean is missing or infinite although the profile was played")

    @cached_property
    def columns(self) -> tuple[slice, ...]:
        """The numbers of each role's strategies."""
        ends = np.cumsum([0, *(len(role.strategies) for role in self.roles)]).tolist()
        return tuple(slice(*pair) for pair in itertools.pairwise(ends))

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
        return EmpiricalGame(
            roles,
            self.profiles[np.ix_(rows, chosen)],
            self.means[np.ix_(rows, chosen)],
            self.covariances[np.ix_(rows, chosen, chosen)],
            self.counts[rows],
        )

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
