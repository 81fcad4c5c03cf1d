"""Correlated and coarse correlated equilibria of games of any number of roles.

A joint distribution of all roles' strategies is a correlated equilibrium if no role gains by
deviating after it learns its own strategy (Aumann 1974, "Subjectivity and correlation in randomized
strategies"). It is a coarse correlated equilibrium if no role gains by deviating before it learns
its strategy (Moulin and Vial 1978, "Strategically zero-sum games"). Both sets are polytopes. A
linear program finds an equilibrium with the largest welfare. Newton's method finds the equilibrium
with the largest entropy, which is unique (Ortiz, Schapire and Kakade 2007, "Maximum entropy
correlated equilibria").
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy import sparse

from remuda.analysis.equilibria.maximum_entropy import maximize, solve_program
from remuda.analysis.equilibria.regret import (
    Solution,
    as_payoffs,
    correlated_regret,
    marginals,
    to_distribution,
)
from remuda.errors import UsageError
from remuda.types import Numbers

Choice = Literal["entropy", "welfare"]
ENOUGH = 1e-9  # largest accepted regret, relative to the range of the payoffs
SIZE = 10_000_000  # most joint strategies times deviations; more need minutes and many gigabytes


def solve(payoffs: npt.ArrayLike, choose: Choice = "entropy", coarse: bool = False) -> Solution:
    """Return the correlated equilibrium with the largest entropy, or one with the largest welfare.

    If the search for the largest entropy does not reach a regret below 1e-9 of the payoff range,
    the solution has the largest welfare, and its note says so.

    `payoffs`: [R, n_1, ..., n_R]; `coarse`: roles deviate before they learn their strategy.
    """
    game = as_payoffs(payoffs)
    if choose not in get_args(Choice):
        raise UsageError(f'choose is "{choose}"; it may be {" or ".join(get_args(Choice))}')
    departures = sum(size if coarse else size * (size - 1) for size in game.shape[1:])
    if game[0].size * departures > SIZE:
        raise UsageError(
            f"payoffs: {game[0].size} joint strategies with {departures} deviations are "
            f"too many (the product must be at most {SIZE}); leave out strategies"
        )
    scaled = _scaled(game)
    losses = constraints(scaled, coarse)
    note = ""
    if choose == "entropy":
        highest = maximize(losses)
        if highest is not None:
            best = _answer(game, highest[0], coarse, "")
            if (best.regret <= ENOUGH * _range(game)).all():
                return best
        note = (
            "the equilibrium of the largest entropy was not found; this one has the largest welfare"
        )
    found = solve_program(
        -scaled.sum(0).reshape(-1),
        -sparse.csr_array(losses) if losses.size else None,
        np.zeros(len(losses)) if losses.size else None,
        np.ones((1, losses.shape[1])),
        [1.0],
        (0.0, None),
    )
    return _answer(game, found.x, coarse, note)


def constraints(payoffs: Numbers, coarse: bool) -> Numbers:
    """Return the loss from each deviation in each joint strategy: [K, n_1 * ... * n_R].

    At an equilibrium the expected losses are at least 0. A coarse deviation is a role and an
    alternative strategy; any other deviation also depends on the recommended strategy.

    `payoffs`: [R, n_1, ..., n_R].
    """
    shape = payoffs.shape[1:]
    found = []
    for role, size in enumerate(shape):
        # [n_role, ...]: the role's payoffs, with its own strategy first.
        instead = np.moveaxis(payoffs[role], role, 0)
        for alternative in range(size):
            lost = payoffs[role] - np.expand_dims(instead[alternative], role)
            if coarse:
                found.append(lost)
                continue
            for recommended in range(size):
                if recommended != alternative:
                    only = np.zeros(shape)
                    np.moveaxis(only, role, 0)[recommended] = np.moveaxis(lost, role, 0)[
                        recommended
                    ]
                    found.append(only)
    return np.array(found).reshape(len(found), payoffs[0].size)


def _answer(game: Numbers, probabilities: Numbers, coarse: bool, note: str) -> Solution:
    joint = to_distribution(probabilities).reshape(game.shape[1:])
    values = game.reshape(len(game), -1) @ joint.reshape(-1)
    regret = correlated_regret(game, joint, coarse)
    if not note and (regret > ENOUGH * _range(game)).any():
        note = f"its regret is {regret.max():.1e}: the payoffs differ too little for float64"
    return Solution(marginals(joint), values, regret, note, joint)


def _range(game: Numbers) -> float:
    """Return the largest range of a role's payoffs; 1 if each role's are all equal."""
    axes = tuple(range(1, game.ndim))
    return float((game.max(axes) - game.min(axes)).max()) or 1.0


def _scaled(game: Numbers) -> Numbers:
    axes = tuple(range(1, game.ndim))
    found: Numbers = (game - game.min(axes, keepdims=True)) / _range(game)
    return found
