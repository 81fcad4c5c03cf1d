"""Meta-solvers: functions from the payoffs of policies to mixtures.

The strategies of a meta-game are the policies of each player's population (Lanctot et al. 2017, "A
unified game-theoretic approach to multiagent reinforcement learning", section 3). A meta-solver
returns a mixture for each player, and the targets of the next best responses, which are usually
these mixtures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from remuda.analysis.equilibria import general_sum, zero_sum
from remuda.analysis.equilibria.regret import as_payoffs, to_distribution
from remuda.analysis.ranking.alpha_rank import alpha_rank
from remuda.errors import UsageError
from remuda.system.kernels import njit
from remuda.types import Integers, Numbers

Mixtures = tuple[Numbers, ...]  # the probabilities [n_r] of each player's policies
ITERATIONS, STEP, FLOOR = 100_000, 1e-3, 1e-6  # OpenSpiel's, in `projected_replicator_dynamics`
SUPPORT = 1e-8  # smallest probability in the support (OpenSpiel's `EPSILON_MIN_POSITIVE_PROBA`)
SUMS = 1e-9  # allowed spread of the sums of payoffs in a zero-sum game, as a share of their range


@dataclass(frozen=True)
class ResponseTarget:
    """The target of one best response."""

    player: int  # the player that responds
    mixtures: Mixtures  # the mixture of each player; the responding player's own is ignored


@dataclass(frozen=True)
class MetaStrategy:
    """The result of a meta-solver."""

    mixtures: Mixtures
    targets: tuple[ResponseTarget, ...]  # of the next best responses, at least one for each player


def solve(name: str, payoffs: npt.ArrayLike, tolerance: float = SUMS) -> MetaStrategy:
    """Run a meta-solver by its name.

    `payoffs`: [R, n_1, ..., n_R]. Means over matches are inexact, so a game is treated as zero-sum
    if the sums of its payoffs vary by at most `tolerance` times the payoffs' range.
    """
    game = as_payoffs(payoffs)
    mixtures = tuple(to_distribution(each) for each in find(name)(game, tolerance))
    if name == RECTIFIED:
        return MetaStrategy(mixtures, rectified_targets(game, mixtures))
    return MetaStrategy(
        mixtures, tuple(ResponseTarget(player, mixtures) for player in range(len(game)))
    )


def find(name: str) -> Callable[[Numbers, float], Sequence[Numbers]]:
    """Return a meta-solver by its name."""
    if not isinstance(name, str) or name not in SOLVERS:
        near = get_close_matches(str(name), SOLVERS, 1)
        hint = f'; did you mean "{near[0]}"? There' if near else "; there"
        raise UsageError(f'there is no meta-solver "{name}"{hint} are {", ".join(SOLVERS)}')
    return SOLVERS[name]


def check_players(name: str, num_players: int) -> None:
    """Raise a `UsageError` for an unknown meta-solver, or an unsupported number of players."""
    find(name)
    if num_players != 2 and name in TWO_PLAYERS:
        others = ", ".join(each for each in SOLVERS if each not in TWO_PLAYERS)
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
    check_players("nash", len(payoffs))
    if is_zero_sum(payoffs, tolerance):
        return zero_sum.solve(_of_row(payoffs)).mixtures
    found = general_sum.solve(payoffs[0], payoffs[1])
    if found is None:
        raise UsageError("no Nash equilibrium of the meta-game was found; use projected-replicator")
    return found.mixtures


def max_entropy_nash(payoffs: Numbers, tolerance: float) -> Mixtures:
    """Return a zero-sum game's Nash equilibrium with the largest entropy.

    This equilibrium is unique, and treats equal policies equally.
    """
    check_players("max-entropy-nash", len(payoffs))
    check_zero_sum("max-entropy-nash", payoffs, tolerance)
    return zero_sum.solve_max_entropy(_of_row(payoffs)).mixtures


def uniform(payoffs: Numbers) -> Mixtures:
    """Return uniform mixtures; PSRO with them is fictitious play (Brown 1951)."""
    return tuple(np.full(count, 1.0 / count) for count in payoffs.shape[1:])


def alpha_rank_marginals(payoffs: Numbers) -> Mixtures:
    """Return the marginals of alpha-rank (Omidshafiei et al. 2019; Muller et al. 2020)."""
    return alpha_rank(payoffs).by_role if payoffs[0].size > 1 else uniform(payoffs)


def replicate(
    payoffs: Numbers, iterations: int = ITERATIONS, step: float = STEP, floor: float = FLOOR
) -> Mixtures:
    """Return the mean of projected replicator dynamics from uniform mixtures.

    x <- P(x + step * x * (u(x) - x u(x))) with u(x) the payoffs against the others' mixtures, and P
    the projection onto probabilities of at least `floor` (Lanctot et al. 2017, section 3). The mean
    is over all iterates, including the first. `payoffs`: [R, n_1, ..., n_R].
    """
    shape = payoffs.shape[1:]
    if not 0.0 <= floor * max(shape) <= 1.0:
        raise UsageError(
            f"floor is {floor}; with {max(shape)} policies it can be at most 1/{max(shape)}"
        )
    profiles = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1)
    mean = _replicate(
        np.ascontiguousarray(payoffs.reshape(len(payoffs), -1)),
        profiles.astype(np.int64),
        np.array(shape, np.int64),
        iterations,
        step,
        floor,
    )
    return tuple(to_distribution(row[:count]) for row, count in zip(mean, shape, strict=True))


def rectified_targets(payoffs: Numbers, mixtures: Sequence[Numbers]) -> tuple[ResponseTarget, ...]:
    """Return the targets of rectified best responses: one for each policy in the support.

    Each target is the Nash mixture restricted to the opponents that the policy beats or draws with
    (Balduzzi et al. 2019, "Open-ended learning in symmetric zero-sum games", algorithm 4). A policy
    beats or draws with an opponent if its payoff is at least the mean of both players' payoffs, as
    in OpenSpiel's `rectified_selector`. A policy for which no opponent is left trains against the
    unrestricted mixture.

    `payoffs`: [2, n, m].
    """
    ahead = payoffs >= payoffs.mean(0)
    found = []
    for player, opponent in ((0, 1), (1, 0)):
        beaten = np.moveaxis(ahead[player], player, 0)
        for policy in np.flatnonzero(mixtures[player] > SUPPORT):
            shares = np.where(beaten[policy], mixtures[opponent], 0.0)
            if shares.sum() <= 1e-12:
                shares = mixtures[opponent]
            both = [mixtures[0], mixtures[1]]
            both[opponent] = to_distribution(shares)
            found.append(ResponseTarget(player, (both[0], both[1])))
    return tuple(found)


def to_beat(
    name: str, payoffs: Numbers, mixtures: Sequence[Numbers], target: ResponseTarget
) -> float:
    """Return the payoff that a best response to a target has to exceed.

    It is the payoff of the player's own mixture against the target. For the solvers in `OF_SETS` it
    is the payoff of the player's best policy instead. Against a Nash mixture both are equal.
    Against a rectified target, the policy that beats or draws with its opponents scores more than
    the mixture.

    `payoffs`: [2, n, m].
    """
    player = target.player
    returns = np.moveaxis(payoffs[player], player, 0) @ target.mixtures[1 - player]
    return float(returns.max() if name in OF_SETS else returns @ mixtures[player])


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


@njit(cache=True)
def _project(point: Numbers, floor: float) -> Numbers:
    """Return the nearest point [n] whose coordinates add up to 1 and are at least `floor`.

    Wang and Carreira-Perpinan 2013, "Projection onto the probability simplex", algorithm 1, shifted
    by the floor.
    """
    count = len(point)
    ordered = np.sort(point)[::-1]
    total, shift = 0.0, 0.0
    for place in range(count):
        total += ordered[place]
        lift = (1.0 - total - (count - place - 1) * floor) / (place + 1)
        if ordered[place] + lift > floor or place == 0:
            shift = lift
    return np.maximum(point + shift, floor)


@njit(cache=True)
def _replicate(
    payoffs: Numbers,
    profiles: Integers,
    counts: Integers,
    iterations: int,
    step: float,
    floor: float,
) -> Numbers:
    """Return the mean of all iterates, [R, max(n_r)]; payoffs [R, P] of profiles [P, R]."""
    players, most = len(payoffs), counts.max()
    mixtures = np.zeros((players, most))
    for player in range(players):
        mixtures[player, : counts[player]] = 1.0 / counts[player]
    total = mixtures.copy()
    values = np.zeros((players, most))
    for _ in range(iterations):
        values[:] = 0.0
        for profile in range(len(profiles)):
            for player in range(players):
                product = payoffs[player, profile]
                for opponent in range(players):
                    if opponent != player:
                        product *= mixtures[opponent, profiles[profile, opponent]]
                values[player, profiles[profile, player]] += product
        for player in range(players):
            count = counts[player]
            own = mixtures[player, :count].copy()
            mean = 0.0
            for policy in range(count):
                mean += own[policy] * values[player, policy]
            for policy in range(count):
                own[policy] += step * own[policy] * (values[player, policy] - mean)
            mixtures[player, :count] = _project(own, floor)
        total += mixtures
    return total / (iterations + 1)


RECTIFIED = "rectified-nash"
TWO_PLAYERS = ("nash", "max-entropy-nash", RECTIFIED)  # solvers for two players only
ZERO_SUM = ("max-entropy-nash",)  # solvers for constant-sum games only
OF_SETS = ("nash", "max-entropy-nash", RECTIFIED)
"""Solvers that ignore duplicate policies. When no best response is new, iterations would repeat."""
SOLVERS: dict[str, Callable[[Numbers, float], Sequence[Numbers]]] = {
    "nash": nash,
    "max-entropy-nash": max_entropy_nash,
    "uniform": lambda payoffs, _: uniform(payoffs),
    "alpha-rank": lambda payoffs, _: alpha_rank_marginals(payoffs),
    "projected-replicator": lambda payoffs, _: replicate(payoffs),
    RECTIFIED: nash,
}
"""Functions from payoffs [R, n_1, ..., n_R] and a tolerance to mixtures."""
