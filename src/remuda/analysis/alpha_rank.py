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

from remuda.analysis.as_json import Summary, as_json
from remuda.analysis.payoff import Numbers, Payoffs, check_level
from remuda.analysis.rank import Score, ranks
from remuda.analysis.sampling import draws, with_own
from remuda.errors import UsageError
from remuda.kernels import njit

POPULATION = 50
"""Individuals of a population: m."""
LOST = -1000.0
"""Logarithm of the probability that a worse mutant spreads under unlimited selection: below any
double, and still finite.
"""
MOST_PROFILES = 2000
"""States of a chain: 500 take about a second at one intensity, and 2000 a minute."""
STEPS = 60
"""Doublings of the intensity before a sweep gives up."""
RELATIVE, ABSOLUTE = 1e-5, 1e-8
"""Masses that differ by less from one intensity to the next have settled."""
ROUNDING = 1e-12
"""Differences of payoffs below this share of the greatest one do not delay the end of a sweep."""
NEGLIGIBLE = 40.0
"""exp(-40) is less than the last digit of a double."""


@dataclass(frozen=True)
class AlphaRank(Summary):
    """The masses that strategies have in the long run.

    Attributes:
        masses: [n] by strategy of a symmetric game, or [n_1, ..., n_R]; they add up to 1.
        alpha: the intensity of selection; `inf`: its limit, by the response graph.
        population: m.
        settled: whether a greater intensity changes the masses no more; None: unknown.
    """

    masses: Numbers
    alpha: float
    population: int
    settled: bool | None = None

    @property
    def by_role(self) -> tuple[Numbers, ...]:
        """The masses of each role's strategies, [n_r] each."""
        axes = range(self.masses.ndim)
        return tuple(self.masses.sum(tuple(a for a in axes if a != role)) for role in axes)


def alpha_rank(
    payoffs: npt.ArrayLike,
    alpha: float | None = None,
    population: int = POPULATION,
    *,
    global_selection: bool = False,
) -> AlphaRank:
    """Rank the strategies of a symmetric game, or the choices of all roles of another one.

    - `payoffs`: [n, n] the row's payoffs of a symmetric game, one population; or [R, n_1, ..., n_R]
      the payoffs of R roles, a population each.
    - `alpha`: the intensity of selection; `inf`: its limit; None: raised until masses settle.
    - `population`: m, individuals of a population. In the limit a mutant that earns as much spreads
      with 1 / m (Rowland et al. 2019, "Multiagent evaluation under incomplete information").
    - `global_selection`: in a symmetric game, individuals meet all others of the population, their
      own strategy too (Han et al. 2013), and not the other strategy alone.
    """
    if alpha is None:
        found = sweep(payoffs, population, global_selection=global_selection)
        return found.last
    array = _checked(payoffs, population, global_selection)
    _check_intensity(alpha, array, population, global_selection)
    rates = _log_rates(array, alpha, population, global_selection)
    return AlphaRank(_masses(rates, array), float(alpha), population)


@dataclass(frozen=True)
class Sweep(Summary):
    """The masses at one intensity of selection after another, each twice the one before.

    Attributes:
        alphas: [A] the intensities.
        masses: [A, n] or [A, n_1, ..., n_R].
        settled: whether the last two are alike.
        population: m.
    """

    alphas: Numbers
    masses: Numbers = field(repr=False)
    settled: bool
    population: int

    @property
    def last(self) -> AlphaRank:
        """The masses at the greatest intensity."""
        return AlphaRank(self.masses[-1], float(self.alphas[-1]), self.population, self.settled)


def sweep(
    payoffs: npt.ArrayLike, population: int = POPULATION, *, global_selection: bool = False
) -> Sweep:
    """Raise the intensity of selection until the masses settle.

    It starts where the greatest difference of payoffs begins to matter, and doubles until two
    distributions are alike and the least difference matters too. Neither the scale of payoffs nor
    one outlier ends it early.
    """
    array = _checked(payoffs, population, global_selection)
    least, greatest = _gaps(array, global_selection)
    alpha = 1.0 / (population * greatest) if greatest > 0.0 else 1.0
    alphas, masses = [], []
    for _ in range(STEPS):
        alphas.append(alpha)
        masses.append(_masses(_log_rates(array, alpha, population, global_selection), array))
        alike = len(masses) > 1 and np.allclose(masses[-1], masses[-2], RELATIVE, ABSOLUTE)
        if alike and population * alpha * least >= (least > 0.0):
            return Sweep(np.array(alphas), np.array(masses), True, population)
        alpha *= 2.0
    return Sweep(np.array(alphas), np.array(masses), False, population)


def alpha_score(alpha: float = math.inf, population: int = POPULATION) -> Score:
    """Return the score function of alpha-rank on symmetric games: the masses [n].

    `alpha`: the intensity of selection; that at which the masses of the means settled, or `inf`.
    """

    def score(matrix: Numbers) -> Numbers:
        return alpha_rank(matrix, alpha, population).masses

    return score


@dataclass(frozen=True)
class AlphaRankIntervals:
    """Masses with their intervals.

    Attributes:
        strategies: by role, the names; of a symmetric game one tuple.
        found: the masses by the mean payoffs.
        intervals: [2, *masses.shape] of each mass, at probability `level`.
        means: [*masses.shape] the mean masses over the draws.
        first: [*masses.shape] the share of draws in which a mass is the greatest, or as great.
        samples: draws of the payoffs.
    """

    strategies: tuple[tuple[str, ...], ...]
    found: AlphaRank
    intervals: Numbers = field(repr=False)
    means: Numbers = field(repr=False)
    first: Numbers = field(repr=False)
    samples: int
    level: float

    def as_summary(self) -> dict[str, object]:
        """Return plain data."""
        return {
            "strategies": [list(names) for names in self.strategies],
            **self.found.as_summary(),
            "intervals": as_json(self.intervals),
            "means": as_json(self.means),
            "first": as_json(self.first),
            "samples": self.samples,
            "level": self.level,
        }


def alpha_rank_intervals(
    payoffs: Payoffs,
    rng: np.random.Generator,
    samples: int = 200,
    level: float = 0.95,
    alpha: float | None = None,
    population: int = POPULATION,
) -> AlphaRankIntervals:
    """Rank the strategies of a game, with intervals of their masses.

    The draws are ranked at the intensity at which the masses of the mean payoffs settled.
    """
    check_level(level)
    means = with_own(payoffs).means
    found = alpha_rank(means[0] if payoffs.symmetric else means, alpha, population)
    masses = np.array(
        [
            alpha_rank(each[0] if payoffs.symmetric else each, found.alpha, population).masses
            for each in draws(payoffs, samples, rng)
        ]
    )
    first = np.array([ranks(each.reshape(-1)) == 1 for each in masses]).mean(0)
    return AlphaRankIntervals(
        payoffs.strategies[:1] if payoffs.symmetric else payoffs.strategies,
        found,
        np.quantile(masses, (0.5 - level / 2.0, 0.5 + level / 2.0), axis=0),
        masses.mean(0),
        first.reshape(found.masses.shape),
        samples,
        level,
    )


def fixation(
    payoffs: npt.ArrayLike,
    alpha: float,
    population: int = POPULATION,
    *,
    global_selection: bool = False,
) -> Numbers:
    """Return the logarithm of the probability that a single mutant takes over: [n, n].

    Row s is the strategy of the population, column r that of the mutant; a strategy against itself
    is -inf. It is (1 - exp(-u)) / (1 - exp(-m u)) with u = alpha * (what the mutant earns more than
    the other strategy when they meet), 1 / m where u is 0 (Omidshafiei et al. 2019); with
    `global_selection`, 1 / (1 + the sum over l < m of the products over p <= l of exp(-alpha *
    (payoff of p mutants - payoff of the m - p others))) (Traulsen, Nowak and Pacheco 2006,
    "Stochastic dynamics of invasion and fixation").

    `payoffs`: [n, n] the row's payoffs of a symmetric game.
    """
    matrix = _checked(payoffs, population, global_selection)
    _check_intensity(alpha, matrix, population, global_selection)
    if matrix.ndim != 2:
        raise UsageError("fixation: this is for symmetric games, payoffs [n, n]")
    if not global_selection:
        found = _log_spread(matrix.T - matrix, alpha, population)
    else:
        found = _log_spread_globally(matrix, alpha, population)
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


def _log_spread_globally(matrix: Numbers, alpha: float, population: int) -> Numbers:
    """Return the logarithm of the sum in `fixation`."""
    own = np.diagonal(matrix)
    total = np.zeros_like(matrix)  # log of the sum so far, whose first term is 1
    exponent = np.zeros_like(matrix)
    m = population
    for p in range(1, m):
        of_mutant = ((p - 1) * own[None, :] + (m - p) * matrix.T) / (m - 1)
        of_others = ((m - p - 1) * own[:, None] + p * matrix) / (m - 1)
        exponent = exponent - alpha * (of_mutant - of_others)
        total = np.logaddexp(total, exponent)
    return -total


def _log_rates(array: Numbers, alpha: float, population: int, global_selection: bool) -> Numbers:
    """Return [P, P] logarithms of the rates between states; their common factor does not matter."""
    if array.ndim == 2:
        return fixation(array, alpha, population, global_selection=global_selection)
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


def _gaps(array: Numbers, global_selection: bool) -> tuple[float, float]:
    """Return the least and the greatest difference that selection can see; 0: there is none."""
    if array.ndim > 2:
        sizes = [
            np.diff(np.sort(of_role, axis=role), axis=role) for role, of_role in enumerate(array)
        ]
        greatest = max(
            float(np.ptp(of_role, axis=role).max()) for role, of_role in enumerate(array)
        )
    else:
        values = array if global_selection else array - array.T
        sizes = [np.diff(np.unique(values))] if global_selection else [np.abs(values)]
        greatest = float(np.ptp(values) if global_selection else sizes[0].max())
    found = np.concatenate([size.reshape(-1) for size in sizes])
    told = found[found > ROUNDING * greatest]
    return (float(told.min()) if len(told) else 0.0), greatest


def _checked(payoffs: npt.ArrayLike, population: int, global_selection: bool) -> Numbers:
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
    if roles and global_selection:
        raise UsageError("global_selection: this is for symmetric games, payoffs [n, n]")
    if square and not global_selection:
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


def _check_intensity(alpha: float, array: Numbers, population: int, global_selection: bool) -> None:
    if not alpha >= 0.0:
        raise UsageError(f"alpha: the intensity of selection is 0 or more; this is {alpha}")
    if math.isinf(alpha):
        if global_selection:
            raise UsageError(
                "alpha: in the limit (inf) no own strategy is met; without `global_selection`, or "
                "take a great number"
            )
    elif not math.isfinite(alpha * population * (2.0 * float(np.abs(array).max()) + 1.0)):
        raise UsageError(f"alpha: {alpha:g} is too great for these payoffs; take inf, the limit")
