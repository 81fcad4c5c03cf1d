"""Distances between policies: how much their action distributions differ on the same states.

For discrete actions this is the Jensen-Shannon distance, the square root of the divergence in bits
(Endres and Schindelin 2003, "A new metric for probability distributions"). For continuous actions
it is the Hellinger distance between Gaussians with independent dimensions, because their
Jensen-Shannon divergence has no closed form. Both are metrics in [0, 1]: 0 for equal policies, 1
for policies without a common action. Both derive from f-divergences, so they do not change if both
policies' actions pass the same invertible transform, such as tanh squashing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import squareform
from scipy.special import entr

from remuda.analysis.as_json import as_json
from remuda.errors import UsageError
from remuda.types import Numbers

TOLERANCE = 1e-3  # allowed error of a sum of float32 probabilities
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
    p = p / p.sum(2, keepdims=True)
    entropies = entr(p).sum(2)
    squared = np.concatenate(
        [
            entr((p[i] + p[i + 1 :]) / 2.0).sum(2) - (entropies[i] + entropies[i + 1 :]) / 2.0
            for i in range(len(p))
        ]
    )
    squared = np.clip(squared / np.log(2.0), 0.0, 1.0)
    return _over_states(squared, episodes, rng)


def hellinger(
    means: npt.ArrayLike,
    deviations: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    episodes: npt.ArrayLike | None = None,
) -> BehaviourDistances:
    """Return Hellinger distances between Gaussian policies with independent dimensions.

    In a state the squared distance is 1 - prod_d sqrt(2 s t / (s^2 + t^2)) exp(-(m - n)^2 / (4 (s^2
    + t^2))) for Gaussians (m, s) and (n, t) in each dimension d; squares are averaged over states.

    `means`: [N, S, D] before any squashing; `deviations`: [N, S, D] above 0; `episodes` as for
    `jensen_shannon`.
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
    squared = []
    for i in range(len(m)):
        total = s[i] ** 2 + s[i + 1 :] ** 2
        logs = 0.5 * np.log(2.0 * s[i] * s[i + 1 :] / total)
        logs -= (m[i] - m[i + 1 :]) ** 2 / (4.0 * total)
        squared.append(np.maximum(-np.expm1(logs.sum(2)), 0.0))
    return _over_states(np.concatenate(squared), episodes, rng)


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
