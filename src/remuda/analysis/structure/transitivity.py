"""Split a game into skill and cycles, and embed it in the plane.

All functions work on the margins of a symmetric game: half the difference of two strategies'
payoffs when they meet. Margins are an antisymmetric matrix. `split` decomposes it into differences
of ratings (transitive) and a cyclic rest; `disc` embeds it in planes. `cycles.py` finds cycles.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import linalg

from remuda.analysis.as_json import Summary, as_json
from remuda.analysis.payoffs.payoffs import Payoffs, check_level
from remuda.analysis.payoffs.sampling import draws, with_own
from remuda.analysis.ranking.rank import SAMPLES
from remuda.errors import UsageError
from remuda.types import Numbers


@dataclass(frozen=True)
class Split:
    """A game as the sum of a transitive game and a cyclic game."""

    ratings: Numbers  # [n] their differences are the transitive part; their mean is 0
    gradient: Numbers = field(repr=False)  # [n, n] the transitive part of the margins
    curl: Numbers = field(repr=False)  # [n, n] the cyclic part; each strategy's margins add up to 0
    transitive: float  # share of the gradient in the squared Frobenius norm; NaN: all margins are 0
    cyclic: float  # share of the curl; the two shares add up to 1


def margins(matrix: npt.ArrayLike) -> Numbers:
    """Return half of the difference of payoffs when two strategies meet: [n, n].

    In a zero-sum game this is the row's payoff. The diagonal is ignored.
    """
    payoffs = np.array(matrix, np.float64)
    if payoffs.ndim != 2 or payoffs.shape[0] != payoffs.shape[1] or not len(payoffs):
        raise UsageError(f"payoffs must be a square matrix [n, n]; this has shape {payoffs.shape}")
    np.fill_diagonal(payoffs, 0.0)
    if not np.isfinite(payoffs).all():
        raise UsageError("payoffs: one is missing or infinite; let all strategies meet first")
    return (payoffs - payoffs.T) / 2.0


def split(matrix: npt.ArrayLike) -> Split:
    """Split a game into transitive and cyclic parts, by the combinatorial Hodge decomposition.

    A strategy's rating is its mean margin over all strategies, itself included (Jiang et al. 2011,
    "Statistical ranking and combinatorial Hodge theory"; Balduzzi et al. 2018, "Re-evaluating
    evaluation"). Every pair must have met, so there is no harmonic part.

    `matrix`: [n, n] the row's payoffs.
    """
    of_pairs = margins(matrix)
    ratings, gradient, curl = _parts(of_pairs)
    return Split(ratings, gradient, curl, *_shares((gradient**2).sum(), (curl**2).sum()))


def _parts(of_pairs: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    ratings = of_pairs.mean(1)
    gradient = np.subtract.outer(ratings, ratings)
    return ratings, gradient, of_pairs - gradient


def _shares(transitive: float, cyclic: float) -> tuple[float, float]:
    """Return two shares that add up to 1, counting negative sizes as 0; NaN: both are 0."""
    sizes = max(float(transitive), 0.0), max(float(cyclic), 0.0)
    total = sum(sizes)
    return (sizes[0] / total, sizes[1] / total) if total > 0.0 else (np.nan, np.nan)


@dataclass(frozen=True)
class SplitIntervals:
    """The shares of skill and of cycles, with the noise removed and intervals."""

    names: tuple[str, ...]
    observed: Split = field(repr=False)  # the split of the mean payoffs, noise included
    transitive: float  # share of the transitive part without the noise; NaN: all may be noise
    cyclic: float  # share of the cyclic part without the noise; the two shares add up to 1
    cyclic_interval: Numbers  # [2] at probability `level`; 0 to 1 if everything may be noise
    noise: float  # expected share of noise in the squared norm of the observed margins; at most 1
    rating_intervals: Numbers = field(repr=False)  # [2, n] at probability `level`
    samples: int
    level: float

    @property
    def transitive_interval(self) -> Numbers:
        """The interval of `transitive`, [2], at probability `level`."""
        return 1.0 - self.cyclic_interval[::-1]

    def as_summary(self) -> dict[str, object]:
        return {
            "transitive": as_json(self.transitive),
            "transitive_interval": as_json(self.transitive_interval),
            "cyclic": as_json(self.cyclic),
            "cyclic_interval": as_json(self.cyclic_interval),
            "noise": as_json(self.noise),
            "observed_cyclic": as_json(self.observed.cyclic),
            "names": list(self.names),
            "ratings": as_json(self.observed.ratings),
            "rating_intervals": as_json(self.rating_intervals),
            "samples": self.samples,
            "level": self.level,
        }


def split_intervals(
    payoffs: Payoffs, rng: np.random.Generator, samples: int = SAMPLES, level: float = 0.95
) -> SplitIntervals:
    """Split a game into skill and cycles without the contribution of noise.

    Noise with variance v_ij in the margins adds the sum of all v_ij to the squared norm: a share of
    2 / n to the gradient, the rest to the curl. So a game with few matches looks cyclic. This
    function subtracts these amounts. Draws contain the noise of the matches and of the drawing;
    both are subtracted.
    """
    check_level(level)
    payoffs.check_symmetric("structure")
    whole = with_own(payoffs)
    observed, count = split(whole.matrix), len(whole.names)
    variances = margin_variances(whole)
    of_matches = float(variances.sum())
    of_draws = float((variances * whole.freedom / (whole.freedom - 2.0)).sum())
    size = float((observed.gradient**2).sum() + (observed.curl**2).sum())
    shares = _without(observed.gradient, observed.curl, of_matches, count)
    ratings, cyclic = np.zeros((samples, count)), np.zeros(samples)
    for place, each in enumerate(draws(payoffs, samples, rng)):
        ratings[place], gradient, curl = _parts(margins(each[0]))
        cyclic[place] = _without(gradient, curl, of_matches + of_draws, count)[1]
    ends = (0.5 - level / 2.0, 0.5 + level / 2.0)
    unknown = np.isnan(cyclic)
    interval = np.array([0.0, 1.0])
    if unknown.mean() <= ends[0]:
        interval = np.quantile(cyclic[~unknown], ends)
    return SplitIntervals(
        whole.names,
        observed,
        *shares,
        interval,
        min(of_matches / size, 1.0) if size > 0.0 else float("nan"),
        np.quantile(ratings, ends, axis=0),
        samples,
        level,
    )


def _without(gradient: Numbers, curl: Numbers, noise: float, count: int) -> tuple[float, float]:
    """Return the shares of both parts with this much noise removed."""
    skill = (gradient**2).sum() - 2.0 / count * noise
    return _shares(skill, (curl**2).sum() - (1.0 - 2.0 / count) * noise)


def margin_variances(payoffs: Payoffs) -> Numbers:
    """Return squared standard errors of margins, [n, n]: 0 on the diagonal; NaN: no match."""
    of_match = payoffs.moderated
    one_match = of_match[0, 0] + of_match[1, 1] - of_match[0, 1] - of_match[1, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = one_match / 4.0 / np.where(payoffs.counts > 0, payoffs.counts, np.nan)
    own = np.eye(len(payoffs.names), dtype=np.bool_)
    return np.where(own, 0.0, np.maximum(found, 0.0))


@dataclass(frozen=True)
class Disc(Summary):
    """A game embedded in planes, in which the angle between two strategies decides the winner.

    The margin of i against j is the sum over planes of x_i y_j - y_i x_j. Strategy i beats those up
    to half a turn counterclockwise of it; the margin grows with the radius of both.
    """

    coordinates: Numbers  # [P, n, 2], the plane with the most variance first
    strengths: Numbers  # [P] singular values of the margins; each plane has two equal ones
    explained: Numbers  # [P] share of each plane in the squared norm of the margins; NaN: all are 0


def disc(matrix: npt.ArrayLike, planes: int = 1) -> Disc:
    """Embed a game in planes by the Schur decomposition of its margins.

    An antisymmetric matrix is a sum of disc games in orthogonal planes (Balduzzi et al. 2019,
    "Open-ended learning in symmetric zero-sum games"). To embed only the cyclic part, pass
    `split(matrix).curl`.

    `matrix`: [n, n] the row's payoffs; `planes`: at most n / 2.
    """
    of_pairs = margins(matrix)
    if not 1 <= planes <= len(of_pairs) // 2:
        raise UsageError(
            f"planes is {planes}; with {len(of_pairs)} strategies it must be between 1 and "
            f"{len(of_pairs) // 2}"
        )
    # The Schur blocks of an antisymmetric A are the pairs of eigenvalues of iA.
    count = len(of_pairs)
    values, vectors = linalg.eigh(1j * of_pairs, subset_by_index=(count - planes, count - 1))
    strengths = np.maximum(values[::-1], 0.0)
    chosen = vectors[:, ::-1].T
    points = np.sqrt(2.0 * strengths)[:, None] * (chosen.imag + 1j * chosen.real)
    radii = np.abs(points)
    # Rotate each plane so that its farthest point (the first, up to rounding) is on the x axis.
    farthest = (radii >= radii.max(1, keepdims=True) * (1.0 - 1e-9)).argmax(1)
    points *= np.exp(-1j * np.angle(points[np.arange(planes), farthest]))[:, None]
    size = float((of_pairs**2).sum())
    explained = 2.0 * strengths**2 / size if size > 0.0 else np.full(planes, np.nan)
    return Disc(np.stack([points.real, points.imag], -1), strengths, explained)
