"""PB2: a bandit that suggests hyperparameters from earlier trials.

Parker-Holder et al. 2020, "Provably efficient online hyperparameter optimization with
population-based bandits": the gain in fitness between two decisions is a function of the
hyperparameters and time. A Gaussian process models it (Bogunovic et al. 2016, "Time-varying
Gaussian process bandit optimization", section 2). A suggestion maximises the upper confidence
bound.

The linear algebra is written out here, for up to a hundred observations. Libraries use threads even
for such small matrices. On cores that are busy with playing and training, these threads wait a
hundred times longer than they compute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from remuda.population.evolution.numbers import Evolvable, from_units, to_units
from remuda.types import Numbers


@dataclass(frozen=True)
class Kernel:
    """A squared exponential kernel that forgets with time, with observation noise.

    k((x, t), (x', t')) = variance * exp(-|x - x'|^2 / (2 length^2)) * (1 - epsilon)^(|t - t'| / 2)
    """

    variance: float = 1.0  # of the function
    length: float = 0.4  # length scale in hyperparameter space
    epsilon: float = 0.05  # the share forgotten in one unit of time, 0 to 1
    noise: float = 0.1  # variance of one observation around the function

    def between(
        self, points: Numbers, times: Numbers, others: Numbers, other_times: Numbers
    ) -> Numbers:
        """Return the covariances [N, M] of the function at points [N, D] and at others [M, D]."""
        square = ((points[:, None] - others) ** 2).sum(-1)
        distances = np.abs(times[:, None] - other_times)
        found: Numbers = (
            self.variance
            * np.exp(-0.5 * square / self.length**2)
            * np.power(1.0 - self.epsilon, 0.5 * distances)
        )
        return found


class GaussianProcess:
    """The posterior of a function after N noisy observations; the prior mean is 0."""

    def __init__(self, kernel: Kernel, points: Numbers, times: Numbers, values: Numbers) -> None:
        self.kernel, self.points, self.times, self.values = kernel, points, times, values
        self._factor = np.zeros((0, 0))
        self._weights = np.zeros(0)
        if len(points):
            covariances = kernel.between(points, times, points, times)
            covariances[np.diag_indices(len(points))] += kernel.noise
            self._factor = cholesky(covariances)
            inverse = solve_lower(self._factor, np.eye(len(points)))
            whitened = (inverse * values).sum(1)
            self._weights = (inverse * whitened[:, None]).sum(0)

    def predict(self, points: Numbers, time: float) -> tuple[Numbers, Numbers]:
        """Return mean and standard deviation, each [M], at points [M, D] at one time."""
        times = np.full(len(points), time)
        if not len(self.points):
            return np.zeros(len(points)), np.full(len(points), np.sqrt(self.kernel.variance))
        covariances = self.kernel.between(self.points, self.times, points, times)
        explained = solve_lower(self._factor, covariances)
        variance = self.kernel.variance - (explained**2).sum(0)
        mean: Numbers = (covariances * self._weights[:, None]).sum(0)
        return mean, np.sqrt(np.maximum(variance, 0.0))

    def with_pending(self, points: Numbers, time: float) -> GaussianProcess:
        """Return the process as if pending points [M, D] had given their expected results.

        Means stay, and deviations shrink near these points, which spreads a batch. GP-BUCB calls
        such results hallucinated (Desautels et al. 2014, "Parallelizing exploration-exploitation
        tradeoffs in Gaussian process bandit optimization", section 4).
        """
        if not len(points):
            return self
        mean, _ = self.predict(points, time)
        return GaussianProcess(
            self.kernel,
            np.concatenate([self.points, points]),
            np.concatenate([self.times, np.full(len(points), time)]),
            np.concatenate([self.values, mean]),
        )


_PRIOR = np.log([1.0, 0.4, -0.5 * np.log(1.0 - 0.05), 0.1])
"""Prior means of the logarithms of variance, length, rate of forgetting and noise. Points are in
the unit cube, values have variance 1, and time counts decisions."""
_SPREAD = np.array([0.7, 0.7, 1.5, 1.5])
"""Prior standard deviations of these logarithms: a kernel with few observations stays uncertain."""


def fit_kernel(points: Numbers, times: Numbers, values: Numbers) -> Kernel:
    """Return the kernel of maximum posterior probability, with a log-normal prior.

    `points`: [N, D] in the unit cube; `times`: [N]; `values`: [N] with mean 0 and variance 1.
    """
    from scipy.optimize import minimize  # imported here: only `explore pb2` needs it

    if len(points) < 2:
        return Kernel()
    square = ((points[:, None] - points) ** 2).sum(-1)
    distances = np.abs(times[:, None] - times)
    found = minimize(
        loss_and_gradient,
        _PRIOR,
        (square, distances, values),
        method="L-BFGS-B",
        jac=True,
        bounds=np.stack((_PRIOR - 3 * _SPREAD, _PRIOR + 3 * _SPREAD), 1),
    )
    fitted = found.x if np.isfinite(found.fun) else _PRIOR
    variance, length, rate, noise = np.exp(fitted).tolist()
    return Kernel(variance, length, float(-np.expm1(-2.0 * rate)), noise)


def loss_and_gradient(
    logarithms: Numbers, square: Numbers, distances: Numbers, values: Numbers
) -> tuple[float, Numbers]:
    """Return a kernel's negative log posterior, up to a constant, and its gradient.

    Rasmussen and Williams 2006, "Gaussian processes for machine learning", equations 2.30 and 5.9,
    plus the prior of the four logarithms.

    `logarithms`: [4]; `square`: [N, N] squared distances in space; `distances`: [N, N] distances in
    time; `values`: [N].
    """
    variance, length, rate, noise = np.exp(logarithms)
    signal = variance * np.exp(-0.5 * square / length**2 - rate * distances)
    factor = cholesky(signal + noise * np.eye(len(values)))
    inverse = solve_lower(factor, np.eye(len(values)))
    precision = np.einsum("ki,kj->ij", inverse, inverse)
    weights = (precision * values).sum(1)
    inner = precision - np.outer(weights, weights)
    slopes = (signal, signal * square / length**2, -rate * distances * signal)
    away = (logarithms - _PRIOR) / _SPREAD
    loss = 0.5 * (values * weights).sum() + np.log(np.diag(factor)).sum() + 0.5 * (away**2).sum()
    gradient = [0.5 * (inner * slope).sum() for slope in slopes] + [0.5 * noise * np.trace(inner)]
    return float(loss), np.array(gradient) + away / _SPREAD


def cholesky(matrix: Numbers) -> Numbers:
    """Return the lower triangular L with L L^T = matrix, [N, N] symmetric and positive definite."""
    factor = np.zeros_like(matrix)
    for j in range(len(matrix)):
        column = matrix[j:, j] - np.einsum("ik,k->i", factor[j:, :j], factor[j, :j])
        factor[j:, j] = column / np.sqrt(column[0])
    return factor


def solve_lower(factor: Numbers, right: Numbers) -> Numbers:
    """Return X [N, M] with factor X = right, for a lower triangular factor [N, N]."""
    found = np.zeros_like(right)
    for j in range(len(factor)):
        found[j] = (right[j] - np.einsum("k,km->m", factor[j, :j], found[:j])) / factor[j, j]
    return found


MOST = 100  # number of newest trials used; the cost grows with its third power
CANDIDATES = 1000  # random points compared for each suggestion
ROUNDS, AROUND = 8, 64
"""The best point is refined in `ROUNDS` rounds; each tries `AROUND` points, ever closer to it."""


class Trial(NamedTuple):
    """Hyperparameters used between two decisions, and their gain."""

    values: Mapping[str, float]
    time: float  # counted in decisions
    gain: float
    """The increase in fitness, in any unit. A non-finite gain counts as the smallest of all, since
    hyperparameters that break a policy are not worth retrying."""


def suggest(
    numbers: Sequence[Evolvable],
    trials: Sequence[Trial],
    time: float,
    rng: Generator,
    *,
    pending: Sequence[Mapping[str, float]] = (),
    kappa: float | None = None,
) -> dict[str, float]:
    """Suggest hyperparameters for a policy.

    They maximise mean + kappa * standard deviation (equation 4 of the paper), with pending trials
    at their expected result. Without any finite gain they are drawn at random.
    `kappa` is sqrt(0.2 + max(0, log(0.4 N))) for N trials by default, as in the authors' program.
    """
    newest = sorted(trials, key=lambda trial: trial.time)[-MOST:]
    if not any(math.isfinite(trial.gain) for trial in newest):
        return {number.name: number.draw(rng) for number in numbers}
    points = to_units(numbers, [trial.values for trial in newest])
    times = np.array([trial.time for trial in newest], np.float64)
    values = standardised(np.array([trial.gain for trial in newest], np.float64))
    process = GaussianProcess(fit_kernel(points, times, values), points, times, values)
    process = process.with_pending(to_units(numbers, pending), time)
    if kappa is None:
        kappa = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(newest))))
    (found,) = from_units(numbers, _best(process, numbers, time, kappa, points, rng))
    return found


def standardised(gains: Numbers) -> Numbers:
    """Return gains [N] with mean 0 and deviation 1; if all are equal, 0.

    Non-finite gains count as the smallest finite one.
    """
    finite = np.isfinite(gains)
    filled = np.where(finite, gains, gains[finite].min())
    # Divide first, so that the square of a huge gain does not overflow.
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
    rng: Generator,
) -> Numbers:
    """Return the point with the highest upper confidence bound, [1, D]."""

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
