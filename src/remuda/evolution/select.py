"""Selection: which policies take over from which, with a confidence against noise.

Every function returns takeovers that are all right at once with probability `confidence` at least,
each time: between equally good policies one is replaced in at most one of 20 times, for 0.95. So
the p-value of each pair is multiplied by the number of possible pairs (Bonferroni; Dunn 1961,
"Multiple comparisons among means"), as chance makes some look extreme. With a confidence of 0 means
alone decide. t tests are exact for normal returns, and close to it for others.

Policies without a fitness (`Fitness.judged`) neither take over nor are replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from remuda.analysis.pareto import crowding_distance, fronts
from remuda.errors import UsageError
from remuda.evolution.fitness import Fitness
from remuda.types import Integers


@dataclass(frozen=True)
class TakeOver:
    """The replacement of one policy by another.

    Attributes:
        policy: that is replaced.
        parent: that it becomes a copy of; it is not replaced itself.
        confidence: 1 less the corrected p-value of the parent's being better; at least the required
            one.
    """

    policy: str
    parent: str
    confidence: float


def truncation(
    fitness: Fitness, rng: np.random.Generator, *, fraction: float = 0.2, confidence: float = 0.95
) -> list[TakeOver]:
    """Replace each of the worst fraction by one drawn from the best fraction.

    Jaderberg et al. 2017, "Population based training of neural networks", section 4.1.1. As means
    select them, all ordered pairs count as compared.
    """
    judged = _judged(fitness, confidence)
    worst, best = _extremes(judged[np.argsort(-_score(fitness)[judged], kind="stable")], fraction)
    looked_at = len(judged) * (len(judged) - 1)
    found = []
    for policy in worst:
        parent = int(rng.choice(best))
        found += _take_over(fitness, parent, policy, looked_at, confidence)
    return found


def binary_tournament(
    fitness: Fitness, rng: np.random.Generator, *, confidence: float = 0.95
) -> list[TakeOver]:
    """Pair policies at random, and let the better of each pair replace the other.

    Pairs are drawn without looking at fitness, so only these count as compared, each both ways.
    With an odd number of policies one stays out.
    """
    judged = _judged(fitness, confidence)
    score, order = _score(fitness), rng.permutation(judged).tolist()
    pairs = list(pairwise(order))[::2]
    found = []
    for one, other in pairs:
        parent, policy = (one, other) if score[one] > score[other] else (other, one)
        found += _take_over(fitness, parent, policy, 2 * len(pairs), confidence)
    return found


def t_test(
    fitness: Fitness, rng: np.random.Generator, *, confidence: float = 0.95
) -> list[TakeOver]:
    """Let each policy draw a rival, which replaces it if a t test finds it better.

    Jaderberg et al. 2017, section 4.1.1, with Welch's test of recent returns. Rivals are drawn
    without looking at fitness, so there are as many tests as policies. If the rival is replaced
    too, its own parent takes over from both: it is better than the rival, which is better than the
    policy.
    """
    judged = _judged(fitness, confidence)
    count, score = len(judged), _score(fitness)
    parents: dict[int, tuple[int, float]] = {}
    for place, policy in enumerate(judged.tolist()):
        rival = int(judged[(place + 1 + int(rng.integers(count - 1))) % count]) if count > 1 else -1
        if rival >= 0 and score[rival] > score[policy]:
            chance = min(count * fitness.p_value(rival, policy), 1.0)
            if chance <= 1.0 - confidence:
                parents[policy] = rival, chance
    found = []
    for policy, (rival, chance) in parents.items():
        # Scores rise along a chain, so it ends.
        parent, doubt = rival, chance
        while parent in parents:
            parent, more = parents[parent]
            doubt = min(doubt + more, 1.0 - confidence)
        found.append(TakeOver(fitness.names[policy], fitness.names[parent], 1.0 - doubt))
    return found


def non_dominated(
    fitness: Fitness, rng: np.random.Generator, *, fraction: float = 0.2, confidence: float = 0.95
) -> list[TakeOver]:
    """Replace the worst fraction by several objectives by the best that are better.

    Policies are ordered by front and, on a front, by crowding distance, as in NSGA-II (Deb et al.
    2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II", section III). A policy is
    replaced by one drawn from those of the best fraction whose means are nowhere worse and that are
    better in one objective with the confidence; of two that trade objectives neither is replaced.
    All ordered pairs count as compared, in every objective.
    """
    judged = _judged(fitness, confidence, several=True)
    order = judged[order_by_crowding(fitness.means[judged], fitness.maximise)]
    worst, best = _extremes(order, fraction)
    signs = np.where(fitness.maximise, 1.0, -1.0)
    objectives = range(len(fitness.maximise))
    looked_at = len(judged) * (len(judged) - 1) * len(objectives)
    found = []
    for policy in worst:
        parents = []
        for parent in best:
            ahead = (fitness.means[parent] - fitness.means[policy]) * signs
            if (ahead < 0.0).any() or not (ahead > 0.0).any():
                continue
            chance = looked_at * min(fitness.p_value(parent, policy, d) for d in objectives)
            if min(chance, 1.0) <= 1.0 - confidence:
                parents.append((parent, min(chance, 1.0)))
        if parents:
            parent, chance = parents[int(rng.integers(len(parents)))]
            found.append(TakeOver(fitness.names[policy], fitness.names[parent], 1.0 - chance))
    return found


def order_by_crowding(means: np.ndarray, maximise: Sequence[bool]) -> Integers:
    """Return the indices of points [P, D] from the best to the worst: [P].

    By front, then by crowding distance, the most isolated first; ties in their order (the crowded
    comparison of Deb et al. 2002, section III-B).
    """
    if not len(means):
        return np.zeros(0, np.int64)
    flags = list(maximise)
    order: Integers = np.lexsort((-crowding_distance(means, flags), fronts(means, flags)))
    return order


def _judged(fitness: Fitness, confidence: float, several: bool = False) -> Integers:
    """Return the indices of policies that can be compared."""
    if not 0.0 <= confidence < 1.0:
        raise UsageError(f"confidence is {confidence}; it must be 0 or more, and less than 1")
    if not several and len(fitness.maximise) != 1:
        raise UsageError(
            f"fitness has {len(fitness.maximise)} objectives, and this selection takes one; "
            "non_dominated takes several"
        )
    return np.flatnonzero(fitness.judged)


def _score(fitness: Fitness) -> np.ndarray:
    """Return [P] scores: more is better."""
    return fitness.means[:, 0] if fitness.maximise[0] else -fitness.means[:, 0]


def _extremes(order: Integers, fraction: float) -> tuple[list[int], list[int]]:
    """Return the worst and the best of policies that are ordered from the best to the worst."""
    if not 0.0 < fraction <= 0.5:
        raise UsageError(f"fraction is {fraction}; it must be above 0, and 0.5 at most")
    if len(order) < 2:
        return [], []
    # Rounding may leave a fifth of ten just below two.
    count = max(1, int(fraction * len(order) + 1e-9))
    return order[len(order) - count :].tolist(), order[:count].tolist()


def _take_over(
    fitness: Fitness, parent: int, policy: int, looked_at: int, confidence: float
) -> list[TakeOver]:
    """Return the takeover, if the parent is better with the required confidence."""
    score = _score(fitness)
    chance = min(looked_at * fitness.p_value(parent, policy), 1.0)
    if score[parent] <= score[policy] or chance > 1.0 - confidence:
        return []
    return [TakeOver(fitness.names[policy], fitness.names[parent], 1.0 - chance)]
