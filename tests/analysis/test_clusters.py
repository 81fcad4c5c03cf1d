"""Planted clusters are found, and a blob is one."""

import numpy as np
import pytest
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist, squareform

from remuda.analysis.clusters import clusters, payoff_clusters, silhouette
from remuda.analysis.payoff import Payoffs, exact
from remuda.errors import UsageError


def between(points):
    return squareform(pdist(np.asarray(points, np.float64)))


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("kinds", [2, 3, 5])
def test_planted_clusters_are_found(kinds):
    drawn = rng(kinds)
    places = np.arange(6 * kinds) % kinds
    centers = 8.0 * np.eye(kinds)
    found = clusters(between(centers[places] + drawn.normal(size=(6 * kinds, kinds))), drawn)
    assert found.number == kinds
    assert found.labels.tolist() == places.tolist()  # numbered in the order in which they come
    assert found.p_value <= 0.05
    assert found.as_summary()["number"] == kinds


@pytest.mark.parametrize(("count", "dimensions"), [(10, 2), (20, 20), (30, 3)])
def test_a_blob_is_one_cluster_but_for_the_share_of_mistakes_asked_for(count, dimensions):
    drawn = rng(count)
    found = [
        clusters(between(drawn.normal(size=(count, dimensions))), drawn, most=6, references=39)
        for _ in range(20)
    ]
    assert sum(each.number > 1 for each in found) <= 3
    assert all(not each.labels.any() for each in found if each.number == 1)


def test_copies_of_three_policies_are_three_clusters():
    found = clusters(between(np.repeat([[0, 0], [1, 0], [0, 1]], 4, axis=0)), rng())
    assert found.number == 3
    assert found.silhouette == 1.0


def test_few_policies_and_equal_ones_are_one_cluster():
    assert clusters(between([[0.0], [1.0]]), rng()).number == 1
    assert clusters(np.zeros((5, 5)), rng()).number == 1
    assert clusters(between(np.eye(5)), rng()).number == 1  # all as far from each other


def test_silhouettes_are_those_worked_out_by_hand():
    d = between([[0.0], [1.0], [5.0]])
    # (4.0 + ...): 0: within 1, nearest 5: 4/5; 1: within 1, nearest 4: 3/4; alone: 0.
    assert silhouette(d, [7, 7, 3]) == pytest.approx((0.8 + 0.75) / 3)


def test_the_cut_has_the_largest_silhouette_of_all():
    points = rng(5).normal(size=(12, 2)) + 6.0 * np.eye(4, 2)[np.arange(12) % 4]
    d = between(points)
    found = clusters(d, rng(), references=39)
    tree = hierarchy.linkage(squareform(d), "average")
    cuts = [hierarchy.cut_tree(tree, n)[:, 0] for n in range(2, 12)]
    each = [silhouette(d, cut) for cut in cuts]
    assert found.silhouette == pytest.approx(max(each))
    assert found.labels.tolist() == cuts[int(np.argmax(each))].tolist()
    few = clusters(d, rng(), most=2, references=39)
    assert few.silhouette == pytest.approx(each[0])


def seen(truth, deviation, matches, drawn):
    noise = drawn.normal(0.0, deviation / np.sqrt(matches), truth.shape)
    noise = np.triu(noise, 1) - np.triu(noise, 1).T
    n = len(truth)
    covariances = np.array([[1.0, -1.0], [-1.0, 1.0]])[:, :, None, None] * deviation**2
    names = (tuple(f"a{i}" for i in range(n)),) * 2
    means = np.stack([truth + noise, -truth - noise])
    shape = np.broadcast_to(covariances, (2, 2, n, n))
    return Payoffs(names, means, shape, np.full((n, n), matches), True).completed()


def test_noise_makes_no_clusters_of_equal_policies():
    drawn = rng(3)
    found = [
        payoff_clusters(seen(np.zeros((9, 9)), 1.0, 10, drawn), drawn, draws=2, references=39)
        for _ in range(15)
    ]
    assert sum(each.found.number > 1 for each in found) <= 3


def test_kinds_are_found_through_noise_and_how_sure_they_are():
    cycle = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    truth = np.kron(cycle, np.ones((4, 4)))
    found = payoff_clusters(seen(truth, 1.0, 100, rng(1)), rng(), draws=10, references=39)
    assert found.found.number == 3
    assert found.number_shares[2] >= 0.9
    assert found.together[0, 3] > 0.9
    assert found.together[0, 4] < 0.1
    assert found.number_shares.sum() == pytest.approx(1.0)
    assert found.as_summary()["labels"] == [0] * 4 + [1] * 4 + [2] * 4


def test_exact_copies_are_told_by_their_payoffs():
    found = payoff_clusters(exact(np.kron([[0, 1], [-1, 0]], np.ones((3, 3)))), rng(), draws=2)
    assert found.found.number == 2
    assert found.together[0].tolist() == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clusters(np.zeros((3, 2)), rng()), r"\(3, 2\)"),
        (lambda: clusters(np.zeros((3, 3)), rng(), most=0), "most"),
        (lambda: clusters(np.zeros((3, 3)), rng(), significance=0.0), "significance"),
        (lambda: clusters(np.zeros((3, 3)), rng(), references=10), "at least 20"),
        (lambda: silhouette(np.zeros((3, 3)), [0, 0, 0]), "two clusters"),
        (lambda: silhouette(np.zeros((3, 3)), [0, 1]), "labels"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(call, message):
    with pytest.raises(UsageError, match=message):
        call()
