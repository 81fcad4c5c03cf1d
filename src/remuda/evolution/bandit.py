"""PB2: a bandit that suggests hyperparameters from all earlier trials.

Parker-Holder et al. 2020, "Provably efficient online hyperparameter optimization with
population-based bandits": the gain of fitness between two decisions is a function of
hyperparameters that changes with time. A Gaussian process models it, and the suggestions have the
greatest upper confidence bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from remuda.errors import UsageError
from remuda.evolution.gaussian_process import GaussianProcess, fit_kernel
from remuda.evolution.numbers import Evolvable, from_units, to_units
from remuda.types import Numbers

MOST = 100
"""Most trials used, the newest: work grows with their third power."""
CANDIDATES = 1000
"""Points compared for each suggestion."""
ROUNDS, AROUND = 8, 64
"""The best point is refined in rounds, each among so many points around it, ever closer."""


@dataclass(frozen=True)
class Trial:
    """Hyperparameters between two decisions, with their gain.

    Attributes:
        values: the hyperparameters.
        time: counted in decisions.
        gain: the rise of fitness, in any unit; non-finite counts as the least of all gains, since
            hyperparameters that break a policy are not worth retrying.
    """

    values: Mapping[str, float]
    time: float
    gain: float


def suggest(
    numbers: Sequence[Evolvable],
    trials: Sequence[Trial],
    time: float,
    rng: np.random.Generator,
    *,
    count: int = 1,
    pending: Sequence[Mapping[str, float]] = (),
    kappa: float | None = None,
) -> list[dict[str, float]]:
    """Suggest hyperparameters for so many policies.

    Each is the point with the greatest mean + kappa * standard deviation (equation 4 of the paper),
    given all trials, and with pending ones at their expected result. Without a finite gain they are
    drawn from the prior; with equal gains they are the least explored points.

    `kappa`: the weight of the unknown. None: sqrt(0.2 + max(0, log(0.4 N))) of N trials, as in the
    authors' program.
    """
    if not numbers or count < 0:
        raise UsageError(f"{count} suggestions of {len(numbers)} numbers: there is nothing to try")
    if not all(math.isfinite(each) for each in (time, *(trial.time for trial in trials))):
        raise UsageError("the time of a trial or of the decision is not finite; count decisions")
    if kappa is not None and not 0.0 <= kappa < math.inf:
        raise UsageError(f"kappa is {kappa}; it must be a number of 0 or more")
    newest = sorted(trials, key=lambda trial: trial.time)[-MOST:]
    if not any(math.isfinite(trial.gain) for trial in newest):
        return [{number.name: number.draw(rng) for number in numbers} for _ in range(count)]
    points = to_units(numbers, [trial.values for trial in newest])
    times = np.array([trial.time for trial in newest], np.float64)
    values = standardised(np.array([trial.gain for trial in newest], np.float64))
    process = GaussianProcess(fit_kernel(points, times, values), points, times, values)
    process = process.with_pending(to_units(numbers, pending), time)
    if kappa is None:
        kappa = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(newest))))
    chosen = np.zeros((0, len(numbers)))
    for _ in range(count):
        best = _best(process, numbers, time, kappa, points, rng)
        process = process.with_pending(best, time)
        chosen = np.concatenate([chosen, best])
    return from_units(numbers, chosen)


def standardised(gains: Numbers) -> Numbers:
    """Return gains [N] with mean 0 and deviation 1; equal ones become 0, non-finite the least."""
    finite = np.isfinite(gains)
    filled = np.where(finite, gains, gains[finite].min())
    # Divided first, so that no square of a huge gain overflows.
    scaled = filled / max(float(np.abs(filled).max()), np.finfo(np.float64).tiny)
    away = scaled - scaled.mean()
    spread = float(away.std())
    found: Numbers = away / spread if spread > 1e-9 else np.zeros_like(away)
    return found


def _best(
    process: GaussianProcess,
    numbers: Sequence[Evolvable],
    time: float,
    kappa: float,
    tried: Numbers,
    rng: np.random.Generator,
) -> Numbers:
    """Return the point with the greatest upper confidence bound, [1, D]."""

    def best_of(points: Numbers) -> Numbers:
        there = to_units(numbers, from_units(numbers, points))
        mean, deviation = process.predict(there, time)
        found: Numbers = there[[int(np.argmax(mean + kappa * deviation))]]
        return found

    best = best_of(np.concatenate([tried, rng.random((CANDIDATES, len(numbers)))]))
    for narrower in range(1, ROUNDS + 1):
        moves = rng.standard_normal((AROUND, len(numbers))) * 0.2 * 0.5**narrower
        best = best_of(np.concatenate([best, np.clip(best + moves, 0.0, 1.0)]))
    return best
