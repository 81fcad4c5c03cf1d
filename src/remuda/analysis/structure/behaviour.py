"""Distances between policies: how much their action distributions differ on the same states.

For discrete actions this is the Jensen-Shannon distance, the square root of the divergence in bits
(Endres and Schindelin 2003, "A new metric for probability distributions"). For continuous actions,
and for too many combinations of discrete choices, it is the Hellinger distance between
distributions with independent dimensions, because it follows from the distances of the dimensions.
It compares continuous actions in the environment's bounds: clipped to
them (PPO) or squashed into them by tanh (SAC). Both are metrics in [0, 1]: 0 for equal policies, 1
for policies without a common action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import squareform
from scipy.special import entr, ndtr

from remuda.analysis.as_json import as_json
from remuda.errors import UsageError
from remuda.types import Numbers

TOLERANCE = 1e-3  # allowed error of a sum of float32 probabilities
QUANTILES = np.linspace(-6.0, 6.0, 97)
"""Edges of intervals of a normal distribution, in standard deviations."""
FREE = np.array(np.inf)  # the limit of actions without one
MOST = 1.0 - 1e-12  # the largest squashed action in numerical integration
DRAWS, LEVEL = 400, 0.95  # resamples of the episodes, and the probability of intervals


@dataclass(frozen=True)
class BehaviourDistances:
    """Distances between the action distributions of policies, with intervals."""

    distances: Numbers  # [N, N] between 0 and 1
    intervals: Numbers  # [2, N, N] from resampled episodes; NaN with a single episode
    mean: float  # over all pairs
    mean_interval: tuple[float, float]
    level: float = LEVEL

    def as_summary(self) -> dict[str, Any]:
        """Return JSON values; None: unknown."""
        return {
            "distances": as_json(self.distances),
            "low": as_json(self.intervals[0]),
            "high": as_json(self.intervals[1]),
            "mean": as_json(self.mean),
            "mean_interval": as_json(self.mean_interval),
            "level": self.level,
        }


def jensen_shannon(
    probabilities: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    episodes: npt.ArrayLike | None = None,
) -> BehaviourDistances:
    """Return Jensen-Shannon distances between policies with discrete actions.

    - `probabilities`: [N, S, A] by policy, state and action.
    - `episodes`: [S] the episode of each state. Whole episodes are resampled, since their states
      are correlated. None: each state is resampled independently.
    """
    p = _checked(probabilities)
    entropies = entr(p).sum(2)
    squared = np.concatenate(
        [
            entr((p[i] + p[i + 1 :]) / 2.0).sum(2) - (entropies[i] + entropies[i + 1 :]) / 2.0
            for i in range(len(p))
        ]
    )
    squared = np.clip(squared / np.log(2.0), 0.0, 1.0)
    return _over_states(squared, episodes, rng)


def _checked(probabilities: npt.ArrayLike) -> Numbers:
    """Return probabilities that add up to 1 exactly: [N, S, A] by policy, state and action."""
    p = np.asarray(probabilities, np.float64)
    if p.ndim != 3 or min(p.shape) < 1:
        raise UsageError(f"probabilities are {p.shape}; they must be [policies, states, actions]")
    sums = p.sum(2)
    wrong = ~((np.abs(sums - 1.0) <= TOLERANCE) & (p >= 0.0).all(2))
    if wrong.any():
        policy, state = np.argwhere(wrong)[0]
        raise UsageError(
            f"probabilities of policy {policy} in state {state} add up to {sums[policy, state]:g}, "
            "or one is negative; give probabilities rather than logits"
        )
    found: Numbers = p / p.sum(2, keepdims=True)
    return found


def hellinger_of_choices(
    choices: Sequence[npt.ArrayLike],
    *,
    rng: np.random.Generator,
    episodes: npt.ArrayLike | None = None,
) -> BehaviourDistances:
    """Return Hellinger distances between policies with several independent discrete choices.

    In a state the squared distance is 1 - prod_d sum_a sqrt(p_d(a) q_d(a)), which is that of the
    joint distributions of all choices, however many combinations there are.

    - `choices`: [N, S, A_d] probabilities by policy, state and option, for each choice d.
    - `episodes`: as for `jensen_shannon`.
    """
    roots = [np.sqrt(_checked(each)) for each in choices]
    pairs = combinations(range(len(roots[0])), 2)
    alike = [math.prod((each[i] * each[j]).sum(1) for each in roots) for i, j in pairs]
    squared = 1.0 - np.array(alike).reshape(len(alike), roots[0].shape[1])
    return _over_states(np.clip(squared, 0.0, 1.0), episodes, rng)


def hellinger(
    means: npt.ArrayLike,
    deviations: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    episodes: npt.ArrayLike | None = None,
    limits: npt.ArrayLike = (-np.inf, np.inf),
    squashed: Sequence[bool] | None = None,
) -> BehaviourDistances:
    """Return Hellinger distances between policies with continuous, independent actions.

    A policy draws each dimension of an action from a normal distribution, and then clips it to the
    limits or squashes it by tanh. In a state the squared distance is 1 - prod_d BC_d, where BC is
    the Bhattacharyya coefficient of the resulting distributions of dimension d; squares are
    averaged over states.

    - `means`: [N, S, D] before clipping or squashing.
    - `deviations`: [N, S, D], above 0.
    - `episodes`: as for `jensen_shannon`.
    - `limits`: the lower and the upper limit of actions, each [D] or a number.
    - `squashed`: [N] which policies squash their actions. None: none of them.
    """
    m, s = np.asarray(means, np.float64), np.asarray(deviations, np.float64)
    if m.ndim != 3 or min(m.shape) < 1 or m.shape != s.shape:
        raise UsageError(
            f"means are {m.shape} and deviations {s.shape}; both must be [policies, states, "
            "dimensions]"
        )
    wrong = ~(np.isfinite(m) & np.isfinite(s) & (s > 0.0)).all(2)
    if wrong.any():
        policy, state = np.argwhere(wrong)[0]
        raise UsageError(
            f"policy {policy} in state {state}: means must be finite, deviations greater than 0 "
            "(a policy without noise has no distribution to compare)"
        )
    low, high = np.asarray(limits, np.float64)
    is_squashed = np.zeros(len(m), np.bool_) if squashed is None else np.asarray(squashed)
    squared = np.zeros((len(m) * (len(m) - 1) // 2, m.shape[1]))
    for pair, (i, j) in enumerate(combinations(range(len(m)), 2)):
        if is_squashed[i] != is_squashed[j]:
            clips, squashes = (j, i) if is_squashed[i] else (i, j)
            found = _of_clipped_and_squashed(m[clips], s[clips], m[squashes], s[squashes])
        elif is_squashed[i]:  # tanh is invertible, so it does not change the coefficient
            found = _of_clipped(m[i], s[i], m[j], s[j], -FREE, FREE)
        else:
            found = _of_clipped(m[i], s[i], m[j], s[j], low, high)
        squared[pair] = np.clip(1.0 - found.prod(1), 0.0, 1.0)
    return _over_states(squared, episodes, rng)


def _of_clipped(
    m: Numbers, s: Numbers, n: Numbers, t: Numbers, low: Numbers, high: Numbers
) -> Numbers:
    """Return the coefficients of normal distributions (m, s) and (n, t), clipped to limits.

    Between the limits, the square root of the product of two normal densities is a normal density
    times their unclipped coefficient. All that is beyond a limit has the probability of the limit.
    """
    total = s**2 + t**2
    whole = np.sqrt(2.0 * s * t / total) * np.exp(-((m - n) ** 2) / (4.0 * total))
    mean, deviation = (m * t**2 + n * s**2) / total, s * t * np.sqrt(2.0 / total)
    between: Numbers = ndtr((high - mean) / deviation) - ndtr((low - mean) / deviation)
    below = np.sqrt(ndtr((low - m) / s) * ndtr((low - n) / t))
    above = np.sqrt(ndtr((m - high) / s) * ndtr((n - high) / t))
    found: Numbers = whole * between + below + above
    return found


def _of_clipped_and_squashed(m: Numbers, s: Numbers, n: Numbers, t: Numbers) -> Numbers:
    """Return the coefficients of normal distributions (m, s), and of tanh of those of (n, t).

    They are sums over intervals that divide both distributions finely. A squashed action is never
    at a limit, so what is clipped has no part in them.
    """
    clipped = np.arctanh(np.clip(m[..., None] + s[..., None] * QUANTILES, -MOST, MOST))
    edges = np.concatenate((clipped, n[..., None] + t[..., None] * QUANTILES), -1)
    edges.sort(-1)
    p = np.diff(ndtr((np.tanh(edges) - m[..., None]) / s[..., None]))
    q = np.diff(ndtr((edges - n[..., None]) / t[..., None]))
    found: Numbers = np.sqrt(np.maximum(p, 0.0) * np.maximum(q, 0.0)).sum(-1)
    return found


def _over_states(
    squared: Numbers, episodes: npt.ArrayLike | None, rng: np.random.Generator
) -> BehaviourDistances:
    """Return root mean squared distances over states, with intervals from resampled episodes."""
    states = squared.shape[1]
    array = np.arange(states) if episodes is None else np.asarray(episodes)
    if array.shape != (states,):
        raise UsageError(f"episodes are {array.shape}; they must be [states], ({states},)")
    known, numbers = np.unique(array, return_inverse=True)
    count = len(known)
    distances = np.sqrt(squared.mean(1))
    drawn = np.full((len(squared), DRAWS), np.nan)
    if count > 1:
        # How often each draw contains each state.
        times = rng.multinomial(count, np.full(count, 1.0 / count), DRAWS)[:, numbers]
        drawn = np.sqrt(squared @ times.T / times.sum(1))
    ends = [0.5 - LEVEL / 2.0, 0.5 + LEVEL / 2.0]
    low, high = np.quantile(drawn.mean(0), ends) if len(drawn) else (np.nan, np.nan)
    return BehaviourDistances(
        squareform(distances),
        np.stack([squareform(each) for each in np.quantile(drawn, ends, axis=1)]),
        float(distances.mean()) if len(distances) else float("nan"),
        (float(low), float(high)),
    )
