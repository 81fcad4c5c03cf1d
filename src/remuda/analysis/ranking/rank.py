"""Rankings of the strategies of an empirical game, with their uncertainty.

A ranking comes from a score function of the payoffs: the mean payoff, the skills of Nash averaging
(Balduzzi et al. 2018, "Re-evaluating evaluation"), or the masses of alpha-rank
(`alpha_rank.py`). Its uncertainty comes from draws of the payoffs (`Payoffs.sample`):
each draw is ranked, and the ranks are counted. Mean payoffs are first shrunk towards their common
mean in proportion to their noise (`shrink`); otherwise ranks of nearly equal policies look too
certain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import Summary, as_json
from remuda.analysis.equilibria.regret import as_two_roles, regret, to_distribution
from remuda.analysis.payoffs.payoffs import Payoffs, check_level
from remuda.analysis.payoffs.sampling import draws, shrink, with_own
from remuda.errors import UsageError
from remuda.types import Integers, Numbers

Score = Callable[[Numbers], Numbers]  # from the payoffs [n, ...] of a role to scores [n]
SAMPLES = 1000  # draws: the ends of 95% intervals are accurate to about 4% of their half-width
TIE = 1e-9  # scores that differ by less, relative to the largest absolute score, are equal


def mean_payoff(payoffs: Numbers) -> Numbers:
    """Return the mean payoff of each strategy: [n] from [n, ...].

    In a game of two roles with the same number of strategies the diagonal (self-play) is ignored.
    With wins as payoffs (1, 0.5, 0) this is the win rate.
    """
    count = len(payoffs)
    means: Numbers = payoffs.reshape(count, -1).mean(1)
    if payoffs.shape == (count, count) and count > 1:
        means = np.where(np.eye(count, dtype=np.bool_), 0.0, payoffs).sum(1) / (count - 1)
    return means


def mean_over_opponents(payoffs: Numbers) -> Numbers:
    """Return the mean payoff of each strategy of a role, against other roles: [n] from [n, ...]."""
    found: Numbers = payoffs.reshape(len(payoffs), -1).mean(1)
    return found


MEANS = (mean_payoff, mean_over_opponents)


@dataclass(frozen=True)
class NashAverage(Summary):
    """The evaluation of agents against each other by Nash averaging."""

    skills: Numbers  # [n] payoffs against the equilibrium, less the value of the game
    mixture: Numbers  # [n] the equilibrium
    regret: float  # the gain of a best response to the mixture; 0 at an equilibrium


def nash_average(matrix: npt.ArrayLike, mixture: npt.ArrayLike) -> NashAverage:
    """Evaluate strategies against the maximum-entropy equilibrium of their game.

    Duplicates of a strategy change nothing for the others (Balduzzi et al. 2018, theorem 1). The
    skill of a strategy is its row of `matrix @ mixture`, less the value, which is half of the
    constant sum.

    `matrix`: [n, n] the row's payoffs of a symmetric constant-sum game; `mixture`: [n] the game's
    symmetric equilibrium of maximum entropy.
    """
    payoffs, found = np.asarray(matrix, np.float64), np.asarray(mixture, np.float64)
    if found.min() >= -1e-9 and abs(found.sum() - 1.0) <= 1e-6:  # rounded, for example in JSON
        found = to_distribution(found)
    gains = regret(as_two_roles(payoffs, payoffs.T), (found, found))
    sums = payoffs + payoffs.T
    scale = float(np.abs(payoffs).max())
    if not np.ptp(sums) <= 1e-6 * scale:
        raise UsageError(
            "nash_average: payoffs of both strategies must have the same sum for all "
            f"pairs; here the sums are between {sums.min():g} and {sums.max():g}; use "
            "(A - A.T) / 2"
        )
    skills = payoffs @ found - float(sums.mean()) / 2.0
    return NashAverage(skills, found, float(gains[0]))


def ranks(scores: npt.ArrayLike) -> Integers:
    """Return the rank of each score: [n], 1 is the best; equal scores share the better rank.

    Scores are equal if they differ by less than `TIE` times the largest absolute score.
    """
    values = np.asarray(scores, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise UsageError(
            f"scores: they must be finite numbers, one per strategy: {values.tolist()}"
        )
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    distinct = np.ones(len(values), np.bool_)
    distinct[1:] = ordered[:-1] - ordered[1:] > TIE * np.abs(values).max(initial=0.0)
    places = np.maximum.accumulate(np.where(distinct, np.arange(1, len(values) + 1), 0))
    found = np.empty(len(values), np.int64)
    found[order] = places
    return found


@dataclass(frozen=True)
class RankIntervals:
    """A ranking with intervals."""

    names: tuple[str, ...]  # of the n strategies
    scores: Numbers = field(repr=False)  # [n] from the mean payoffs
    score_intervals: Numbers = field(repr=False)  # [2, n] of the scores, at probability `level`
    ranks: Integers  # [n] by `scores`; 1 is the best, equal scores share the better rank
    intervals: Integers  # [2, n] the shortest range of ranks with probability `level`
    held: Numbers = field(repr=False)  # [n] the share of draws with the rank in its interval
    probabilities: Numbers = field(repr=False)
    """[n, n] the share of draws in which a strategy (row) has rank 1 + column."""
    samples: int  # draws of the payoffs
    level: float

    @property
    def first(self) -> Numbers:
        """[n]: the probability that a strategy is the best, or tied for the best."""
        return self.probabilities[:, 0]

    def as_summary(self) -> dict[str, object]:
        """Return JSON values, the best strategy first."""
        order = np.argsort(self.ranks, kind="stable")
        return {
            "samples": self.samples,
            "level": self.level,
            "ranking": [
                {
                    "name": self.names[place],
                    "rank": int(self.ranks[place]),
                    "rank_interval": self.intervals[:, place].tolist(),
                    "rank_interval_held": float(self.held[place]),
                    "first": float(self.first[place]),
                    "score": as_json(self.scores[place]),
                    "score_interval": as_json(self.score_intervals[:, place]),
                }
                for place in order
            ],
        }


def rank_intervals(
    payoffs: Payoffs,
    score: Score,
    rng: np.random.Generator,
    samples: int = SAMPLES,
    level: float = 0.95,
) -> RankIntervals:
    """Rank the strategies of the first role, with an interval of each rank.

    Mean payoffs (`MEANS`) are shrunk towards their common mean (`shrink`); any other score is
    computed from each draw. Score intervals treat each score separately.

    `score`: a function from the role's payoffs [n, ...] to scores [n].
    """
    check_level(level)
    names = payoffs.names
    scores = score(with_own(payoffs).means[0])
    drawn = np.array([score(each[0]) for each in draws(payoffs, samples, rng)], np.float64)
    shrunk = shrink(scores, drawn, rng) if score in MEANS else drawn
    probabilities = np.zeros((len(names), len(names)))
    for each in shrunk:
        probabilities[np.arange(len(names)), ranks(each) - 1] += 1.0
    probabilities /= samples
    intervals, held = _shortest(probabilities, level)
    ends = (0.5 - level / 2.0, 0.5 + level / 2.0)
    return RankIntervals(
        names,
        scores,
        np.quantile(drawn, ends, axis=0),
        ranks(scores),
        intervals,
        held,
        probabilities,
        samples,
        level,
    )


def _shortest(probabilities: Numbers, level: float) -> tuple[Integers, Numbers]:
    """Return the shortest range of ranks [2, n] with probability `level`, and its probability [n].

    Ties go to the most probable range, then to the range with the better ranks.

    `probabilities`: [n, n] of each strategy's ranks.
    """
    count = len(probabilities)
    sums = np.pad(np.cumsum(probabilities, axis=1), ((0, 0), (1, 0)))
    low, length, held = np.zeros(count, np.int64), np.full(count, count), np.ones(count)
    waiting = np.ones(count, np.bool_)
    for size in range(1, count + 1):
        inside = sums[:, size:] - sums[:, : count + 1 - size]
        best = inside.argmax(1)
        surest = inside[np.arange(count), best]
        now = waiting & (surest >= level - 1e-12)
        low[now], length[now], held[now] = best[now], size, surest[now]
        waiting &= ~now
    return np.stack([low + 1, low + length]), np.minimum(held, 1.0)
