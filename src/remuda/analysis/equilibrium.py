"""The equilibrium of an empirical game, and how it may be another one, given what was seen.

An equilibrium of mean payoffs says nothing without their uncertainty: a strategy may be in it by
the luck of a few matches. Here the payoffs are drawn as they may be (`Payoffs.sample`), and each
draw is solved as the means are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from remuda.analysis import correlated, general_sum, zero_sum
from remuda.analysis.payoff import Numbers, Payoffs
from remuda.analysis.plain import plain
from remuda.analysis.regret import correlated_regret, regret, values
from remuda.errors import UsageError
from remuda.types import Bools

SAMPLES = 1000
"""Draws of the payoffs."""
USED = 1e-6
"""A strategy that is played less often than this is not in the support."""
LISTED = 5_000
"""Pairs of supports up to which all equilibria of a game are listed, to choose from."""
CHUNK = 2_000_000
"""Numbers in the draws that are made at once."""
ZERO_SUM = "zero-sum"
"""The kind of a game of two roles in which one earns what the other loses."""
INTERVAL = (0.025, 0.975)
"""The quantiles of an interval of 95%."""


@dataclass(frozen=True)
class Answer:
    """An equilibrium of one game.

    Attributes:
        mixtures: by role, [n_r] how often it plays each of its strategies.
        joint: [n_1, ..., n_R] of a correlated equilibrium; None: the roles play independently.
        values: [R] what each role earns.
        regret: [R] what each could gain by departing; computed from the payoffs.
        note: how it was chosen, and what there is to know besides.
    """

    mixtures: tuple[Numbers, ...]
    joint: Numbers | None
    values: Numbers
    regret: Numbers
    note: str


@dataclass(frozen=True)
class Equilibrium:
    """The equilibrium of the mean payoffs, and those of payoffs as they may be.

    Attributes:
        kind: `zero-sum`, `general-sum` or `correlated`: how the game was solved.
        strategies: by role, their names.
        symmetric: whether both of two roles are one; then both mix alike.
        answer: of the means.
        masses: by role, [3, n_r] of each strategy's probability in the equilibria of the draws:
            the mean, and the interval of 95%.
        in_support: by role, [n_r] the share of draws in whose equilibrium a strategy is.
        values: [3, R] of what each role earns in them: likewise; of a zero-sum game the interval
            is the one of `_value_intervals`, which holds the value of the game in 95% of cases.
        regrets: [3, R] of what each role could gain by departing from the equilibrium of the
            means, if the payoffs are those of a draw: likewise.
        samples: draws.
        unsolved: draws for which no equilibrium was found; they are in `regrets` alone.
    """

    kind: str
    strategies: tuple[tuple[str, ...], ...]
    symmetric: bool
    answer: Answer
    masses: tuple[Numbers, ...]
    in_support: tuple[Numbers, ...]
    values: Numbers
    regrets: Numbers
    samples: int
    unsolved: int

    def as_summary(self) -> dict[str, object]:
        """Plain data; of a symmetric game the strategies of one role, which are those of both."""
        roles = [
            [
                {
                    "strategy": name,
                    "mass": float(self.answer.mixtures[role][place]),
                    "mean": plain(self.masses[role][0, place]),
                    "interval": plain(self.masses[role][1:, place]),
                    "in_support": plain(self.in_support[role][place]),
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
            "values_mean": plain(self.values[0]),
            "values_intervals": plain(self.values[1:].T),
            "regret": self.answer.regret.tolist(),
            "regret_if_drawn": plain(self.regrets[0]),
            "regret_if_drawn_intervals": plain(self.regrets[1:].T),
            "samples": self.samples,
            "unsolved": self.unsolved,
            "note": self.answer.note,
        }


def nash(
    payoffs: Payoffs,
    rng: np.random.Generator,
    samples: int = SAMPLES,
    seconds: float = 10.0,
) -> Equilibrium:
    """The equilibrium of a game's mean payoffs, and how sure it is.

    Of a zero-sum game of two roles it is the one of the largest entropy. Of another game of two
    roles it is the one in which both earn the most together, if the game is small enough to list
    them all (of a symmetric game: of those in which both roles mix alike); else the one that Lemke
    and Howson's algorithm finds. Of more roles it is the correlated one of the largest entropy.
    Each draw of the payoffs is solved likewise. Where a game has several equilibria, part of what
    the draws differ in is which of them is chosen.

    Args:
        payoffs: of any number of roles.
        rng: what the draws are made with.
        samples: draws, one at least.
        seconds: after which the search in a large general-sum game is given up; of a draw, after a
            tenth of that.

    Raises:
        UsageError: a cell was never played, an argument cannot be used, or no equilibrium of the
            means was found.
    """
    if samples < 1:
        raise UsageError(f"samples is {samples}; at least one draw of the payoffs is needed")
    payoffs = payoffs.completed()
    payoffs.check_whole()
    kind, solver = _solver(payoffs)
    answer = solver(payoffs.means, seconds)
    if answer is None:
        raise UsageError(
            f"no equilibrium was found within {seconds:g} s; give more `seconds`, or leave out "
            "strategies"
        )
    found: list[Answer] = []
    regrets, earned = [], []
    last, latest = payoffs.means, answer
    for draw in _draws(payoffs, samples, rng):
        regrets.append(_regret(draw, answer))
        if kind == ZERO_SUM:
            earned.append(values(draw, answer.mixtures))
        if not np.array_equal(draw, last):
            solved = solver(draw, seconds / 10.0)
            if solved is None:
                continue
            last, latest = draw, solved
        found.append(latest)
    gathered = _gathered(payoffs, kind, answer, found, np.array(regrets))
    if kind != ZERO_SUM:
        return gathered
    intervals = _value_intervals(answer.values, np.array(earned))
    return replace(gathered, values=np.vstack([gathered.values[:1], intervals]))


def _value_intervals(at_means: Numbers, earned: Numbers) -> Numbers:
    """Between what the value of a zero-sum game lies with a probability of 95%: [2, R].

    Values of draws do not tell that: each role's best answer to the noise of a draw moves the value
    by more than the truth is away, to either side, and the interval of their quantiles holds the
    truth in 84% of cases. To the first order noise moves the value by what it adds to the payoffs
    of the optimal mixtures (Mills 1956, "Marginal values of matrix games and linear programs",
    theorem 1), so that the value at the means is as uncertain as what these mixtures earn.

    Args:
        at_means: [R] what the equilibrium of the means earns at the means.
        earned: [S, R] what it earns in each draw.
    """
    # What is drawn lies as far to one side as to the other: both tell how far.
    half = np.quantile(np.abs(earned - at_means), INTERVAL[1] - INTERVAL[0], axis=0)
    return np.stack([at_means - half, at_means + half])


def _gathered(
    payoffs: Payoffs, kind: str, answer: Answer, found: list[Answer], regrets: Numbers
) -> Equilibrium:
    """What the draws' equilibria come to; `regrets` [S, R] is of all draws."""
    masses, in_support = [], []
    for role, names in enumerate(payoffs.strategies):
        mixed = np.array([each.mixtures[role] for each in found]).reshape(-1, len(names))
        masses.append(_summed(mixed))
        in_support.append(_mean(mixed > USED))
    earned = np.array([each.values for each in found]).reshape(-1, payoffs.num_roles)
    return Equilibrium(
        kind,
        payoffs.strategies,
        payoffs.symmetric,
        answer,
        tuple(masses),
        tuple(in_support),
        _summed(earned),
        _summed(regrets),
        len(regrets),
        len(regrets) - len(found),
    )


Solver = Callable[[Numbers, float], Answer | None]


def _solver(payoffs: Payoffs) -> tuple[str, Solver]:
    """How a game is solved: by the kind that it is."""
    if payoffs.num_roles != 2:
        return "correlated", _correlated
    symmetric = payoffs.symmetric
    if payoffs.is_zero_sum:
        return ZERO_SUM, lambda game, _: _zero_sum(game, symmetric)
    return "general-sum", lambda game, seconds: _general_sum(game, symmetric, seconds)


def _zero_sum(game: Numbers, symmetric: bool) -> Answer:
    # What both earn may add up to something else than zero, as shares of wins do.
    matrix = (game[0] - game[1]) / 2.0
    if symmetric:
        matrix = (matrix - matrix.T) / 2.0
    found = zero_sum.solve_max_entropy(matrix)
    mixtures = (found.mixtures[0],) * 2 if symmetric else found.mixtures
    note = "the only equilibrium" if found.unique else "of several, the one of the largest entropy"
    return Answer(
        mixtures, None, values(game, mixtures), regret(game, mixtures), found.note or note
    )


def _general_sum(game: Numbers, symmetric: bool, seconds: float) -> Answer | None:
    a, b = game
    if symmetric:
        a = (a + b.T) / 2.0
        b = a.T
    if not general_sum.can_enumerate(a.shape[0], a.shape[1], LISTED):
        found = general_sum.solve(a, b, seconds, symmetric)
        if not found.found:
            return None
        note = f"there may be others; found by {found.note}"
        return Answer(found.mixtures, None, found.values, found.regret, note)
    listed = general_sum.all_equilibria(a, b)
    if not len(listed):
        return None
    welfare = listed.values.sum(1)
    if symmetric:
        alike = np.abs(listed.rows - listed.columns).max(1) <= USED
        welfare = np.where(alike, welfare, -np.inf)
    best = int((welfare >= welfare.max() - 1e-9 * (1.0 + abs(welfare.max()))).argmax())
    mixtures = listed.rows[best], listed.columns[best]
    chosen = "; this is the one in which both earn the most together"
    alone = len(listed) == 1 and not listed.infinite
    return Answer(
        mixtures,
        None,
        listed.values[best],
        listed.regrets[best],
        listed.note + ("" if alone else chosen + (", of those alike" if symmetric else "")),
    )


def _correlated(game: Numbers, _: float) -> Answer:
    found = correlated.solve(game)
    note = found.note or "the correlated equilibrium of the largest entropy"
    return Answer(found.marginals, found.joint, found.values, found.regret, note)


def _regret(game: Numbers, answer: Answer) -> Numbers:
    if answer.joint is None:
        return regret(game, answer.mixtures)
    return correlated_regret(game, answer.joint, False)


def _draws(payoffs: Payoffs, samples: int, rng: np.random.Generator) -> Iterator[Numbers]:
    """Draws [R, n_1, ..., n_R], made a few at a time where the game is large."""
    at_once = max(1, CHUNK // payoffs.means.size)
    for done in range(0, samples, at_once):
        yield from payoffs.sample(min(at_once, samples - done), rng)


def _summed(drawn: Numbers) -> Numbers:
    """[3, n] mean and ends of the interval, of [S, n]; NaN without any draw."""
    if not len(drawn):
        return np.full((3, drawn.shape[1]), np.nan)
    found: Numbers = np.vstack([drawn.mean(0, keepdims=True), np.quantile(drawn, INTERVAL, 0)])
    return found


def _mean(drawn: Bools) -> Numbers:
    found: Numbers = drawn.mean(0) if len(drawn) else np.full(drawn.shape[1], np.nan)
    return found
