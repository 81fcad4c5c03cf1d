"""The equilibrium of an empirical game with roles, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from remuda.analysis.equilibria import line_ups, role_symmetric
from remuda.analysis.equilibria.regret import Solution
from remuda.analysis.equilibria.uncertain_equilibrium import USED, UncertainEquilibrium, summed
from remuda.analysis.payoffs.empirical_game import EmpiricalGame
from remuda.analysis.payoffs.game_draws import draws, roots_of, scales
from remuda.types import Numbers

SOLVED = 20  # draws that are solved; the regret of the answer is computed in all draws
LARGE = 20_000  # line-ups times deviations from which on the equilibrium is a coarse one
RESOLVED = 50  # draws above a limit, for a standard error of 14% of their share
FEW = 256  # draws after which they may end
PIECE, SIZE = 4096, 2_000_000  # most draws, and most normal numbers, at once
ROLE_SYMMETRIC, CORRELATED, COARSE = "role-symmetric", "correlated", "coarse correlated"

Solver = Callable[[EmpiricalGame], Solution]
Regret = Callable[[Numbers], Numbers]  # from mean returns [P, S] to the answer's regrets [R]


def game_equilibrium(
    game: EmpiricalGame, rng: np.random.Generator, samples: int, seconds: float = 10.0
) -> UncertainEquilibrium:
    """Return an equilibrium of the mean returns, its verified regret, and their uncertainty.

    - If all line-ups were played and some role has several seats: a Nash equilibrium in which the
      seats of a role play the same mixture.
    - Otherwise the correlated equilibrium of the largest entropy over the line-ups that were
      played; of a large game the coarse one.

    `seconds`: limit of the search for a Nash equilibrium; each draw has a twentieth of it.
    """
    if game.is_whole and any(role.seats > 1 for role in game.roles):
        kind = ROLE_SYMMETRIC
        answer = role_symmetric.solve(game, rng, seconds=seconds)
        likely = game.chances(answer.mixtures)
        regret = _regret_of_mixtures(game, answer, likely)

        def solver(drawn: EmpiricalGame) -> Solution:
            return role_symmetric.solve(drawn, rng, starts=1, seconds=seconds / SOLVED)
    else:
        swaps = line_ups.Swaps.of(game)
        coarse = swaps.line_ups.size > LARGE
        kind = COARSE if coarse else CORRELATED
        answer = line_ups.solve(game, coarse, swaps)
        joint = answer.joint
        assert joint is not None

        def regret(means: Numbers) -> Numbers:
            found = np.zeros(len(game.roles))
            of_swaps = line_ups.regret(swaps, swaps.gains(means), joint, coarse)
            found[: len(of_swaps)] = of_swaps
            return found

        def solver(drawn: EmpiricalGame) -> Solution:
            return line_ups.solve(drawn, coarse, swaps)

    return _gathered(game, kind, answer, regret, solver, rng, samples)


def chance_above(
    game: EmpiricalGame,
    answer: Solution,
    limit: float,
    small: float,
    rng: np.random.Generator,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[float, float]:
    """Return the mean regret of mixtures under draws of the payoffs, and its chance above `limit`.

    The chance is the share of draws, with one more draw above (Davison and Hinkley 1997, "Bootstrap
    methods and their application", section 4.2). There are enough draws to compare it with the
    probability `small`: they end once that many are above that it must be larger, or
    at `stop`.

    All line-ups of the game were played.
    """
    likely, means = game.chances(answer.mixtures), np.nan_to_num(game.means)
    over_mixture = np.eye(game.num_strategies)
    for columns, mixture in zip(game.columns, answer.mixtures, strict=True):
        over_mixture[columns, columns] -= mixture
    gains = over_mixture @ (likely * means).sum(0)
    noise = (over_mixture * likely[:, None]) @ roots_of(game)  # [P, S, S] of the gains
    varies = noise.any((1, 2))
    noise, counts = noise[varies], game.counts[varies]
    at_once = max(1, min(PIECE, SIZE // max(noise[:, 0].size, 1)))
    above = number = 0
    total, wanted = 0.0, math.ceil(RESOLVED / small)
    while number < wanted and above < RESOLVED:
        count = min(at_once, wanted - number, max(number, FEW))
        scaled = rng.standard_normal((count, len(noise), game.num_strategies))
        scaled *= scales(counts, count, rng)[:, :, None]
        best = (gains + np.einsum("npk,psk->ns", scaled, noise, optimize=True)).max(1)
        above, number = above + int((best > limit).sum()), number + count
        total += float(best.sum())
        if stop():
            break
    return total / number, (above + 1) / (number + 1)


def _regret_of_mixtures(game: EmpiricalGame, answer: Solution, likely: Numbers) -> Regret:
    def regret(means: Numbers) -> Numbers:
        gained = np.where(likely > 0.0, likely * means, 0.0).sum(0)
        return np.array(
            [
                gained[columns].max() - gained[columns] @ mixture
                for columns, mixture in zip(game.columns, answer.mixtures, strict=True)
            ]
        )

    return regret


def _gathered(
    game: EmpiricalGame,
    kind: str,
    answer: Solution,
    regret: Regret,
    solver: Solver,
    rng: np.random.Generator,
    samples: int,
) -> UncertainEquilibrium:
    """Summarise the equilibria of the first draws, and the answer's regrets in all draws."""
    found, regrets = list[Solution](), []
    for drawn in draws(game, samples, rng):
        regrets.append(regret(drawn))
        if len(found) < SOLVED:
            found.append(solver(replace(game, means=drawn)))
    masses, in_support = [], []
    for role in range(len(game.roles)):
        mixed = np.array([each.mixtures[role] for each in found])
        masses.append(summed(mixed))
        in_support.append((mixed > USED).mean(0))
    return UncertainEquilibrium(
        kind,
        tuple(role.strategies for role in game.roles),
        len(game.roles) == 1,
        answer,
        tuple(masses),
        tuple(in_support),
        summed(np.array([each.values for each in found])),
        summed(np.array(regrets)),
        samples,
        max(samples - len(found), 0),
    )
