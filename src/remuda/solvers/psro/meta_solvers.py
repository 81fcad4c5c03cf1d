"""Meta-solvers: functions from the payoffs of policies to distributions over line-ups.

The strategies of a meta-game are the policies of each role (Lanctot et al. 2017, "A unified
game-theoretic approach to multiagent reinforcement learning", section 3). Most meta-solvers return
a mixture for each role. Those of correlated equilibria return joint probabilities (Marris et al.
2021, "Multi-agent training beyond zero-sum with correlated equilibrium meta-solvers").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial

import numpy as np
import numpy.typing as npt

from remuda.analysis.equilibria import correlated, general_sum, role_symmetric, zero_sum
from remuda.analysis.equilibria.correlated import Choice
from remuda.analysis.equilibria.regret import as_payoffs, to_distribution
from remuda.analysis.ranking.alpha_rank import MOST_PROFILES, alpha_rank
from remuda.errors import UsageError
from remuda.solvers.psro.meta_strategy import (
    CCE,
    CE,
    SUPPORT,
    MetaStrategy,
    Mixtures,
    ResponseTarget,
    as_empirical,
    check_filled,
    payoffs_against,
)
from remuda.solvers.psro.replicator import replicate
from remuda.types import Numbers

SUMS = 1e-9  # allowed spread of the sums of payoffs in a zero-sum game, as a share of their range
SECONDS = 10.0  # of a search for an equilibrium
TOLERANCE = 1e-4  # as `SUMS`, of payoffs that are measured in matches
MOST_COVARIANCES = 1e8  # of an empirical game, which takes a gigabyte


def solve(
    name: str,
    payoffs: npt.ArrayLike,
    tolerance: float = SUMS,
    symmetric: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> MetaStrategy:
    """Run a meta-solver by its name.

    Means over matches are inexact, so a game is treated as zero-sum if the sums of its payoffs vary
    by at most `tolerance` times the payoffs' range.

    `payoffs`: [N, n_1, ..., n_N] by seat; `symmetric`: all seats share one set of policies, and the
    order of the seats changes nothing; `stop`: returns True to end a search early.
    """
    array = np.asarray(payoffs, np.float64)
    check_filled(name, array)
    game = as_payoffs(array)
    check_players(name, len(game))
    if name in CORRELATED:
        choose, gap = CORRELATED[name]
        joint = correlated.solve(game, choose, coarse=gap == CCE).joint
        assert joint is not None
        return MetaStrategy.correlated(joint, symmetric, gap)
    solver = find(name)
    if solver is nash and not is_zero_sum(game, tolerance) and (symmetric or len(game) > 2):
        return searched_nash(game, symmetric, stop)
    found = [to_distribution(each) for each in solver(game, tolerance)]
    if symmetric:  # the mean of two zero-sum equilibria is one; others are equal already
        found = [to_distribution(np.mean(found, axis=0))]
    return aimed(name, game, MetaStrategy.independent(found, len(game)))


def aimed(name: str, payoffs: Numbers, strategy: MetaStrategy) -> MetaStrategy:
    """Return a meta-solver's strategy with the targets of the next best responses."""
    if name != RECTIFIED:
        return strategy
    return strategy.aiming(rectified_targets(payoffs, strategy.mixtures))


@dataclass(frozen=True)
class MetaSolver:
    """A meta-solver, and how the loop of iterations treats it."""

    solve: Callable[[Numbers], MetaStrategy]  # from payoffs [N, n_1, ..., n_N]
    only_new: bool = False  # whether the loop ends when no best response is new
    skips_known: bool = False
    """True if a role adds at most one policy: the new one with the largest gain."""
    fits: Callable[[Sequence[int]], bool] = lambda sizes: True  # noqa: ARG005
    """Return whether it can solve a game with so many policies by seat."""
    name: str = ""


def meta_solver(
    name: str,
    tolerance: float = SUMS,
    symmetric: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> MetaSolver:
    """Return a meta-solver by its name; `stop` returns True to end a search early."""
    check_name(name)
    return MetaSolver(
        partial(solve, name, tolerance=tolerance, symmetric=symmetric, stop=stop),
        only_new=name in OF_SETS,
        skips_known=name in CORRELATED,
        fits=partial(fits, name, symmetric=symmetric),
        name=name,
    )


def fits(name: str, sizes: Sequence[int], symmetric: bool = False) -> bool:
    """Return whether a meta-solver can solve a game with so many policies by seat."""
    line_ups = math.prod(sizes)
    if name == "alpha-rank":
        return line_ups <= MOST_PROFILES
    if name == "nash" and len(sizes) > 2:
        profiles, size = line_ups, sum(sizes)
        if symmetric:
            profiles, size = math.comb(sizes[0] + len(sizes) - 1, len(sizes)), sizes[0]
        return profiles * size**2 <= MOST_COVARIANCES
    if name not in CORRELATED:
        return True
    _, gap = CORRELATED[name]
    deviations = sum(size if gap == CCE else size * (size - 1) for size in sizes)
    return line_ups * deviations <= correlated.SIZE


def find(name: str) -> Callable[[Numbers, float], Sequence[Numbers]]:
    """Return a meta-solver of independent mixtures by its name."""
    check_name(name)
    return SOLVERS[name]


def check_name(name: str) -> None:
    """Raise a `UsageError` for an unknown meta-solver."""
    if name not in NAMES:
        near = get_close_matches(str(name), NAMES, 1)
        hint = f'; did you mean "{near[0]}"? There' if near else "; there"
        raise UsageError(f'there is no meta-solver "{name}"{hint} are {", ".join(NAMES)}')


def check_players(name: str, num_players: int) -> None:
    """Raise a `UsageError` for an unknown meta-solver, or an unsupported number of players."""
    check_name(name)
    if num_players != 2 and name in TWO_PLAYERS:
        others = ", ".join(each for each in NAMES if each not in TWO_PLAYERS)
        raise UsageError(
            f"{name} is for games of two players; this one has {num_players}. Use one of {others}"
        )


def check_zero_sum(name: str, payoffs: Numbers, tolerance: float = SUMS) -> None:
    """Raise a `UsageError` if a meta-solver needs a zero-sum game and `payoffs` are not one."""
    if name in ZERO_SUM and not is_zero_sum(payoffs, tolerance):
        raise UsageError(
            f"{name} is for zero-sum games, but these payoffs do not add up to a constant; use nash"
        )


def nash(payoffs: Numbers, tolerance: float = SUMS) -> Mixtures:
    """Return a Nash equilibrium of [2, n, m]: by linear program if zero-sum, or Lemke-Howson."""
    if is_zero_sum(payoffs, tolerance):
        return zero_sum.solve(_of_row(payoffs)).mixtures
    found = general_sum.solve(payoffs[0], payoffs[1])
    if found is None:
        raise UsageError("no Nash equilibrium of the meta-game was found; use projected-replicator")
    return found.mixtures


def searched_nash(
    payoffs: Numbers, symmetric: bool, stop: Callable[[], bool] = lambda: False
) -> MetaStrategy:
    """Return the mixtures of the smallest regret that a search of limited time finds.

    A pure equilibrium comes first; of several, the one with the largest welfare. If all seats play
    the same mixture (`symmetric`), one always exists, but it need not be pure. If the mixtures are
    no exact equilibrium, the strategy has a note and its regret.
    """
    if not symmetric and (pure := pure_nash(payoffs)):
        return MetaStrategy.independent(pure, len(payoffs))
    game = as_empirical(payoffs, symmetric)
    found = role_symmetric.solve(game, np.random.default_rng(0), seconds=SECONDS, stop=stop)
    mixtures = [to_distribution(each) for each in found.mixtures]
    strategy = MetaStrategy.independent(mixtures, len(payoffs))
    if not found.note:
        return strategy
    return replace(strategy, note=found.note, regret=float(found.regret.max()))


def pure_nash(payoffs: Numbers) -> Mixtures:
    """Return the pure equilibrium of [N, n_1, ..., n_N] with the largest welfare; empty: none."""
    stable = np.ones(payoffs.shape[1:], np.bool_)
    for seat, own in enumerate(payoffs):
        stable &= own == own.max(seat, keepdims=True)
    if not stable.any():
        return ()
    best = int(np.where(stable, payoffs.sum(0), -np.inf).argmax())
    choices = np.unravel_index(best, stable.shape)
    return tuple(np.eye(n)[int(own)] for n, own in zip(payoffs.shape[1:], choices, strict=True))


def max_entropy_nash(payoffs: Numbers, tolerance: float) -> Mixtures:
    """Return a zero-sum game's Nash equilibrium with the largest entropy.

    This equilibrium is unique, and treats equal policies equally.
    """
    check_zero_sum("max-entropy-nash", payoffs, tolerance)
    return zero_sum.solve_max_entropy(_of_row(payoffs)).mixtures


def uniform(payoffs: Numbers) -> Mixtures:
    """Return uniform mixtures; PSRO with them is fictitious play (Brown 1951)."""
    return tuple(np.full(count, 1.0 / count) for count in payoffs.shape[1:])


def alpha_rank_marginals(payoffs: Numbers) -> Mixtures:
    """Return the marginals of alpha-rank (Omidshafiei et al. 2019; Muller et al. 2020)."""
    return alpha_rank(payoffs).by_role if payoffs[0].size > 1 else uniform(payoffs)


def rectified_targets(payoffs: Numbers, mixtures: Sequence[Numbers]) -> tuple[ResponseTarget, ...]:
    """Return the targets of rectified best responses: one for each policy in the support.

    Each target is the Nash mixture restricted to the opponents that the policy beats or draws with
    (Balduzzi et al. 2019, "Open-ended learning in symmetric zero-sum games", algorithm 4). A policy
    beats or draws with an opponent if its payoff is at least the mean of both players' payoffs, as
    in OpenSpiel's `rectified_selector`. A policy for which no opponent is left trains against the
    unrestricted mixture.

    `payoffs`: [2, n, m]; `mixtures`: by role, two or one.
    """
    ahead = payoffs >= payoffs.mean(0)
    found = []
    for player, own in enumerate(mixtures):
        beaten = np.moveaxis(ahead[player], player, 0)
        for policy in np.flatnonzero(own > SUPPORT):
            shares = np.where(beaten[policy], mixtures[player - 1], 0.0)
            if shares.sum() <= 1e-12:
                shares = mixtures[player - 1]
            found.append(ResponseTarget(player, to_distribution(shares)))
    return tuple(found)


def to_beat(name: str, payoffs: Numbers, strategy: MetaStrategy, target: ResponseTarget) -> Numbers:
    """Return the mixture of the role's policies [n_r] that a best response has to beat.

    It is the role's own mixture. For the solvers in `OF_SETS` it is the best policy against the
    target instead. In an equilibrium both earn as much. Against a rectified target, the policy that
    beats or draws with its opponents scores more than the mixture.

    `payoffs`: [N, n_1, ..., n_N].
    """
    mixture = strategy.mixtures[target.player]
    if name not in OF_SETS:
        return mixture
    found: Numbers = np.eye(len(mixture))[payoffs_against(payoffs, target).argmax()]
    return found


def is_zero_sum(payoffs: Numbers, tolerance: float = SUMS) -> bool:
    """Return whether two players' payoffs have the same sum in every cell."""
    if len(payoffs) != 2:
        return False
    sums = payoffs.sum(0)
    spread = max(float(np.ptp(payoffs)), 1e-300)
    return bool(np.ptp(sums) <= tolerance * spread or np.ptp(sums) == 0.0)


def _of_row(payoffs: Numbers) -> Numbers:
    """Return the row player's payoffs, [n, m], of the constant-sum game shifted to zero sum."""
    found: Numbers = (payoffs[0] - payoffs[1]) / 2.0
    return found


RECTIFIED = "rectified-nash"
TWO_PLAYERS = ("max-entropy-nash", RECTIFIED)
ZERO_SUM = ("max-entropy-nash",)  # solvers for constant-sum games only
SOLVERS: dict[str, Callable[[Numbers, float], Sequence[Numbers]]] = {
    "nash": nash,
    "max-entropy-nash": max_entropy_nash,
    "uniform": lambda payoffs, _: uniform(payoffs),
    "alpha-rank": lambda payoffs, _: alpha_rank_marginals(payoffs),
    "projected-replicator": lambda payoffs, _: replicate(payoffs),
    RECTIFIED: nash,
}
"""Functions from payoffs [N, n_1, ..., n_N] and a tolerance to mixtures by seat."""
CORRELATED: Mapping[str, tuple[Choice, str]] = {
    "max-welfare-ce": ("welfare", CE),
    "max-entropy-ce": ("entropy", CE),
    "max-welfare-cce": ("welfare", CCE),
    "max-entropy-cce": ("entropy", CCE),
}
"""Meta-solvers of joint distributions: what they maximise, and the gains that they withstand."""
NAMES = (*SOLVERS, *CORRELATED)
OF_SETS = ("nash", *TWO_PLAYERS, *CORRELATED)
"""Solvers that ignore duplicate policies. When no best response is new, iterations would repeat."""
