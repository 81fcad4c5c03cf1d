"""Exploitability of policies within their population: a lower bound of their exploitability.

If all play policy i and one player changes to policy j, that player gains u(j, i) - u(i, i). The
largest of these gains is the exploitability of i within the population: the gain of a best response
in the restricted game (Lanctot et al. 2017, "A unified game-theoretic approach to multiagent
reinforcement learning", section 3). Policies outside the population may gain more.

Policies of different roles do not play themselves. There an opponent that responds to policy i
gains its return above the mean return of its role's policies against i.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from remuda.analysis.payoffs.bias import Estimate, check_draws
from remuda.analysis.payoffs.payoffs import Payoffs, check_level
from remuda.analysis.payoffs.sampling import draws, with_own
from remuda.analysis.ranking.rank import Score, mean_over_opponents
from remuda.types import Integers, Numbers


@dataclass(frozen=True)
class WithinPopulation:
    """The gains of a population's best responses to each of its policies."""

    names: tuple[str, ...]  # [N] of the policies
    gains: tuple[Estimate, ...] = field(repr=False)
    """[N] the gain of the best response to each policy. `corrected` is unbiased for a response
    chosen with half of the matches. On average it is at most the best response's gain, and it may
    be below 0 by chance. The interval is for the largest gain."""
    best_responses: tuple[str, ...]  # [N] the best response to each policy, by the mean payoffs
    over: str = "what the policy earns against itself"  # that the gain is counted from

    @property
    def least(self) -> str:
        return self.names[int(np.argmin([each.corrected for each in self.gains]))]

    def of(self, name: str) -> Estimate:
        return self.gains[self.names.index(name)]

    def as_summary(self) -> dict[str, Any]:
        return {
            "what": "the gain of the best response among these policies; a lower bound",
            "over": self.over,
            "policies": [
                {"policy": name, "best_response": best, "gain": gain.as_summary()}
                for name, best, gain in zip(
                    self.names, self.best_responses, self.gains, strict=True
                )
            ],
        }


def within_population(
    payoffs: Payoffs, rng: np.random.Generator, samples: int = 400, level: float = 0.95
) -> WithinPopulation:
    """Return the gain of the best response within a population to each of its policies.

    Each draw e of the noise splits the means x into x + e and x - e, which are independent for
    normal noise (Rasines and Young 2023, "Splitting strategies for post-selection inference",
    section 2; Leiner et al. 2023, "Data fission"). One half chooses the response, the other
    measures it. `corrected` is the mean over the draws.

    `payoffs`: of a symmetric game with known self-play.
    """
    check_draws(samples)
    payoffs.check_symmetric("gains within a population")
    payoffs.check_whole()
    check_level(level)
    gains = _gains(payoffs.matrix)
    # Draws have t distributions, which are wider than the normal noise.
    narrower = np.sqrt(1.0 - 2.0 / payoffs.freedom)
    noises = (
        (_gains(away), _gains(away * narrower))
        for away in (drawn[0] - payoffs.matrix for drawn in draws(payoffs, samples, rng))
    )
    freedom = np.minimum(payoffs.freedom, np.diagonal(payoffs.freedom))
    found = _estimates(gains, _errors(payoffs), freedom, noises, level)
    return WithinPopulation(
        payoffs.names, found, tuple(payoffs.names[place] for place in gains.argmax(0))
    )


def within_roles(
    payoffs: Payoffs,
    roles: Integers,
    rng: np.random.Generator,
    samples: int = 400,
    level: float = 0.95,
) -> WithinPopulation:
    """Return the gain of an opponent's best response to each policy of a role.

    The gain is over the mean of the opponents of the same role. Choice and measurement are split
    as in `within_population`.

    `payoffs`: of a role, as rows, against the policies of all others, which all met; `roles`: [m]
    the role number of each column.
    """
    check_draws(samples)
    check_level(level)
    payoffs.check_whole()
    same = (roles[:, None] == roles) / (roles[:, None] == roles).sum(1)
    over_mean = np.eye(len(roles)) - same
    returns, freedom = payoffs.means[1].T, payoffs.freedom.T  # [m, n]: responses by policies
    gains = over_mean @ returns
    errors = np.sqrt(over_mean**2 @ payoffs.errors[1].T ** 2)
    narrower = np.sqrt(1.0 - 2.0 / freedom)
    noises = (
        (over_mean @ away, over_mean @ (away * narrower))
        for away in (drawn[1].T - returns for drawn in draws(payoffs, samples, rng))
    )
    found = _estimates(gains, errors, freedom, noises, level)
    best = tuple(payoffs.strategies[1][place] for place in gains.argmax(0))
    return WithinPopulation(payoffs.names, found, best, "the mean of the best response's role")


def _estimates(
    gains: Numbers,
    errors: Numbers,
    freedom: Numbers,
    noises: Iterable[tuple[Numbers, Numbers]],
    level: float,
) -> tuple[Estimate, ...]:
    """Return the gain of the best of M responses to each of N policies: [N].

    - `gains`, `errors`, `freedom`: [M, N] gains by the mean payoffs, their standard errors, and
      degrees of freedom.
    - `noises`: draws of the gains' noise, and of their normal noise, [M, N] each.
    """
    columns, number = np.arange(gains.shape[1]), 0
    measured, largest = np.zeros(gains.shape[1]), []
    for noise, normal in noises:
        chosen = (gains + normal).argmax(0)
        measured += (gains - normal)[chosen, columns]
        ratios = np.divide(noise, errors, out=np.zeros_like(noise), where=errors > 0.0)
        largest.append(ratios.max(0))
        number += 1
    corrected = np.where(errors.any(0), measured / number, gains.max(0))  # exact without noise
    low, high = _interval(gains, errors, freedom, np.array(largest), level)
    low, high = np.minimum(low, corrected), np.maximum(high, corrected)
    return tuple(
        Estimate(float(raw), float(mean), (float(least), float(most)), draws=number, level=level)
        for raw, mean, least, most in zip(gains.max(0), corrected, low, high, strict=True)
    )


def gain_over_mean(
    payoffs: Payoffs,
    rng: np.random.Generator,
    samples: int = 400,
    score: Score = mean_over_opponents,
    level: float = 0.95,
) -> Estimate:
    """Return what a seat gains by always playing the best strategy of the first role.

    The gain is over a uniform choice of strategies, against opponents that are uniform too. It is
    the regret of this population as dealt; choice and measurement are split as in
    `within_population`.

    `payoffs`: of two roles, all of whose strategies met; `score`: a linear function, such as
    `mean_payoff` in a symmetric game.
    """
    check_draws(samples)
    check_level(level)
    whole = with_own(payoffs)
    scores = score(whole.matrix)
    gains = scores - scores.mean()
    noise = np.array([score(each[0]) for each in draws(payoffs, samples, rng)]) - scores
    noise -= noise.mean(1, keepdims=True)
    # Draws have t distributions, which are wider than the normal noise.
    noise *= float(np.sqrt((1.0 - 2.0 / whole.freedom).mean()))
    chosen = (gains + noise).argmax(1)
    corrected = float((gains - noise)[np.arange(samples), chosen].mean())
    errors = np.sqrt((noise**2).mean(0))
    ratios = np.divide(noise, errors, out=np.zeros_like(noise), where=errors > 0.0)
    freedom = np.full((len(gains), 1), whole.freedom.mean())
    largest = ratios.max(1, keepdims=True)
    low, high = _interval(gains[:, None], errors[:, None], freedom, largest, level)
    interval = (min(float(low[0]), corrected), max(float(high[0]), corrected))
    return Estimate(float(gains.max()), corrected, interval, draws=samples, level=level)


def _gains(matrix: Numbers) -> Numbers:
    """Return [N, N]: u(j, i) - u(i, i), for row j against column i."""
    return matrix - np.diagonal(matrix)


def _errors(payoffs: Payoffs) -> Numbers:
    """Return [N, N]: standard errors of the gains; 0 on the diagonal."""
    variances = payoffs.errors[0] ** 2
    # In self-play a policy receives the mean of both seats.
    own = np.diagonal(payoffs.moderated.sum((0, 1)) / 4.0 / payoffs.counts)
    errors: Numbers = np.sqrt(np.maximum(variances + own, 0.0))
    np.fill_diagonal(errors, 0.0)
    return errors


def _interval(
    gains: Numbers, errors: Numbers, freedom: Numbers, largest: Numbers, level: float
) -> tuple[Numbers, Numbers]:
    """Return [N] bounds that contain the largest true gain with at least probability `level`.

    The upper bound is the largest upper end, which is at least the end of the true best response's
    interval. The lower bound is the largest lower end: all lower ends hold simultaneously, because
    they use the quantile of the largest standardized deviation (Romano and Wolf 2005, "Stepwise
    multiple testing as formalized data snooping", section 3).

    - `gains`, `errors`, `freedom`: [M, N] gains of M responses by the mean payoffs, their standard
      errors, and degrees of freedom.
    - `largest`: [samples, N] standardized deviations of drawn gains from the means.
    """
    tail = 0.5 + level / 2.0
    high = (gains + stats.t.ppf(tail, freedom) * errors).max(0)
    low = (gains - np.quantile(largest, tail, axis=0) * errors).max(0)
    return low, high
