"""Alpha-rank: a ranking of strategies by evolution through mutation and selection.

Each population of m individuals plays one strategy. Rarely, a mutant with another strategy
appears; it takes over or dies out before the next mutant. The stationary distribution of this
chain is the ranking (Omidshafiei et al. 2019, "alpha-Rank: Multi-Agent Evaluation by Evolution").
The ranking is unique, so there is no equilibrium selection. It is defined for any number of roles.

Fixation probabilities go down to exp(-m * alpha * gap), which underflows a double. This module
therefore works with logarithms, and computes the distribution without subtractions (Grassmann,
Taksar and Heyman 1985, "Regenerative analysis and steady state distributions"). No selection
intensity overflows, and small masses are as precise as large ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import Summary
from remuda.analysis.equilibria.regret import marginals
from remuda.errors import UsageError
from remuda.system.kernels import njit
from remuda.types import Numbers

POPULATION = 50  # individuals of a population: m
LOST = -1000.0  # represents log(0): finite, and its exp underflows to 0
MOST_PROFILES = 2000  # states of a chain: 500 take a second at one intensity, and 2000 a minute
STEPS = 60  # doublings of the intensity before a sweep gives up
RELATIVE, ABSOLUTE = 1e-5, 1e-8  # masses have settled if one doubling changes them by less
ROUNDING = 1e-12  # a sweep ignores differences below this share of the largest payoff difference
NEGLIGIBLE = 40.0  # 1 + exp(-40) rounds to 1 in a double


@dataclass(frozen=True)
class AlphaRank(Summary):
    """The stationary distribution over strategies."""

    masses: Numbers  # [n] by strategy of a symmetric game, or [n_1, ..., n_R]; they add up to 1
    alpha: float  # the intensity of selection; `inf`: the limit, computed from the response graph
    population: int  # m
    settled: bool | None = None  # whether higher intensities change nothing; None: unknown

    @property
    def by_role(self) -> tuple[Numbers, ...]:
        """The masses of each role's strategies, [n_r] each."""
        return marginals(self.masses)


def alpha_rank(
    payoffs: npt.ArrayLike, alpha: float | None = None, population: int = POPULATION
) -> AlphaRank:
    """Rank the strategies of a symmetric game, or the strategy profiles of any other game.

    - `payoffs`: [n, n] the row's payoffs of a symmetric game, for one population; or [R, n_1, ...,
      n_R] the payoffs of R roles, for one population each.
    - `alpha`: the intensity of selection; `inf`: the limit; None: raise it until masses settle.
    - `population`: m, individuals of a population. In the limit a mutant with an equal payoff takes
      over with probability 1 / m (Rowland et al. 2019, "Multiagent evaluation under incomplete
      information").
    """
    array = _checked(payoffs, population)
    if alpha is None:
        return _sweep(array, population)
    if not alpha >= 0.0:
        raise UsageError(f"alpha: the intensity of selection is 0 or more; this is {alpha}")
    largest = alpha * population * (2.0 * float(np.abs(array).max()) + 1.0)
    if not (math.isinf(alpha) or math.isfinite(largest)):
        raise UsageError(f"alpha: {alpha:g} is too large for these payoffs; use inf, the limit")
    return AlphaRank(_masses(array, alpha, population), float(alpha), population)


def _sweep(array: Numbers, population: int) -> AlphaRank:
    """Double the intensity of selection until the masses settle.

    The sweep starts where the largest payoff difference begins to matter. It doubles the intensity
    until two distributions agree and the smallest difference matters too. Neither the scale of the
    payoffs nor one outlier ends the sweep early.
    """
    least, greatest = _gaps(array)
    alpha = 1.0 / (population * greatest) if greatest > 0.0 else 1.0
    masses = _masses(array, alpha, population)
    for _ in range(STEPS - 1):
        alpha *= 2.0
        before, masses = masses, _masses(array, alpha, population)
        settled = np.allclose(masses, before, RELATIVE, ABSOLUTE)
        if settled and population * alpha * least >= (least > 0.0):
            return AlphaRank(masses, alpha, population, True)
    return AlphaRank(masses, alpha, population, False)


def log_fixation(gains: Numbers, alpha: float, population: int) -> Numbers:
    """Return the logarithm of the probability that a single mutant takes over.

    The probability is (1 - exp(-u)) / (1 - exp(-m u)), or 1 / m for u = 0, with u = alpha * gain
    (Omidshafiei et al. 2019).

    `gains`: the mutant's payoff less the other strategy's when the two meet, of any shape.
    """
    if math.isinf(alpha):
        return np.where(gains > 0.0, 0.0, np.where(gains < 0.0, LOST, -math.log(population)))
    u = alpha * gains
    size = np.where(np.abs(u) > 1e-14, np.abs(u), 1.0)
    spread = np.log(-np.expm1(-size)) - np.log(-np.expm1(-population * size))
    # For u < 0, exp(-u) and exp(-m u) are factored out, because they may overflow.
    spread = np.where(u < 0.0, spread - (population - 1) * size, spread)
    return np.where(np.abs(u) > 1e-14, spread, -math.log(population))


def _log_rates(array: Numbers, alpha: float, population: int) -> Numbers:
    """Return [P, P] log rates between states, up to a common factor."""
    if array.ndim == 2:
        rates = log_fixation(array.T - array, alpha, population)
        np.fill_diagonal(rates, -np.inf)
        return rates
    shape = array.shape[1:]
    states = math.prod(shape)
    choices = np.array(np.unravel_index(np.arange(states), shape))
    rates = np.full((states, states), -np.inf)
    for role, size in enumerate(shape):
        step = math.prod(shape[role + 1 :])
        flat = array[role].reshape(-1)
        for strategy in range(size):
            now = np.flatnonzero(choices[role] != strategy)
            then = now + (strategy - choices[role, now]) * step
            rates[now, then] = log_fixation(flat[then] - flat[now], alpha, population)
    return rates


def _masses(array: Numbers, alpha: float, population: int) -> Numbers:
    logs = log_stationary(_log_rates(array, alpha, population))
    masses = np.exp(logs - logs.max())
    found: Numbers = (masses / masses.sum()).reshape(array.shape[1:])
    return found


@njit(cache=True)
def log_stationary(log_rates: Numbers) -> Numbers:
    """Return the logarithm of the stationary distribution of a chain, up to a constant: [P].

    States are eliminated from last to first; the flow through each is added to the rates between
    the others. They are restored in reverse order (Grassmann, Taksar and Heyman 1985). Without
    subtractions no precision is lost.

    `log_rates`: [P, P] from row to column; -inf: no transition; the diagonal is ignored. Every
    state must be reachable from every other.
    """
    rates = log_rates.copy()
    count = len(rates)
    for k in range(count - 1, 0, -1):
        greatest = rates[k, :k].max()
        away = greatest + np.log(np.exp(rates[k, :k] - greatest).sum())
        for i in range(k):
            rates[i, k] -= away
            into = rates[i, k]
            if into == -np.inf:
                continue
            for j in range(k):
                through = into + rates[k, j]
                direct = rates[i, j]
                gap = direct - through
                if gap >= NEGLIGIBLE or through == -np.inf:
                    continue
                if gap > -NEGLIGIBLE:
                    through = max(direct, through) + np.log1p(np.exp(-abs(gap)))
                rates[i, j] = through
    logs = np.zeros(count)
    for k in range(1, count):
        parts = logs[:k] + rates[:k, k]
        greatest = parts.max()
        logs[k] = greatest + np.log(np.exp(parts - greatest).sum())
    return logs


def _gaps(array: Numbers) -> tuple[float, float]:
    """Return the smallest and largest payoff differences that drive selection, or 0."""
    if array.ndim > 2:
        sizes = [
            np.diff(np.sort(of_role, axis=role), axis=role) for role, of_role in enumerate(array)
        ]
        greatest = max(
            float(np.ptp(of_role, axis=role).max()) for role, of_role in enumerate(array)
        )
    else:
        sizes = [np.abs(array - array.T)]
        greatest = float(sizes[0].max())
    found = np.concatenate([size.reshape(-1) for size in sizes])
    relevant = found[found > ROUNDING * greatest]
    return (float(relevant.min()) if len(relevant) else 0.0), greatest


def _checked(payoffs: npt.ArrayLike, population: int) -> Numbers:
    array = np.array(payoffs, np.float64)
    if population < 2:
        raise UsageError(f"population: it must be at least 2 individuals; this is {population}")
    square = array.ndim == 2 and array.shape[0] == array.shape[1]
    roles = array.ndim > 2 and array.shape[0] == array.ndim - 1
    if not (square or roles) or not array.size:
        raise UsageError(
            f"payoffs have shape {array.shape}; they must be [n, n] of a symmetric game, or "
            "[R, n_1, ..., n_R] of R roles"
        )
    if square:
        np.fill_diagonal(array, 0.0)  # a strategy does not compete with itself
    if not np.isfinite(array).all():
        raise UsageError("payoffs: one is missing or infinite; let all strategies meet first")
    states = math.prod(array.shape[1:])
    if states > MOST_PROFILES:
        raise UsageError(
            f"payoffs: there are {states} strategy profiles, and at most {MOST_PROFILES} "
            "can be ranked; leave out strategies"
        )
    return array
