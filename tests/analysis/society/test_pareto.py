"""Fronts, crowding and hypervolume by hand-worked numbers and by brute force."""

import importlib.util
import sys

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.society.pareto import hypervolume, uncertain_front
from remuda.errors import UsageError
from remuda.population.evolution.fronts import crowding_distance, fronts

BOOK = [[5.0, 5.0], [4.0, 6.0], [2.0, 7.0], [7.0, 4.0]]
needs_moocore = pytest.mark.skipif(
    importlib.util.find_spec("moocore") is None, reason="of the extra `analysis`"
)


def rng(seed=0):
    return np.random.default_rng(seed)


def by_definition(points):
    """Fronts as they are defined: those that no point left dominates are taken away."""
    p, ranks = np.asarray(points), np.full(len(points), -1)
    rank = 0
    while (ranks < 0).any():
        left = np.flatnonzero(ranks < 0)
        best = [
            i for i in left if not any((p[j] <= p[i]).all() and (p[j] < p[i]).any() for j in left)
        ]
        ranks[best] = rank
        rank += 1
    return ranks.tolist()


def sweep(points, reference):
    """The hypervolume of two minimised objectives, by strips from the left."""
    area, lowest = 0.0, reference[1]
    for x, y in sorted(map(tuple, points)):
        if x < reference[0] and y < lowest:
            area += (reference[0] - x) * (lowest - y)
            lowest = y
    return area


def test_fronts_worked_out_by_hand():
    points = [[1, 4], [2, 2], [4, 1], [3, 3], [5, 5], [2, 5]]
    assert fronts(points).tolist() == [0, 0, 0, 1, 2, 1]
    assert fronts(-np.array(points), True).tolist() == [0, 0, 0, 1, 2, 1]
    assert fronts([[1, -4], [2, -2], [3, -3]], [False, True]).tolist() == [0, 0, 1]


@pytest.mark.parametrize("objectives", [1, 2, 3, 5])
def test_fronts_are_those_of_the_definition_with_ties_and_copies(objectives):
    for seed in range(10):
        points = rng(seed).integers(0, 4, (40, objectives)).astype(float)
        assert fronts(points).tolist() == by_definition(points)


def test_copies_are_on_the_same_front_and_infinite_values_are_values():
    assert fronts([[1, 1], [1, 1], [2, 2], [2, 2]]).tolist() == [0, 0, 1, 1]
    assert fronts([[-np.inf, 3], [0, 2], [np.inf, 3]]).tolist() == [0, 0, 1]
    assert fronts([[0.0, -0.0], [-0.0, 0.0]]).tolist() == [0, 0]
    assert fronts(np.zeros((0, 2))).tolist() == []


def test_crowding_by_hand():
    # Extents 4 and 8: (3 - 0) / 4 + (8 - 2) / 8, and (4 - 1) / 4 + (3 - 0) / 8.
    found = crowding_distance([[0, 8], [1, 3], [3, 2], [4, 0], [4, 8]])
    assert found[:4].tolist() == [np.inf, 1.5, 1.125, np.inf]
    assert found[4] == np.inf  # alone on its front


def test_crowding_does_not_depend_on_order_or_copies():
    points = rng(1).integers(0, 5, (30, 3)).astype(float)
    order = rng(2).permutation(30)
    assert crowding_distance(points)[order].tolist() == crowding_distance(points[order]).tolist()
    twice = crowding_distance(np.vstack([points, points]))
    assert twice[:30].tolist() == twice[30:].tolist() == crowding_distance(points).tolist()
    assert crowding_distance(-points, True).tolist() == crowding_distance(points).tolist()


@needs_moocore
def test_hypervolume_of_the_documentation_and_of_a_sweep():
    assert hypervolume(BOOK, [10, 10]) == 38.0 == sweep(BOOK, [10, 10])
    assert hypervolume(-np.array(BOOK), [-10, -10], True) == 38.0
    assert hypervolume([[5, -5], [4, -6]], [10, -10], [False, True]) == sweep(BOOK[:2], [10, 10])


@needs_moocore
def test_hypervolume_of_the_front_of_zdt1():
    x = np.linspace(0.0, 1.0, 100)
    front = np.stack([x, 1.0 - np.sqrt(x)], 1)
    found = hypervolume(front, [1.1, 1.1])
    assert found == pytest.approx(sweep(front, [1.1, 1.1]), abs=1e-12)
    # The whole front has 1.21 - 1/3; a hundred points miss a little of it.
    assert 0.0 < 1.21 - 1 / 3 - found < 0.01


@needs_moocore
def test_what_is_not_better_than_the_reference_adds_nothing():
    assert hypervolume([*BOOK, [1, 10], [11, 1], [-np.inf, 10]], [10, 10]) == 38.0
    assert hypervolume([[11, 11]], [10, 10]) == 0.0
    assert hypervolume(np.zeros((0, 3)), [1, 1, 1]) == 0.0
    with refuses(UsageError):
        hypervolume([[-np.inf, 1]], [10, 10])


@needs_moocore
def test_hypervolume_of_three_objectives_is_the_share_of_random_points_behind_them():
    points = rng(3).random((6, 3))
    random = rng(4).random((100_000, 3))
    share = (points[:, None] <= random).all(2).any(0).mean()
    assert hypervolume(points, [1, 1, 1]) == pytest.approx(share, abs=0.006)


def test_without_moocore_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "moocore", None)
    with refuses(UsageError):
        hypervolume(BOOK, [10, 10])


def test_points_are_on_the_front_as_often_as_one_beats_the_other():
    # Two points with one objective each: the difference is normal with deviation 5.
    covariances = [[[9.0]], [[16.0]]]
    found = uncertain_front([[0.0], [5.0]], covariances, rng(), draws=4000)
    assert found.probabilities[1] == pytest.approx(0.1587, abs=0.02)
    assert found.probabilities.sum() == pytest.approx(1.0)
    assert found.errors[0] == pytest.approx(np.sqrt(0.1587 * 0.8413 / 4000), rel=0.1)
    assert found.ranks.tolist() == [0, 1]
    turned = uncertain_front([[0.0], [-5.0]], covariances, rng(), maximise=True, draws=4000)
    assert turned.probabilities[1] == pytest.approx(0.1587, abs=0.02)
    assert turned.as_summary()["draws"] == 4000


def test_objectives_that_go_together_are_drawn_together():
    means, alone = [[0.0, 0.0], [0.0, 0.0]], np.stack([np.eye(2)] * 2)
    together = np.ones((2, 2, 2))
    # Alone, one point dominates the other in half of the draws; together, always.
    assert uncertain_front(means, alone, rng(), draws=2000).probabilities.mean() == pytest.approx(
        0.75, abs=0.03
    )
    assert uncertain_front(means, together, rng(), draws=500).probabilities.sum() == 1.0


def test_points_without_errors_are_on_the_front_or_not():
    found = uncertain_front([*BOOK, [8, 8]], np.zeros((5, 2, 2)), rng(), draws=3)
    assert found.probabilities.tolist() == [1, 1, 1, 1, 0]
    assert found.errors.tolist() == [0] * 5


@pytest.mark.parametrize(
    "call",
    [
        lambda: fronts([1.0, 2.0]),
        lambda: fronts([[1.0, 0.0], [np.nan, 1.0]]),
        lambda: fronts(BOOK, [True]),
        lambda: fronts(BOOK, "min"),
        lambda: hypervolume(BOOK, [1.0]),
        lambda: hypervolume(BOOK, [1.0, np.nan]),
        lambda: crowding_distance([[1.0, np.inf]]),
        lambda: uncertain_front(BOOK, np.ones((4, 3)), rng()),
        lambda: uncertain_front(BOOK, np.ones((4, 2, 2)), rng(), draws=0),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(call):
    with refuses(UsageError):
        call()
