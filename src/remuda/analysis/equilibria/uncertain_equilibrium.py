"""The equilibrium of payoffs by meeting, with its uncertainty.

A few lucky matches may put a strategy into the equilibrium of the mean payoffs. Therefore payoffs
are also drawn from their posterior (`Payoffs.sample`), and each draw is solved like the means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from remuda.analysis.as_json import as_json
from remuda.analysis.equilibria import general_sum, zero_sum
from remuda.analysis.equilibria.regret import Solution, regret, values
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.errors import UsageError
from remuda.types import Numbers

SAMPLES = 1000  # draws of the payoffs
USED = 1e-6  # strategies with a smaller probability are not in the support
LISTED = 5_000  # most pairs of supports for which all equilibria are enumerated, to choose one
CHUNK = 2_000_000  # payoffs drawn per batch
ZERO_SUM = "zero-sum"  # the kind of a zero-sum game of two roles
INTERVAL = (0.025, 0.975)  # the quantiles of a 95% interval


@dataclass(frozen=True)
class UncertainEquilibrium:
    """The equilibrium of the mean payoffs, and the equilibria of payoff draws."""

    kind: str  # how the game was solved, such as `zero-sum`, `general-sum` or `correlated`
    strategies: tuple[tuple[str, ...], ...]  # by role, names of its strategies
    symmetric: bool  # whether both roles have the same strategies and the same mixture
    answer: Solution  # of the mean payoffs
    masses: tuple[Numbers, ...]  # by role, [3, n_r] mean and 95% interval of probabilities
    in_support: tuple[Numbers, ...]  # by role, [n_r] share of draws that use the strategy
    values: Numbers  # [3, R] mean and 95% interval of payoffs (zero-sum: `_value_intervals`)
    regrets: Numbers  # [3, R] mean and 95% interval of the regret of `answer` under the draws
    samples: int
    unsolved: int  # draws for which no equilibrium was found; only `regrets` includes them

    def as_summary(self) -> dict[str, object]:
        """Return JSON values; a symmetric game lists only the first role's strategies."""
        roles = [
            [
                {
                    "strategy": name,
                    "mass": float(self.answer.mixtures[role][place]),
                    "mean": as_json(self.masses[role][0, place]),
                    "interval": as_json(self.masses[role][1:, place]),
                    "in_support": as_json(self.in_support[role][place]),
                }
                for place, name in enumerate(names)
            ]
            for role, names in enumerate(self.strategies)
        ]
        joint = self.answer.joint
        return {
            "kind": self.kind,
            "symmetric": self.symmetric,
            "roles": roles[:1] if self.symmetric else roles,
            "joint": None if joint is None else joint.tolist(),
            "values": self.answer.values.tolist(),
            "values_mean": as_json(self.values[0]),
            "values_intervals": as_json(self.values[1:].T),
            "regret": self.answer.regret.tolist(),
            "regret_if_drawn": as_json(self.regrets[0]),
            "regret_if_drawn_intervals": as_json(self.regrets[1:].T),
            "samples": self.samples,
            "unsolved": self.unsolved,
            "note": self.answer.note,
        }


def nash(
    payoffs: Payoffs,
    rng: np.random.Generator,
    samples: int = SAMPLES,
    seconds: float = 10.0,
    drawn: Iterable[Numbers] | None = None,
) -> UncertainEquilibrium:
    """Return the equilibrium of the mean payoffs, with its uncertainty.

    - Zero-sum: the equilibrium with the largest entropy.
    - Other games: the equilibrium with the largest welfare, if all equilibria can be
      enumerated (in a symmetric game, it has equal mixtures). Otherwise Lemke-Howson finds one.

    If a game has several equilibria, the selection may differ between draws.

    - `seconds`: limit of the search in a large general-sum game; each draw has a tenth of it.
    - `drawn`: draws of the payoffs, [2, n, m] each; None: `samples` of `Payoffs.sample`.
    """
    if samples < 1:
        raise UsageError(f"samples is {samples}; at least one draw of the payoffs is needed")
    payoffs = payoffs.completed()
    payoffs.check_whole()
    kind, solver = _solver(payoffs)
    answer = solver(payoffs.means, seconds)
    if answer is None:
        raise UsageError(
            f"no equilibrium was found within {seconds:g} s; raise `seconds`, or leave out "
            "strategies"
        )
    found: list[Solution] = []
    regrets, values_of_answer = [], []
    last, latest = payoffs.means, answer
    for draw in _draws(payoffs, samples, rng) if drawn is None else drawn:
        regrets.append(regret(draw, answer.mixtures))
        if kind == ZERO_SUM:
            values_of_answer.append(values(draw, answer.mixtures))
        if not np.array_equal(draw, last):
            solved = solver(draw, seconds / 10.0)
            if solved is None:
                continue
            last, latest = draw, solved
        found.append(latest)
    gathered = _gathered(payoffs, kind, answer, found, np.array(regrets))
    if kind != ZERO_SUM:
        return gathered
    intervals = _value_intervals(answer.values, np.array(values_of_answer))
    return replace(gathered, values=np.vstack([gathered.values[:1], intervals]))


def _value_intervals(at_means: Numbers, drawn: Numbers) -> Numbers:
    """Return 95% intervals of the value of a zero-sum game: [2, R].

    Quantiles over draws are not valid intervals. The equilibrium of a draw exploits noise, which
    moves the value further than its true error, so quantiles cover the truth in only 84% of cases.
    To first order, noise changes the value by as much as it changes the payoffs of the optimal
    mixtures (Mills 1956, "Marginal values of matrix games and linear programs", theorem 1). So the
    value is as uncertain as these payoffs.

    `at_means`: [R] payoffs of the mean game's equilibrium; `drawn`: [S, R] payoffs of the same
    mixtures in each draw.
    """
    # Draws deviate symmetrically: use both sides to estimate the half-width.
    half = np.quantile(np.abs(drawn - at_means), INTERVAL[1] - INTERVAL[0], axis=0)
    return np.stack([at_means - half, at_means + half])


def _gathered(
    payoffs: Payoffs, kind: str, answer: Solution, found: list[Solution], regrets: Numbers
) -> UncertainEquilibrium:
    """Summarise the equilibria of the draws; `regrets` [S, R] covers all draws."""
    masses, in_support = [], []
    for role, names in enumerate(payoffs.strategies):
        mixed = np.array([each.mixtures[role] for each in found]).reshape(-1, len(names))
        masses.append(summed(mixed))
        in_support.append((mixed > USED).mean(0) if len(mixed) else np.full(len(names), np.nan))
    payoffs_of_draws = np.array([each.values for each in found]).reshape(-1, 2)
    return UncertainEquilibrium(
        kind,
        payoffs.strategies,
        payoffs.symmetric,
        answer,
        tuple(masses),
        tuple(in_support),
        summed(payoffs_of_draws),
        summed(regrets),
        len(regrets),
        len(regrets) - len(found),
    )


def _solver(payoffs: Payoffs) -> tuple[str, Callable[[Numbers, float], Solution | None]]:
    symmetric = payoffs.symmetric
    if payoffs.is_zero_sum:
        return ZERO_SUM, lambda game, _: _zero_sum(game, symmetric)
    return "general-sum", lambda game, seconds: _general_sum(game, symmetric, seconds)


def _zero_sum(game: Numbers, symmetric: bool) -> Solution:
    # The two payoffs may add up to a constant other than zero, as win rates do.
    matrix = (game[0] - game[1]) / 2.0
    if symmetric:
        matrix = (matrix - matrix.T) / 2.0
    found = zero_sum.solve_max_entropy(matrix)
    mixtures = (found.mixtures[0],) * 2 if symmetric else found.mixtures
    note = "the only equilibrium" if found.unique else "one of several, with the largest entropy"
    return Solution(mixtures, values(game, mixtures), regret(game, mixtures), found.note or note)


def _general_sum(game: Numbers, symmetric: bool, seconds: float) -> Solution | None:
    a, b = game
    if symmetric:
        a = (a + b.T) / 2.0
        b = a.T
    if not general_sum.can_enumerate(a.shape[0], a.shape[1], LISTED):
        found = general_sum.solve(a, b, seconds, symmetric)
        if found is None:
            return None
        return replace(found, note=f"there may be others; found by {found.note}")
    listed = general_sum.all_equilibria(a, b)
    if not len(listed):
        return None
    welfare = listed.values.sum(1)
    if symmetric:
        equal = np.abs(listed.rows - listed.columns).max(1) <= USED
        welfare = np.where(equal, welfare, -np.inf)
    best = int((welfare >= welfare.max() - 1e-9 * (1.0 + abs(welfare.max()))).argmax())
    mixtures = listed.rows[best], listed.columns[best]
    chosen = "; this one has the largest welfare"
    unique = len(listed) == 1 and not listed.infinite
    return Solution(
        mixtures,
        listed.values[best],
        listed.regrets[best],
        listed.note
        + ("" if unique else chosen + (" among those with equal mixtures" if symmetric else "")),
    )


def _draws(payoffs: Payoffs, samples: int, rng: np.random.Generator) -> Iterator[Numbers]:
    """Draw [2, n, m] payoffs, in batches if the game is large."""
    at_once = max(1, CHUNK // payoffs.means.size)
    for done in range(0, samples, at_once):
        yield from payoffs.sample(min(at_once, samples - done), rng)


def summed(drawn: Numbers) -> Numbers:
    """Return the mean and interval, [3, n], of draws [S, n]; NaN without draws."""
    if not len(drawn):
        return np.full((3, drawn.shape[1]), np.nan)
    return np.vstack([drawn.mean(0, keepdims=True), np.quantile(drawn, INTERVAL, 0)])
