"""Projected replicator dynamics, a meta-solver for any number of players."""

from __future__ import annotations

import math

import numpy as np

from remuda.analysis.equilibria.regret import to_distribution
from remuda.errors import UsageError
from remuda.solvers.psro.meta_strategy import Mixtures
from remuda.system.kernels import njit
from remuda.types import Integers, Numbers

ITERATIONS, STEP, FLOOR = 100_000, 1e-3, 1e-6  # OpenSpiel's, in `projected_replicator_dynamics`


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
