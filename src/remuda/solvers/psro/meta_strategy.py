"""The result of a meta-solver: a distribution over line-ups of policies, and its deviations.

A line-up is one policy for each seat. In a symmetric game all seats draw from one set of policies;
otherwise each seat has its own. A *role* is a set of policies: one for all seats, or one for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import permutations
from typing import Any

import numpy as np

from remuda.analysis.equilibria.regret import marginals, to_distribution
from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role, exact_game
from remuda.errors import UsageError
from remuda.types import Integers, Numbers

Mixtures = tuple[Numbers, ...]  # the probabilities [n_r] of each role's policies
NEGLIGIBLE = 1e-10  # joint probabilities below this are treated as zero
SUPPORT = 1e-8  # smallest probability in the support (OpenSpiel's `EPSILON_MIN_POSITIVE_PROBA`)
NASH, CE, CCE = "NashConv", "CE gap", "CCE gap"
"""Names of the sum of all gains: for independent mixtures, and for both kinds of correlation."""


@dataclass(frozen=True)
class ResponseTarget:
    """The opponents of one best response."""

    player: int  # the seat that responds, the first one of its role
    others: Numbers = field(repr=False)
    """[n_j, ...] the joint probabilities of the policies in all other seats, in their order."""
    weight: float = 1.0  # the probability of the recommendation to which this is a deviation
    recommended: int | None = None  # the policy from which this deviates; None: from all


@dataclass(frozen=True)
class MetaStrategy:
    """A distribution over line-ups."""

    mixtures: Mixtures  # by role
    joint: Numbers = field(repr=False)  # [n_1, ..., n_N] by seat
    gap: str = NASH  # what the sum of the gains is called
    aims: tuple[ResponseTarget, ...] = ()  # of the next best responses; empty: all deviations
    note: str = ""  # if the search found no exact equilibrium
    regret: float = 0.0  # of a strategy with a note: what a role gains by another policy of its set

    @classmethod
    def independent(cls, mixtures: Sequence[Numbers], seats: int) -> MetaStrategy:
        """Return the strategy in which each seat draws from its role's mixture."""
        of_seats = list(mixtures) if len(mixtures) == seats else list(mixtures) * seats
        return cls(tuple(mixtures), reduce(np.multiply.outer, of_seats))

    @classmethod
    def correlated(cls, joint: Numbers, symmetric: bool, gap: str) -> MetaStrategy:
        """Return the strategy with these joint probabilities.

        In a symmetric game it is the mean over all orders of the seats. Gains of deviations are
        linear in the probabilities, so an equilibrium remains one.
        """
        if symmetric:
            orders = list(permutations(range(joint.ndim)))
            joint = np.mean([joint.transpose(order) for order in orders], axis=0)
        joint = to_distribution(np.where(joint < NEGLIGIBLE, 0.0, joint))
        by_seat = marginals(joint)
        return cls(by_seat[:1] if symmetric else by_seat, joint, gap)

    @property
    def targets(self) -> tuple[ResponseTarget, ...]:
        """The opponents of the next best responses."""
        return self.aims or self.deviations

    @cached_property
    def deviations(self) -> tuple[ResponseTarget, ...]:
        """All deviations whose gains are measured: one for each role, or each recommendation."""
        found = []
        for role, mixture in enumerate(self.mixtures):
            if self.gap != CE:
                found.append(ResponseTarget(role, self.joint.sum(role)))
                continue
            by_policy = np.moveaxis(self.joint, role, 0)
            found += [
                ResponseTarget(role, to_distribution(by_policy[k]), float(mixture[k]), k)
                for k in np.flatnonzero(mixture).tolist()
            ]
        return tuple(found)

    def values(self, payoffs: Numbers) -> Numbers:
        """Return each seat's expected payoff: [N], from payoffs [N, n_1, ..., n_N]."""
        found: Numbers = payoffs.reshape(len(payoffs), -1) @ self.joint.reshape(-1)
        return found

    def welfare(self, payoffs: Numbers) -> float:
        """Return the sum of all seats' expected payoffs."""
        return float(self.values(payoffs).sum())

    def aiming(self, targets: Sequence[ResponseTarget]) -> MetaStrategy:
        """Return the strategy with other targets for the next best responses."""
        return replace(self, aims=tuple(targets))

    def as_plain(self) -> dict[str, Any]:
        """Return JSON values, from which `from_plain` returns the strategy without its aims."""
        plain: dict[str, Any] = {
            "mixtures": [mixture.tolist() for mixture in self.mixtures],
            "gap": self.gap,
        }
        if self.note:
            plain |= {"note": self.note, "regret": self.regret}
        if self.gap != NASH:
            cells = np.argwhere(self.joint > 0.0)
            plain["joint"] = {
                "line_ups": cells.tolist(),
                "probabilities": self.joint[tuple(cells.T)].tolist(),
            }
        return plain

    @staticmethod
    def from_plain(plain: Mapping[str, Any], seats: int) -> MetaStrategy:
        mixtures = tuple(np.array(each, np.float64) for each in plain["mixtures"])
        found = MetaStrategy.independent(mixtures, seats)
        if plain["gap"] == NASH:
            return replace(found, note=plain.get("note", ""), regret=plain.get("regret", 0.0))
        joint = np.zeros(found.joint.shape)
        cells = np.array(plain["joint"]["line_ups"])
        joint[tuple(cells.T)] = plain["joint"]["probabilities"]
        return MetaStrategy(mixtures, joint, plain["gap"])


def payoffs_against(payoffs: Numbers, target: ResponseTarget) -> Numbers:
    """Return what each policy of a seat earns against a target: [n_seat]."""
    own = np.moveaxis(payoffs[target.player], target.player, 0)
    found: Numbers = own.reshape(len(own), -1) @ target.others.reshape(-1)
    return found


def gain_of(
    payoffs: Numbers, strategy: MetaStrategy, target: ResponseTarget, value: float
) -> float:
    """Return what a deviation gains if the response to its target has this value."""
    if target.recommended is None:
        obeyed = strategy.values(payoffs)[target.player]
    else:
        obeyed = payoffs_against(payoffs, target)[target.recommended]
    return target.weight * (value - float(obeyed))


def as_empirical(payoffs: Numbers, symmetric: bool) -> EmpiricalGame:
    """Return the game of payoffs [N, n_1, ..., n_N], with numbers as names of the policies."""
    seats, *sizes = payoffs.shape
    names = [tuple(map(str, range(size))) for size in sizes]
    roles = [Role(f"player {seat}", own) for seat, own in enumerate(names)]
    if symmetric:
        roles = [Role("player", names[0], seats)]

    def earned(profile: Integers) -> Numbers:
        policies = np.repeat(np.arange(len(profile)), profile)  # by seat, roles one after another
        starts = 0 if symmetric else np.cumsum([0, *sizes[:-1]])
        found = np.zeros(len(profile))
        found[policies] = payoffs[(slice(None), *(policies - starts))]
        return found

    return exact_game(roles, earned)


def check_filled(name: str, payoffs: Numbers) -> None:
    """Raise a `UsageError` if a line-up has no payoff."""
    missing = np.argwhere(np.isnan(payoffs).any(0))
    if len(missing):
        policies = ", ".join(map(str, missing[0].tolist()))
        raise UsageError(
            f"{name} needs the payoffs of every line-up, and {len(missing):,} of "
            f"{payoffs[0].size:,} have none: first that of the policies ({policies}), by seat; "
            "let them play, or leave policies out"
        )
