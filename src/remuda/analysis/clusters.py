"""How many kinds of policies there are: clusters by distances, and whether there are any."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist, squareform

from remuda.analysis.bias import check_draws
from remuda.analysis.diversity import payoff_distances
from remuda.analysis.mds import check_distances, full_coordinates
from remuda.analysis.payoff import Numbers, Payoffs
from remuda.analysis.plain import plain
from remuda.errors import UsageError
from remuda.kernels import njit
from remuda.types import Integers

MOST = 20
"""Clusters that are looked for, unless more are asked for."""


@dataclass(frozen=True)
class Clusters:
    """Kinds of policies.

    Attributes:
        labels: [N] the cluster of each policy, numbered in the order in which they come.
        number: of clusters; 1 where nothing says that there are more.
        silhouette: the mean silhouette of the best cut into two clusters or more; NaN where there
            are fewer than three policies.
        p_value: how often a single blob has a silhouette as large; NaN likewise.
    """

    labels: Integers
    number: int
    silhouette: float
    p_value: float

    def as_summary(self) -> dict[str, Any]:
        """All of it as plain data; None stands for what is not known."""
        return {
            "labels": self.labels.tolist(),
            "number": self.number,
            "silhouette": plain(self.silhouette),
            "p_value": plain(self.p_value),
        }


def clusters(
    distances: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    most: int = MOST,
    references: int = 199,
    significance: float = 0.05,
) -> Clusters:
    """Find clusters by hierarchical clustering, and how many of them there are.

    Average linkage; cut where the mean silhouette (Rousseeuw 1987, "Silhouettes: a graphical aid
    to the interpretation and validation of cluster analysis") is largest, among two clusters and
    more. Any blob can be cut in two. So the same is done with references, each as many points of
    one normal distribution with the variances that classical scaling finds in the distances, and
    there is one cluster unless the silhouette is as large in at most a share `significance` of
    them: one blob is split this often by mistake. Few policies of a kind may be too few to tell.

    Args:
        distances: [N, N] between policies.
        rng: for the references.
        most: clusters to look for.
        references: blobs to compare with.
        significance: as above.

    Raises:
        UsageError: distances or arguments cannot be used.
    """
    d = check_distances(distances)
    if most < 1 or not 0.0 < significance < 1.0:
        raise UsageError(
            f"most is {most} and significance {significance}; the one must be at least 1, "
            "the other between 0 and 1"
        )
    if references * significance < 1.0:
        raise UsageError(
            f"references is {references}; a significance of {significance} takes at least "
            f"{int(np.ceil(1.0 / significance))}"
        )
    count = len(d)
    one = np.zeros(count, np.int64)
    most = min(most, count - 1)
    if count < 3 or most < 2:
        return Clusters(one, 1, np.nan, np.nan)
    if d.max() <= 0.0:
        return Clusters(one, 1, 0.0, 1.0)
    tree = _tree(d)
    number, silhouette = _best_cut(d, tree, most)
    # The sum over the points of squares by direction; count - 1 makes variances unbiased.
    deviations = np.sqrt((full_coordinates(d) ** 2).sum(0) / (count - 1))
    as_large = 0
    for _ in range(references):
        blob = rng.standard_normal((count, len(deviations))) * deviations
        apart = squareform(pdist(blob))
        as_large += _best_cut(apart, _tree(apart), most)[1] >= silhouette - 1e-12
    p_value = (1 + as_large) / (1 + references)
    if p_value > significance:
        return Clusters(one, 1, silhouette, p_value)
    labels = hierarchy.cut_tree(tree, n_clusters=number)[:, 0].astype(np.int64)
    return Clusters(labels, number, silhouette, p_value)


def silhouette(distances: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The mean silhouette of clusters, between -1 and 1 (Rousseeuw 1987).

    A policy alone in its cluster has 0.

    Args:
        distances: [N, N].
        labels: [N] of the clusters, two or more.

    Raises:
        UsageError: distances cannot be used, or there are fewer than two clusters.
    """
    d = check_distances(distances)
    found = np.asarray(labels)
    if found.shape != (len(d),):
        raise UsageError(f"labels are {found.shape}; they must be ({len(d)},)")
    numbers = np.unique(found, return_inverse=True)[1]
    if numbers.max() < 1:
        raise UsageError("a silhouette is of two clusters or more, and all labels are the same")
    member = np.eye(int(numbers.max()) + 1)[numbers]
    sizes = member.sum(0)
    sums = d @ member
    own = sizes[numbers]
    within = (sums * member).sum(1) / np.maximum(own - 1.0, 1.0)
    nearest = np.where(member > 0.0, np.inf, sums / sizes).min(1)
    larger = np.maximum(within, nearest)
    known = (own > 1.0) & (larger > 0.0)
    return float(np.where(known, (nearest - within) / np.where(known, larger, 1.0), 0.0).mean())


def _tree(distances: Numbers) -> Numbers:
    """The tree of average linkage, [N - 1, 4] as scipy has it, of distances [N, N]."""
    found: Numbers = hierarchy.linkage(squareform(distances, checks=False), "average")
    return found


def _best_cut(distances: Numbers, tree: Numbers, most: int) -> tuple[int, float]:
    """How many clusters have the largest silhouette, the fewest if equal; and the silhouette."""
    joined = np.ascontiguousarray(tree[:, :2]).astype(np.int64)
    number, found = _cut(np.ascontiguousarray(distances), joined, most)
    return int(number), float(found)


@njit(cache=True)
def _cut(distances: Numbers, joined: Integers, most: int) -> tuple[int, float]:
    """How many clusters have the largest mean silhouette, of 2 to `most`, and that silhouette.

    Args:
        distances: [N, N].
        joined: [N - 1, 2] the clusters that each step joins to a new one, as scipy numbers them.
        most: clusters at most.
    """
    count = len(distances)
    sums = np.zeros((2 * count, count))  # by cluster: of distances from each policy to its members
    sums[:count] = distances
    sizes = np.ones(2 * count)
    own = np.arange(count)
    alive = np.zeros(2 * count, np.bool_)
    alive[:count] = True
    best, number = -2.0, 2
    for step in range(count - 1):
        left = count - step
        if left < 2:
            break
        if left <= most:
            total = 0.0
            for i in range(count):
                mine = own[i]
                if sizes[mine] < 2.0:
                    continue
                within = sums[mine, i] / (sizes[mine] - 1.0)
                nearest = np.inf
                for cluster in range(count + step):
                    if alive[cluster] and cluster != mine:
                        nearest = min(nearest, sums[cluster, i] / sizes[cluster])
                larger = max(within, nearest)
                if larger > 0.0:
                    total += (nearest - within) / larger
            if total / count >= best - 1e-12:
                best, number = max(best, total / count), left
        new = count + step
        for cluster in joined[step]:
            sums[new] += sums[cluster]
            alive[cluster] = False
        sizes[new] = sizes[joined[step, 0]] + sizes[joined[step, 1]]
        alive[new] = True
        for i in range(count):
            if own[i] == joined[step, 0] or own[i] == joined[step, 1]:
                own[i] = new
    return number, best


@dataclass(frozen=True)
class PayoffClusters:
    """Kinds of policies by what they earn, and how sure that is.

    Attributes:
        names: of the policies.
        found: at the means.
        together: [N, N] of the samples in which two policies are of one cluster.
        number_shares: [N] of the samples with 1, 2, ..., N clusters.
    """

    names: tuple[str, ...]
    found: Clusters
    together: Numbers = field(repr=False)
    number_shares: Numbers

    def as_summary(self) -> dict[str, Any]:
        """All of it as plain data; None stands for what is not known."""
        return {
            "names": list(self.names),
            **self.found.as_summary(),
            "together": plain(self.together),
            "number_shares": plain(self.number_shares),
        }


def payoff_clusters(
    payoffs: Payoffs,
    rng: np.random.Generator,
    *,
    most: int = MOST,
    draws: int = 100,
    references: int = 99,
    significance: float = 0.05,
) -> PayoffClusters:
    """Find kinds of policies by what they earn against each opponent.

    Policies that are all equal are one blob of noise, and one cluster; noise makes no clusters. In
    each sample the noise is there twice, so that clusters that are only just found at the means
    are missed in many samples.

    Args:
        payoffs: of two roles.
        rng: for the samples and the references.
        most: clusters to look for.
        draws: samples.
        references: blobs that each is compared with.
        significance: as for `clusters`.

    Raises:
        UsageError: cells were never played, or arguments cannot be used.
    """
    check_draws(draws)

    def of(matrix: Numbers) -> Clusters:
        distances = payoff_distances(matrix)
        return clusters(distances, rng, most=most, references=references, significance=significance)

    found = of(payoffs.matrix)
    count = len(found.labels)
    together, numbers = np.zeros((count, count)), np.zeros(count)
    for sample in payoffs.sample(draws, rng):
        drawn = of(sample[0])
        together += drawn.labels[:, None] == drawn.labels
        numbers[drawn.number - 1] += 1.0
    return PayoffClusters(payoffs.names, found, together / draws, numbers / draws)
