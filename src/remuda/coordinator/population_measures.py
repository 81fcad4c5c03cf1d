"""Quick measures of a population's payoffs: no intervals, a fraction of a second."""

from __future__ import annotations

import math

import numpy as np

from remuda.analysis import general_sum, zero_sum
from remuda.analysis.diversity import response_diversity
from remuda.analysis.payoff import Payoffs
from remuda.analysis.transitivity import split_intervals
from remuda.analysis.uncertain_equilibrium import USED
from remuda.coordinator.population_record import AnalysisNumbers
from remuda.errors import UsageError
from remuda.types import Bools, Integers, Numbers

MET = 10  # meetings of two members needed for their payoffs
SECONDS = 2.0  # time limit of the search for an equilibrium of a general-sum game
DRAWS = 2  # bootstrap draws of the payoffs, which need no intervals here
DIVERSITY_DRAWS = 40  # bootstrap draws for the bias of diversity, and its value for equal members
CHANCE = 0.05
"""A diversity that equal members would have with a greater probability is not reported."""


def measure(payoffs: Payoffs, live: Bools) -> tuple[AnalysisNumbers, Numbers, Numbers]:
    """Compute all numbers of an analysis during a run."""
    whole = payoffs.completed()
    count = len(live)
    apart = ~np.eye(count, dtype=np.bool_)
    known = (payoffs.met >= MET) & apart
    with np.errstate(invalid="ignore"):
        earned: Numbers = np.where(known, whole.matrix, 0.0).sum(1) / known.sum(1)
    mixed = np.full(count, np.nan)
    kept = gapless(known, live)
    unmet = float((~known & apart).sum() / max(apart.sum(), 1))
    if len(kept) < 2:
        return AnalysisNumbers(analysed=0, unmet=unmet), earned, mixed
    part = whole.part(kept.tolist())
    mixture = _nash(part)
    if mixture is not None:
        mixed[kept] = mixture
    numbers = AnalysisNumbers(
        analysed=len(kept),
        unmet=unmet,
        diversity=_diversity(part),
        nash_support=None if mixture is None else int((mixture > USED).sum()),
        nash_entropy=None if mixture is None else _entropy(mixture),
        nash_live=None if mixture is None else float(mixture[live[kept]].sum()),
        transitive_share=_transitive(part),
        exploitability=_exploitability(whole.matrix, known, kept[live[kept]]),
    )
    return numbers, earned, mixed


def gapless(known: Bools, live: Bools) -> Integers:
    """Return members that all met each other: [K] places, in order.

    Members with the most gaps are removed one by one; of several the last, and frozen ones before
    learning ones.
    """
    missing = ~(known & known.T)
    np.fill_diagonal(missing, False)
    kept = np.ones(len(live), np.bool_)
    while len(kept):
        gaps = np.where(kept, missing[:, kept].sum(1), 0)
        if not gaps.any():
            break
        worst = np.flatnonzero(gaps == gaps.max())
        frozen = worst[~live[worst]]
        kept[frozen[-1] if len(frozen) else worst[-1]] = False
    return np.flatnonzero(kept)


def _nash(payoffs: Payoffs) -> Numbers | None:
    """Return a symmetric equilibrium [N], of largest entropy if zero-sum; None if unknown."""
    matrix = payoffs.matrix
    if payoffs.is_zero_sum:  # up to a constant, as shares of wins are
        return zero_sum.solve_max_entropy((matrix - matrix.T) / 2.0).mixtures[0]
    if np.isnan(matrix).any():
        return None
    found = general_sum.solve(matrix, matrix.T, SECONDS, symmetric=True)
    return found.mixtures[0] if found.found else None


def _entropy(mixture: Numbers) -> float:
    played = mixture[mixture > 0.0]
    return abs(float((played * np.log(played)).sum()))


def _diversity(payoffs: Payoffs) -> float | None:
    """Return the noise-corrected expected cardinality; None if noise may explain it."""
    if payoffs.missing.any():
        return None
    apart = payoffs.matrix[~np.eye(len(payoffs.names), dtype=np.bool_)]
    scale = float(apart.std()) or 1.0
    rng = np.random.default_rng(0)
    found = response_diversity(payoffs, rng, scale=scale, draws=DIVERSITY_DRAWS)
    return found.corrected if found.null_share <= CHANCE else None


def _transitive(payoffs: Payoffs) -> float | None:
    try:
        found = split_intervals(payoffs, np.random.default_rng(0), DRAWS).transitive
    except UsageError:  # no two of them met twice
        return None
    return found if math.isfinite(found) else None


def _exploitability(matrix: Numbers, known: Bools, live: Integers) -> float | None:
    """Return the gain of the best reply to these members' uniform mixture; None if unknown."""
    if not len(live):
        return None
    seen = known | (np.eye(len(matrix), dtype=np.bool_) & ~np.isnan(matrix))
    replies = np.flatnonzero(seen[:, live].all(1))
    own = matrix[live[:, None], live]
    if not len(replies) or np.isnan(own).any():
        return None
    return float(matrix[replies[:, None], live].mean(1).max() - own.mean())
