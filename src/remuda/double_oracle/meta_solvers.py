"""Meta-solvers: from what policies earn against each other to how often each is played.

A meta-game has a strategy for each policy of a player's population, and as payoffs what these
policies earn a game (Lanctot et al. 2017, "A unified game-theoretic approach to multiagent
reinforcement learning", section 3). A meta-solver makes of it a mixture for each player, and says
which mixtures the next best responses are trained against: these, as a rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from remuda.analysis import general_sum, zero_sum
from remuda.analysis.alpha_rank import alpha_rank
from remuda.analysis.regret import as_payoffs, to_distribution
from remuda.errors import UsageError
from remuda.kernels import njit
from remuda.types import Integers

Numbers = npt.NDArray[np.float64]
Mixtures = tuple[Numbers, ...]
"""By player, the probabilities [n_r] of its policies."""
ITERATIONS, STEP, FLOOR = 100_000, 1e-3, 1e-6
"""Of projected replicator dynamics: steps, the size of each, and the least probability; those of
OpenSpiel's `projected_replicator_dynamics`."""
SUPPORT = 1e-8
"""Policies of at least this probability are played (OpenSpiel's `EPSILON_MIN_POSITIVE_PROBA`)."""
SUMS = 1e-9
"""By this share of the payoffs' range their sums may differ in a zero-sum game."""


@dataclass(frozen=True)
class Target:
    """What one best response is trained against."""

    player: int
    """Who responds."""
    mixtures: Mixtures
    """By player, what is played; the player's own is not looked at."""


@dataclass(frozen=True)
class MetaStrategy:
    """What a meta-solver says."""

    mixtures: Mixtures
    targets: tuple[Target, ...]
    """Against what best responses are trained next: one for each player at least."""


def solve(name: str, payoffs: npt.ArrayLike, tolerance: float = SUMS) -> MetaStrategy:
    """Ask a meta-solver by name.

    Args:
        name: of `SOLVERS`.
        payoffs: [R, n_1, ..., n_R] what each player earns.
        tolerance: by this share of their range payoffs may miss a sum of zero, where they are
            means over matches.

    Raises:
        UsageError: there is no such meta-solver, it is not for games like this one, or payoffs are
            missing.
    """
    game = as_payoffs(payoffs)
    mixtures = tuple(to_distribution(each) for each in find(name)(game, tolerance))
    if name == RECTIFIED:
        return MetaStrategy(mixtures, rectified_targets(game, mixtures))
    return MetaStrategy(mixtures, tuple(Target(player, mixtures) for player in range(len(game))))


def find(name: str) -> Callable[[Numbers, float], Sequence[Numbers]]:
    """A meta-solver by its name.

    Raises:
        UsageError: there is none of that name.
    """
    if not isinstance(name, str) or name not in SOLVERS:
        near = get_close_matches(str(name), SOLVERS, 1)
        hint = f'; did you mean "{near[0]}"? There' if near else "; there"
        raise UsageError(f'there is no meta-solver "{name}"{hint} are {", ".join(SOLVERS)}')
    return SOLVERS[name]


def check_players(name: str, num_players: int) -> None:
    """Raise a `UsageError` where a meta-solver is unknown, or not for so many players."""
    find(name)
    if num_players != 2 and name in TWO_PLAYERS:
        others = ", ".join(each for each in SOLVERS if each not in TWO_PLAYERS)
        raise UsageError(
            f"{name} is for games of two players; this one has {num_players}. Take one of {others}"
        )


def check_zero_sum(name: str, payoffs: Numbers, tolerance: float = SUMS) -> None:
    """Raise a `UsageError` where a meta-solver is for zero-sum games, and this is none.

    Args:
        name: of the meta-solver.
        payoffs: [R, ...] what each player earns, by ends or by policies.
        tolerance: of a sum of zero.
    """
    if name in ZERO_SUM and not is_zero_sum(payoffs, tolerance):
        raise UsageError(
            f"{name} is for zero-sum games, and in this one payoffs do not add up to a constant; "
            "take nash"
        )


def nash(payoffs: Numbers, tolerance: float = SUMS) -> Mixtures:
    """A Nash equilibrium: of a zero-sum game by its linear program, else by Lemke and Howson.

    Args:
        payoffs: [2, n, m].
        tolerance: of a sum of zero.

    Raises:
        UsageError: there are not two players, or no equilibrium was found.
    """
    check_players("nash", len(payoffs))
    if is_zero_sum(payoffs, tolerance):
        return zero_sum.solve(_of_row(payoffs)).mixtures
    found = general_sum.solve(payoffs[0], payoffs[1])
    if not found.mixtures:
        raise UsageError(
            "no Nash equilibrium of the meta-game was found; take projected-replicator"
        )
    return found.mixtures


def max_entropy_nash(payoffs: Numbers, tolerance: float = SUMS) -> Mixtures:
    """The Nash equilibrium of a zero-sum game in which each mixture has the largest entropy.

    It is unique, and policies that earn alike share alike.

    Args:
        payoffs: [2, n, m].
        tolerance: of a sum of zero.

    Raises:
        UsageError: there are not two players, or the game is not zero-sum.
    """
    check_players("max-entropy-nash", len(payoffs))
    check_zero_sum("max-entropy-nash", payoffs, tolerance)
    return zero_sum.solve_max_entropy(_of_row(payoffs)).mixtures


def uniform(payoffs: Numbers, tolerance: float = SUMS) -> Mixtures:  # noqa: ARG001
    """All policies alike: best responses to it are fictitious play (Brown 1951)."""
    return tuple(np.full(count, 1.0 / count) for count in payoffs.shape[1:])


def alpha_rank_marginals(payoffs: Numbers, tolerance: float = SUMS) -> Mixtures:  # noqa: ARG001
    """The marginals of alpha-rank's masses (Omidshafiei et al. 2019; Muller et al. 2020).

    Args:
        payoffs: [R, n_1, ..., n_R].
        tolerance: not looked at.
    """
    players = range(len(payoffs))
    if payoffs[0].size == 1:
        return tuple(np.ones(1) for _ in players)
    masses = alpha_rank(payoffs).masses
    return tuple(masses.sum(tuple(p for p in players if p != player)) for player in players)


def projected_replicator(payoffs: Numbers, tolerance: float = SUMS) -> Mixtures:  # noqa: ARG001
    """Projected replicator dynamics with OpenSpiel's settings; see `replicate`."""
    return replicate(payoffs)


def replicate(
    payoffs: Numbers, iterations: int = ITERATIONS, step: float = STEP, floor: float = FLOOR
) -> Mixtures:
    """The mean of projected replicator dynamics from the uniform mixtures (Lanctot et al. 2017, 3).

    x <- P(x + step * x * (u(x) - x u(x))) with u(x) what each policy earns against the others'
    mixtures, and P the projection onto probabilities of `floor` at least. The mean is over all
    mixtures on the way, with the first.

    Args:
        payoffs: [R, n_1, ..., n_R].
        iterations: steps.
        step: dt.
        floor: gamma, the least probability of a policy.

    Raises:
        UsageError: so great a floor leaves no mixtures.
    """
    shape = payoffs.shape[1:]
    if not 0.0 <= floor * max(shape) <= 1.0:
        raise UsageError(f"floor is {floor}; of {max(shape)} policies each can have 1/{max(shape)}")
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


def rectified_targets(payoffs: Numbers, mixtures: Sequence[Numbers]) -> tuple[Target, ...]:
    """What rectified best responses are trained against: one for each policy that is played.

    Each trains against the Nash mixture of those opponents that it beats or draws with (Balduzzi et
    al. 2019, "Open-ended learning in symmetric zero-sum games", algorithm 4). In a game that is not
    symmetric a policy beats a profile of others in which it earns no less than the mean over the
    players, as OpenSpiel's `rectified_selector` has it. One that beats none of them trains against
    the mixture as it is.

    Args:
        payoffs: [2, n, m].
        mixtures: of Nash, by player.
    """
    ahead = payoffs >= payoffs.mean(0)
    found = []
    for player, other in ((0, 1), (1, 0)):
        beaten = np.moveaxis(ahead[player], player, 0)
        for policy in np.flatnonzero(mixtures[player] > SUPPORT):
            shares = np.where(beaten[policy], mixtures[other], 0.0)
            if shares.sum() <= 1e-12:
                shares = mixtures[other]
            both = [mixtures[0], mixtures[1]]
            both[other] = to_distribution(shares)
            found.append(Target(player, (both[0], both[1])))
    return tuple(found)


def to_beat(name: str, payoffs: Numbers, mixtures: Sequence[Numbers], target: Target) -> float:
    """What a best response to a target has to earn more than, to be something better.

    It is what the player's own mixture earns against the target. For the solvers of `OF_SETS` it is
    what the best of the player's policies does: against a Nash mixture that is the same; but
    against the part of it that one policy beats, this policy earns more than the mixture.

    Args:
        name: of the meta-solver.
        payoffs: [2, n, m].
        mixtures: of the meta-solver, by player.
        target: of the response.
    """
    player = target.player
    earned = np.moveaxis(payoffs[player], player, 0) @ target.mixtures[1 - player]
    return float(earned.max() if name in OF_SETS else earned @ mixtures[player])


def is_zero_sum(payoffs: Numbers, tolerance: float = SUMS) -> bool:
    """Whether what two players earn adds up to the same everywhere."""
    if len(payoffs) != 2:
        return False
    sums = payoffs.sum(0)
    spread = max(float(np.ptp(payoffs)), 1e-300)
    return bool(np.ptp(sums) <= tolerance * spread or np.ptp(sums) == 0.0)


def _of_row(payoffs: Numbers) -> Numbers:
    """[n, m]: what the row earns more than the column, halved; of a constant sum, zero-sum."""
    found: Numbers = (payoffs[0] - payoffs[1]) / 2.0
    return found


@njit(cache=True)
def _project(point: Numbers, floor: float) -> Numbers:
    """The nearest point [n] whose coordinates add up to 1 and are `floor` at least.

    Wang and Carreira-Perpinan 2013, "Projection onto the probability simplex", algorithm 1, moved
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
    """[R, max(n_r)]: the mean of all mixtures on the way; payoffs [R, P] of profiles [P, R]."""
    players, most = len(payoffs), counts.max()
    mixtures = np.zeros((players, most))
    for player in range(players):
        mixtures[player, : counts[player]] = 1.0 / counts[player]
    total = mixtures.copy()
    worth = np.zeros((players, most))
    for _ in range(iterations):
        worth[:] = 0.0
        for profile in range(len(profiles)):
            for player in range(players):
                likely = payoffs[player, profile]
                for other in range(players):
                    if other != player:
                        likely *= mixtures[other, profiles[profile, other]]
                worth[player, profiles[profile, player]] += likely
        for player in range(players):
            count = counts[player]
            own = mixtures[player, :count].copy()
            mean = 0.0
            for policy in range(count):
                mean += own[policy] * worth[player, policy]
            for policy in range(count):
                own[policy] += step * own[policy] * (worth[player, policy] - mean)
            mixtures[player, :count] = _project(own, floor)
        total += mixtures
    return total / (iterations + 1)


RECTIFIED = "rectified-nash"
TWO_PLAYERS = ("nash", "max-entropy-nash", RECTIFIED)
"""Those for games of two players."""
ZERO_SUM = ("max-entropy-nash",)
"""Those for games in which what players earn adds up to a constant."""
OF_SETS = ("nash", "max-entropy-nash", RECTIFIED)
"""Those for which a policy that is there twice is as if it were there once: where all best
responses are known, nothing changes any more."""
SOLVERS: dict[str, Callable[[Numbers, float], Sequence[Numbers]]] = {
    "nash": nash,
    "max-entropy-nash": max_entropy_nash,
    "uniform": uniform,
    "alpha-rank": alpha_rank_marginals,
    "projected-replicator": projected_replicator,
    RECTIFIED: nash,
}
"""By name, from payoffs [R, n_1, ..., n_R] and a tolerance to mixtures."""
