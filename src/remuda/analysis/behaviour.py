"""Distances between policies by their distributions of actions.

Policies are compared on the same states. Where states are drawn from the same distribution for both
of a pair, the distance over states is that between the joint distributions of state and action, and
a metric.

Discrete actions: the Jensen-Shannon distance (Endres and Schindelin 2003, "A new metric for
probability distributions"), the root of the divergence in bits. Continuous actions: the Hellinger
distance between Gaussians with independent dimensions, because the Jensen-Shannon divergence of
Gaussians has no closed form. Both are metrics in [0, 1]: 0 for equal policies, 1 for policies
without a common action. Both are f-divergences, so an invertible change of the actions that both
policies share, such as squashing by tanh, does not change them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import entr

from remuda.analysis.as_json import as_json
from remuda.analysis.bias import check_draws
from remuda.analysis.payoff import Numbers, check_level
from remuda.errors import UsageError
from remuda.types import Integers

TOLERANCE = 1e-3
"""Allowed error of a sum of float32 probabilities."""


@dataclass(frozen=True)
class BehaviourDistances:
    """Distances between the actions of policies, with intervals.

    Attributes:
        distances: [N, N] between 0 and 1; NaN for two that visited no common state.
        intervals: [2, N, N] by resampling the states, whole episodes where they are known; NaN
            where there is a single one. The distributions of actions are known exactly.
        overlap: [N, N] the share of their visits that each two have in common; 1 where all states
            count for all policies.
        mean: of the distances of all pairs that have one; NaN where none has.
        mean_interval: (low, high) of `mean`.
    """

    distances: Numbers
    intervals: Numbers
    overlap: Numbers
    mean: float
    mean_interval: tuple[float, float]
    level: float

    def as_summary(self) -> dict[str, Any]:
        """Return plain data; None: unknown."""
        return {
            "distances": as_json(self.distances),
            "low": as_json(self.intervals[0]),
            "high": as_json(self.intervals[1]),
            "overlap": as_json(self.overlap),
            "mean": as_json(self.mean),
            "mean_interval": [as_json(end) for end in self.mean_interval],
            "level": self.level,
        }


def jensen_shannon(
    probabilities: npt.ArrayLike,
    visits: npt.ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    episodes: npt.ArrayLike | None = None,
    draws: int = 400,
    level: float = 0.95,
) -> BehaviourDistances:
    """Return Jensen-Shannon distances between policies with discrete actions.

    - `probabilities`: [N, S, A] of the actions, by policy and state.
    - `visits`: [N, S] how often each policy was in each state. Each pair is compared on the states
      that both visited; a state visited by shares f and g of their visits has weight min(f, g).
      Distances of different pairs are then over different states and need not obey the triangle
      inequality. None: all states count equally.
    - `episodes`: [S] the episode of each state; whole episodes are resampled, since their states
      are alike. None: each state by itself.
    """
    p = np.asarray(probabilities, np.float64)
    if p.ndim != 3 or min(p.shape) < 1:
        raise UsageError(f"probabilities are {p.shape}; they must be [policies, states, actions]")
    seen = _seen(visits, p.shape[:2])
    sums = p.sum(2)
    wrong = seen & ~((np.abs(sums - 1.0) <= TOLERANCE) & (p >= 0.0).all(2))
    if wrong.any():
        policy, state = np.argwhere(wrong)[0]
        raise UsageError(
            f"probabilities of policy {policy} in state {state} add up to {sums[policy, state]:g}, "
            "or one is negative; give probabilities rather than logits"
        )
    p = np.where(seen[..., None], p, 1.0 / p.shape[2])
    p = p / p.sum(2, keepdims=True)
    entropies = entr(p).sum(2)
    squared = np.concatenate(
        [
            entr((p[i] + p[i + 1 :]) / 2.0).sum(2) - (entropies[i] + entropies[i + 1 :]) / 2.0
            for i in range(len(p))
        ]
    )
    squared = np.clip(squared / np.log(2.0), 0.0, 1.0)
    return _over_states(squared, visits, episodes, len(p), rng, draws, level)


def hellinger(
    means: npt.ArrayLike,
    deviations: npt.ArrayLike,
    visits: npt.ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    episodes: npt.ArrayLike | None = None,
    draws: int = 400,
    level: float = 0.95,
) -> BehaviourDistances:
    """Return Hellinger distances between Gaussian policies with independent dimensions.

    In a state the squared distance is 1 - prod_d sqrt(2 s t / (s^2 + t^2)) exp(-(m - n)^2 / (4 (s^2
    + t^2))) for Gaussians (m, s) and (n, t) in each dimension d; squares are averaged over states.

    `means`: [N, S, D] before any squashing; `deviations`: [N, S, D] above 0; `visits` and
    `episodes` as for `jensen_shannon`.
    """
    m, s = np.asarray(means, np.float64), np.asarray(deviations, np.float64)
    if m.ndim != 3 or min(m.shape) < 1 or m.shape != s.shape:
        raise UsageError(
            f"means are {m.shape} and deviations {s.shape}; both must be [policies, states, "
            "dimensions]"
        )
    seen = _seen(visits, m.shape[:2])
    wrong = seen & ~(np.isfinite(m) & np.isfinite(s) & (s > 0.0)).all(2)
    if wrong.any():
        policy, state = np.argwhere(wrong)[0]
        raise UsageError(
            f"policy {policy} in state {state}: means must be finite, deviations greater than 0 "
            "(a policy without noise has no distribution to compare)"
        )
    m, s = np.where(seen[..., None], m, 0.0), np.where(seen[..., None], s, 1.0)
    squared = []
    for i in range(len(m)):
        total = s[i] ** 2 + s[i + 1 :] ** 2
        logs = 0.5 * np.log(2.0 * s[i] * s[i + 1 :] / total)
        logs -= (m[i] - m[i + 1 :]) ** 2 / (4.0 * total)
        squared.append(np.maximum(-np.expm1(logs.sum(2)), 0.0))
    return _over_states(np.concatenate(squared), visits, episodes, len(m), rng, draws, level)


def _seen(visits: npt.ArrayLike | None, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Check visits; return where each policy was at all: [N, S]."""
    if visits is None:
        return np.ones(shape, np.bool_)
    array = np.asarray(visits, np.float64)
    if array.shape != shape:
        raise UsageError(f"visits are {array.shape}; they must be [policies, states], {shape}")
    if not (np.isfinite(array) & (array >= 0.0)).all():
        raise UsageError("visits: counts must be finite and not negative")
    return array > 0.0


def _over_states(
    squared: Numbers,
    visits: npt.ArrayLike | None,
    episodes: npt.ArrayLike | None,
    count: int,
    rng: np.random.Generator,
    draws: int,
    level: float,
) -> BehaviourDistances:
    """Return average squared distances [pairs, S] over states, and over resampled ones."""
    check_level(level)
    check_draws(draws)
    first, second = np.triu_indices(count, 1)
    states = squared.shape[1]
    weights = np.full(squared.shape, 1.0 / states)
    overlap = np.ones(len(squared))
    if visits is not None:
        shares = np.asarray(visits, np.float64)
        shares = shares / np.maximum(shares.sum(1, keepdims=True), 1e-300)
        weights = np.minimum(shares[first], shares[second])
        overlap = weights.sum(1)
    weighted = squared * weights
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = np.sqrt(weighted.sum(1) / weights.sum(1))
        times = _resampled(_episodes(episodes, states), rng, draws)
        if times is None:
            drawn = np.full((len(squared), draws), np.nan)
        else:
            drawn = np.sqrt(weighted @ times.T / (weights @ times.T))
    ends = [0.5 - level / 2.0, 0.5 + level / 2.0]
    low_high = _quantiles(drawn, ends)
    known = ~np.isnan(distances)
    means = np.full(draws, np.nan)
    if known.any() and not np.isnan(drawn[known]).all(0).any():
        means = np.nanmean(drawn[known], axis=0)
    low, high = _quantiles(means[None], ends)[:, 0]
    return BehaviourDistances(
        _square(distances, count, 0.0),
        np.stack([_square(each, count, 0.0) for each in low_high]),
        _square(overlap, count, 1.0),
        float(distances[known].mean()) if known.any() else float("nan"),
        (float(low), float(high)),
        level,
    )


def _episodes(episodes: npt.ArrayLike | None, states: int) -> Integers:
    if episodes is None:
        return np.arange(states)
    array = np.asarray(episodes)
    if array.shape != (states,):
        raise UsageError(f"episodes are {array.shape}; they must be [states], ({states},)")
    numbers: Integers = np.unique(array, return_inverse=True)[1].astype(np.int64)
    return numbers


def _resampled(episodes: Integers, rng: np.random.Generator, draws: int) -> Numbers | None:
    """Return [draws, S] how often each state is drawn; None: there is one episode only."""
    count = int(episodes.max()) + 1
    if count < 2:
        return None
    times = rng.multinomial(count, np.full(count, 1.0 / count), draws)
    found: Numbers = times[:, episodes].astype(np.float64)
    return found


def _quantiles(drawn: Numbers, ends: list[float]) -> Numbers:
    """Return [2, pairs] of draws [pairs, draws], ignoring draws without a common state."""
    found = np.full((2, len(drawn)), np.nan)
    known = ~np.isnan(drawn).all(1)
    if known.any():
        found[:, known] = np.nanquantile(drawn[known], ends, axis=1)
    return found


def _square(pairs: Numbers, count: int, diagonal: float) -> Numbers:
    """Return the [N, N] matrix with values [pairs] in its upper triangle."""
    square = np.full((count, count), diagonal)
    square[np.triu_indices(count, 1)] = pairs
    square.T[np.triu_indices(count, 1)] = pairs
    return square
