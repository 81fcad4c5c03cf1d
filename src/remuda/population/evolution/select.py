"""Selection for PBT: the policies to replace and their parents, by statistical tests.

In each call, all returned takeovers are correct with probability at least `confidence`. With 0.95,
equally good policies are replaced in at most one of 20 calls. To ensure this, the p-value of each
pair is multiplied by the number of compared pairs (Bonferroni; Dunn 1961, "Multiple comparisons
among means"). With confidence 0 only the means decide. t tests are exact for normal returns, and
approximate for others.

Policies without a known fitness (`Fitness.judged`) neither take over nor are replaced.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from remuda.population.evolution.fitness import Fitness
from remuda.population.evolution.fronts import crowding_distance, fronts
from remuda.types import Integers, Numbers


class TakeOver(NamedTuple):
    """A replacement of one policy by a copy of another."""

    policy: str  # the policy to replace
    parent: str  # the policy to copy, which is not replaced itself


def truncation(
    fitness: Fitness, rng: Generator, *, fraction: float = 0.2, confidence: float = 0.95
) -> list[TakeOver]:
    """Replace each policy of the worst fraction by a policy drawn from the best fraction.

    Jaderberg et al. 2017, "Population based training of neural networks", section 4.1.1. Since the
    means select the pairs, all ordered pairs count as compared.
    """
    judged = np.flatnonzero(fitness.judged)
    order = np.argsort(-fitness.means[judged, 0], kind="stable")
    worst, best = _extremes(judged[order], fraction)
    compared = len(judged) * (len(judged) - 1)
    found = []
    for policy in worst:
        parent = int(rng.choice(best))
        if _is_better(fitness, parent, policy, compared, confidence):
            found.append(TakeOver(fitness.names[policy], fitness.names[parent]))
    return found


def binary_tournament(
    fitness: Fitness, rng: Generator, *, confidence: float = 0.95
) -> list[TakeOver]:
    """Pair policies at random; the better of each pair replaces the other.

    Pairs do not depend on fitness, so only these pairs count as compared, each in both directions.
    """
    judged, score = np.flatnonzero(fitness.judged), fitness.means[:, 0]
    order = rng.permutation(judged).tolist()
    pairs = list(pairwise(order))[::2]
    found = []
    for first, second in pairs:
        parent, policy = (first, second) if score[first] > score[second] else (second, first)
        if _is_better(fitness, parent, policy, 2 * len(pairs), confidence):
            found.append(TakeOver(fitness.names[policy], fitness.names[parent]))
    return found


def t_test(fitness: Fitness, rng: Generator, *, confidence: float = 0.95) -> list[TakeOver]:
    """Draw a rival for each policy, and replace the policy if Welch's t test prefers the rival.

    Jaderberg et al. 2017, section 4.1.1. There are as many tests as policies. If the rival is
    replaced too, its own parent takes over from both.
    """
    judged = np.flatnonzero(fitness.judged)
    count = len(judged)
    parents: dict[int, int] = {}
    for i, policy in enumerate(judged.tolist()):
        rival = int(judged[(i + 1 + int(rng.integers(count - 1))) % count]) if count > 1 else -1
        if rival >= 0 and _is_better(fitness, rival, policy, count, confidence):
            parents[policy] = rival
    found = []
    for policy, rival in parents.items():
        parent = rival
        while parent in parents:  # scores increase along a chain, so the loop ends
            parent = parents[parent]
        found.append(TakeOver(fitness.names[policy], fitness.names[parent]))
    return found


def non_dominated(
    fitness: Fitness, rng: Generator, *, fraction: float = 0.2, confidence: float = 0.95
) -> list[TakeOver]:
    """Replace the worst fraction by better policies of the best fraction, by several objectives.

    Policies are ordered by Pareto front, then by crowding distance (NSGA-II, Deb et al. 2002,
    section III). A parent is drawn from the policies of the best fraction whose means are nowhere
    worse, and which are better in one objective with the required confidence. All ordered pairs
    count as compared, in every objective.
    """
    judged = np.flatnonzero(fitness.judged)
    order = judged[order_by_crowding(fitness.means[judged])]
    worst, best = _extremes(order, fraction)
    objectives = range(fitness.means.shape[1])
    compared = len(judged) * (len(judged) - 1) * len(objectives)
    found = []
    for policy in worst:
        parents = []
        for parent in best:
            ahead = fitness.means[parent] - fitness.means[policy]
            if (ahead < 0.0).any() or not (ahead > 0.0).any():
                continue
            p_value = compared * min(fitness.p_value(parent, policy, d) for d in objectives)
            if min(p_value, 1.0) <= 1.0 - confidence:
                parents.append(parent)
        if parents:
            parent = parents[int(rng.integers(len(parents)))]
            found.append(TakeOver(fitness.names[policy], fitness.names[parent]))
    return found


def order_by_crowding(means: Numbers) -> Integers:
    """Return indices of points [P, D], the best first: by front, then by crowding distance."""
    if not len(means):
        return np.zeros(0, np.int64)
    flags = [True] * means.shape[1]
    order: Integers = np.lexsort((-crowding_distance(means, flags), fronts(means, flags)))
    return order


def _extremes(order: Integers, fraction: float) -> tuple[list[int], list[int]]:
    """Return the worst and the best policies of an order that starts with the best."""
    if len(order) < 2:
        return [], []
    # Avoid rounding errors: a fifth of ten may be just below two.
    count = max(1, int(fraction * len(order) + 1e-9))
    return order[len(order) - count :].tolist(), order[:count].tolist()


def _is_better(
    fitness: Fitness, parent: int, policy: int, compared: int, confidence: float
) -> bool:
    """Return whether the parent is better with the required confidence among `compared` pairs."""
    if fitness.means[parent, 0] <= fitness.means[policy, 0]:
        return False
    return min(compared * fitness.p_value(parent, policy), 1.0) <= 1.0 - confidence
