"""Alpha-rank: how strategies fare in the long run of an evolution by mutation and selection.

Populations of m individuals play one strategy each. Now and then a mutant with another strategy
appears, and spreads or dies out before the next one; the stationary distribution of this chain is
the ranking (Omidshafiei et al. 2019, "alpha-Rank: Multi-Agent Evaluation by Evolution"). It needs
no choice among equilibria, and exists for any number of roles.

The probabilities that a mutant spreads reach down to exp(-m * alpha * gap), far below what a double
holds. So they are logarithms here, and the distribution is worked out without a subtraction
(Grassmann, Taksar and Heyman 1985, "Regenerative analysis and steady state distributions"): no
selection intensity overflows, and small masses have as many digits as great ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import Summary
from remuda.analysis.regret import marginals
from remuda.errors import UsageError
from remuda.kernels import njit
from remuda.types import Numbers

POPULATION = 50  # individuals of a population: m
LOST = -1000.0  # for log(0): exp of it is below any double, and it is finite
MOST_PROFILES = 2000  # states of a chain: 500 take a second at one intensity, and 2000 a minute
STEPS = 60  # doublings of the intensity before a sweep gives up
RELATIVE, ABSOLUTE = 1e-5, 1e-8  # masses have settled if the next intensity changes them by less
ROUNDING = 1e-12  # a sweep does not wait for differences below this share of the greatest payoff
NEGLIGIBLE = 40.0  # exp(-40) is less than the last digit of a double


@dataclass(frozen=True)
class AlphaRank(Summary):
    """The masses that strategies have in the long run."""

    masses: Numbers  # [n] by strategy of a symmetric game, or [n_1, ..., n_R]; they add up to 1
    alpha: float  # the intensity of selection; `inf`: its limit, by the response graph
    population: int  # m
    settled: bool | None = None  # whether greater intensities change nothing; None: unknown

    @property
    def by_role(self) -> tuple[Numbers, ...]:
        """The masses of each role's strategies, [n_r] each."""
        return marginals(self.masses)


def alpha_rank(
    payoffs: npt.ArrayLike, alpha: float | None = None, population: int = POPULATION
) -> AlphaRank:
    """Rank the strategies of a symmetric game, or the choices of all roles of another one.

    - `payoffs`: [n, n] the row's payoffs of a symmetric game, one population; or [R, n_1, ..., n_R]
      the payoffs of R roles, a population each.
    - `alpha`: the intensity of selection; `inf`: its limit; None: raised until masses settle.
    - `population`: m, individuals of a population. In the limit a mutant that earns as much spreads
      with 1 / m (Rowland et al. 2019, "Multiagent evaluation under incomplete information").
    """
    if alpha is None:
        return sweep(payoffs, population).last
    array = _checked(payoffs, population)
    _check_intensity(alpha, array, population)
    rates = _log_rates(array, alpha, population)
    return AlphaRank(_masses(rates, array), float(alpha), population)


@dataclass(frozen=True)
class Sweep(Summary):
    """The masses at one intensity of selection after another, each twice the one before."""

    alphas: Numbers  # [A] the intensities
    masses: Numbers = field(repr=False)  # [A, n] or [A, n_1, ..., n_R]
    settled: bool  # whether the last two are alike
    population: int  # m

    @property
    def last(self) -> AlphaRank:
        """The masses at the greatest intensity."""
        return AlphaRank(self.masses[-1], float(self.alphas[-1]), self.population, self.settled)


def sweep(payoffs: npt.ArrayLike, population: int = POPULATION) -> Sweep:
    """Raise the intensity of selection until the masses settle.

    It starts where the greatest difference of payoffs begins to matter, and doubles until two
    distributions are alike and the least difference matters too. Neither the scale of payoffs nor
    one outlier ends it early.
    """
    array = _checked(payoffs, population)
    least, greatest = _gaps(array)
    alpha = 1.0 / (population * greatest) if greatest > 0.0 else 1.0
    alphas, masses = [], []
    for _ in range(STEPS):
        alphas.append(alpha)
        masses.append(_masses(_log_rates(array, alpha, population), array))
        alike = len(masses) > 1 and np.allclose(masses[-1], masses[-2], RELATIVE, ABSOLUTE)
        if alike and population * alpha * least >= (least > 0.0):
            return Sweep(np.array(alphas), np.array(masses), True, population)
        alpha *= 2.0
    return Sweep(np.array(alphas), np.array(masses), False, population)


def fixation(payoffs: npt.ArrayLike, alpha: float, population: int = POPULATION) -> Numbers:
    """Return the logarithm of the probability that a single mutant takes over: [n, n].

    Row s is the strategy of the population, column r that of the mutant; a strategy against itself
    is -inf. It is (1 - exp(-u)) / (1 - exp(-m u)) with u = alpha * (what the mutant earns more than
    the other strategy when they meet), 1 / m where u is 0 (Omidshafiei et al. 2019).

    `payoffs`: [n, n] the row's payoffs of a symmetric game.
    """
    matrix = _checked(payoffs, population)
    _check_intensity(alpha, matrix, population)
    if matrix.ndim != 2:
        raise UsageError("fixation: this is for symmetric games, payoffs [n, n]")
    found = _log_spread(matrix.T - matrix, alpha, population)
    np.fill_diagonal(found, -np.inf)
    return found


def _log_spread(gains: Numbers, alpha: float, population: int) -> Numbers:
    """Return the logarithm of the closed form in `fixation`, by what the mutant earns more."""
    if math.isinf(alpha):
        return np.where(gains > 0.0, 0.0, np.where(gains < 0.0, LOST, -math.log(population)))
    u = alpha * gains
    size = np.where(np.abs(u) > 1e-14, np.abs(u), 1.0)
    spread = np.log(-np.expm1(-size)) - np.log(-np.expm1(-population * size))
    # For u < 0: multiply above and below by exp(u) and exp(m u), which leaves no exp of |u|.
    spread = np.where(u < 0.0, spread - (population - 1) * size, spread)
    return np.where(np.abs(u) > 1e-14, spread, -math.log(population))


def _log_rates(array: Numbers, alpha: float, population: int) -> Numbers:
    """Return [P, P] logarithms of the rates between states; their common factor does not matter."""
    if array.ndim == 2:
        return fixation(array, alpha, population)
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
            rates[now, then] = _log_spread(flat[then] - flat[now], alpha, population)
    return rates


def _masses(log_rates: Numbers, array: Numbers) -> Numbers:
    logs = log_stationary(log_rates)
    masses = np.exp(logs - logs.max())
    found: Numbers = (masses / masses.sum()).reshape(array.shape[1:])
    return found


@njit(cache=True)
def log_stationary(log_rates: Numbers) -> Numbers:
    """Return the logarithm of the stationary distribution of a chain, up to a constant: [P].

    States are eliminated one by one, the last first, and the flow through them is added to the
    rates between the others; then they return in reverse order (Grassmann, Taksar and Heyman 1985).
    Without subtractions no digits are lost.

    `log_rates`: [P, P] from row to column; -inf: none; the diagonal is ignored. Every state must
    lead to every other in the end.
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
                apart = direct - through
                if apart >= NEGLIGIBLE or through == -np.inf:
                    continue
                if apart > -NEGLIGIBLE:
                    through = max(direct, through) + np.log1p(np.exp(-abs(apart)))
                rates[i, j] = through
    logs = np.zeros(count)
    for k in range(1, count):
        parts = logs[:k] + rates[:k, k]
        greatest = parts.max()
        logs[k] = greatest + np.log(np.exp(parts - greatest).sum())
    return logs


def _gaps(array: Numbers) -> tuple[float, float]:
    """Return the least and the greatest difference that selection can see; 0: there is none."""
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
    seen = found[found > ROUNDING * greatest]
    return (float(seen.min()) if len(seen) else 0.0), greatest


def _checked(payoffs: npt.ArrayLike, population: int) -> Numbers:
    array = np.array(payoffs, np.float64)
    if population < 2:
        raise UsageError(f"population: there must be 2 individuals at least; this is {population}")
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
            f"payoffs: there are {states} choices of all roles together, and at most "
            f"{MOST_PROFILES} can be ranked; leave out strategies"
        )
    return array


def _check_intensity(alpha: float, array: Numbers, population: int) -> None:
    if not alpha >= 0.0:
        raise UsageError(f"alpha: the intensity of selection is 0 or more; this is {alpha}")
    largest = alpha * population * (2.0 * float(np.abs(array).max()) + 1.0)
    if not (math.isinf(alpha) or math.isfinite(largest)):
        raise UsageError(f"alpha: {alpha:g} is too great for these payoffs; take inf, the limit")
