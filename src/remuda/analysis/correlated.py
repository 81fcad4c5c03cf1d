"""Correlated and coarse correlated equilibria of games of any number of roles.

A joint distribution of all roles' strategies is a correlated equilibrium if no role that is told
its own strategy gains by playing another (Aumann 1974, "Subjectivity and correlation in randomized
strategies"), and a coarse one if no role gains by a strategy that it chooses before it is told
(Moulin and Vial 1978, "Strategically zero-sum games"). Both make polytopes: the largest welfare is
found by a linear program, and the largest entropy, which is unique, by Newton's method (Ortiz,
Schapire and Kakade 2007, "Maximum entropy correlated equilibria").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog

from remuda.analysis.maximum_entropy import TIGHT, maximize
from remuda.analysis.payoff import Numbers
from remuda.analysis.regret import as_payoffs, correlated_regret, to_distribution
from remuda.errors import UsageError

Choice = Literal["entropy", "welfare"]
ENOUGH = 1e-9
"""The regret of an answer, by the range of the payoffs."""
SIZE = 10_000_000
"""Numbers in the constraints, at most: joint strategies by departures. Answers take minutes beyond,
and memory of many gigabytes."""


@dataclass(frozen=True)
class Correlated:
    """A correlated equilibrium, or a coarse one.

    Attributes:
        joint: [n_1, ..., n_R] probabilities.
        values: [R] what each role earns.
        regret: [R] what each could gain by departing; computed from the payoffs.
        entropy: of `joint`, in nats.
        coarse: which kind it is.
        note: what there is to know besides; empty: nothing.
    """

    joint: Numbers
    values: Numbers
    regret: Numbers
    entropy: float
    coarse: bool
    note: str = ""

    @property
    def welfare(self) -> float:
        """What all roles earn together."""
        return float(self.values.sum())

    @property
    def marginals(self) -> tuple[Numbers, ...]:
        """By role, [n_r] how often it plays each of its strategies."""
        return marginals(self.joint)

    def as_summary(self) -> dict[str, object]:
        """Plain data."""
        return {
            "kind": "coarse correlated" if self.coarse else "correlated",
            "joint": self.joint.tolist(),
            "marginals": [marginal.tolist() for marginal in self.marginals],
            "values": self.values.tolist(),
            "welfare": self.welfare,
            "regret": self.regret.tolist(),
            "entropy": self.entropy,
            "note": self.note,
        }


def marginals(joint: Numbers) -> tuple[Numbers, ...]:
    """By role, [n_r] how often it plays each of its strategies in a joint distribution."""
    axes = range(joint.ndim)
    return tuple(joint.sum(tuple(axis for axis in axes if axis != role)) for role in axes)


def solve(payoffs: npt.ArrayLike, choose: Choice = "entropy", coarse: bool = False) -> Correlated:
    """The correlated equilibrium of the largest entropy, or one of the largest welfare.

    Should the largest entropy not be found to within a regret of 1e-9 of the range of the payoffs,
    the answer is one of the largest welfare, and its note says so.

    Args:
        payoffs: [R, n_1, ..., n_R] what each role earns.
        choose: `entropy` (unique), or `welfare`: what all roles earn together.
        coarse: whether roles decide to depart before they are told their strategy.

    Raises:
        UsageError: the payoffs are of another shape, not finite, or too many.
    """
    game = as_payoffs(payoffs)
    if choose not in get_args(Choice):
        raise UsageError(f'choose is "{choose}"; it may be {" or ".join(get_args(Choice))}')
    departures = sum(size if coarse else size * (size - 1) for size in game.shape[1:])
    if game[0].size * departures > SIZE:
        raise UsageError(
            f"payoffs: {game[0].size} joint strategies with {departures} departures are too many "
            f"(their product is to be {SIZE} at most); leave out strategies"
        )
    scaled = _scaled(game)
    losses = constraints(scaled, coarse)
    note = ""
    if choose == "entropy":
        found = maximize(losses)
        if found is not None:
            best = _answer(game, found[0], coarse, "")
            if (best.regret <= ENOUGH * _range(game)).all():
                return best
        note = "the one of the largest entropy was not found; this is one of the largest welfare"
    return _answer(game, _most_welfare(scaled, losses), coarse, note)


def constraints(payoffs: Numbers, coarse: bool) -> Numbers:
    """What departures lose, by joint strategy: [K, n_1 * ... * n_R], in an equilibrium 0 at least.

    A row for each role and strategy that it might play instead; if not coarse, for each strategy
    that it is told besides.

    Args:
        payoffs: [R, n_1, ..., n_R].
        coarse: as of `solve`.
    """
    shape = payoffs.shape[1:]
    found = []
    for role, size in enumerate(shape):
        # [n_role, ...]: what is lost by playing another strategy in each cell.
        instead = np.moveaxis(payoffs[role], role, 0)
        for other in range(size):
            lost = payoffs[role] - np.expand_dims(instead[other], role)
            if coarse:
                found.append(lost)
                continue
            for told in range(size):
                if told != other:
                    only = np.zeros(shape)
                    np.moveaxis(only, role, 0)[told] = np.moveaxis(lost, role, 0)[told]
                    found.append(only)
    return np.array(found).reshape(len(found), payoffs[0].size)


def _most_welfare(game: Numbers, losses: Numbers) -> Numbers:
    cells = losses.shape[1]
    found = linprog(
        -game.sum(0).reshape(-1),
        -sparse.csr_array(losses) if losses.size else None,
        np.zeros(len(losses)) if losses.size else None,
        np.ones((1, cells)),
        [1.0],
        (0.0, None),
        method="highs",
        options=TIGHT,
    )
    if found.status != 0:
        raise UsageError(
            f"payoffs: their linear program has no answer ({found.message}); look whether a few "
            "of them are larger than all others by many orders"
        )
    answer: Numbers = found.x
    return answer


def _answer(game: Numbers, probabilities: Numbers, coarse: bool, note: str) -> Correlated:
    joint = to_distribution(probabilities).reshape(game.shape[1:])
    earned = game.reshape(len(game), -1) @ joint.reshape(-1)
    regret = correlated_regret(game, joint, coarse)
    if not note and (regret > ENOUGH * _range(game)).any():
        note = f"its regret is {regret.max():.1e}: the payoffs cannot be told apart any better"
    positive = joint[joint > 0.0]
    entropy = max(0.0, -float((positive * np.log(positive)).sum()))
    return Correlated(joint, earned, regret, entropy, coarse, note)


def _range(game: Numbers) -> float:
    """The largest range of a role's payoffs; 1 where they are all alike."""
    axes = tuple(range(1, game.ndim))
    return float((game.max(axes) - game.min(axes)).max()) or 1.0


def _scaled(game: Numbers) -> Numbers:
    """The payoffs less what each role earns at least, by the range that all roles share."""
    axes = tuple(range(1, game.ndim))
    scaled: Numbers = (game - game.min(axes, keepdims=True)) / _range(game)
    return scaled
