"""Maps show distances, are the same for the same distances, and stay where they were."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from remuda.analysis.payoffs.payoffs import Payoffs, exact
from remuda.analysis.structure.mds import align, classical_mds, payoff_map


def between(points):
    return squareform(pdist(np.asarray(points, np.float64)))


def rng(seed=0):
    return np.random.default_rng(seed)


def test_points_of_a_plane_are_shown_whole():
    points = rng().normal(size=(8, 2)) * [3.0, 1.0]
    found = classical_mds(between(points))
    assert between(found.positions) == pytest.approx(between(points))
    assert found.share == pytest.approx(1.0)
    assert found.shares[0] > found.shares[1]
    assert found.positions.mean(0) == pytest.approx(0.0, abs=1e-12)


def test_the_share_is_that_of_the_variance():
    points = rng(1).normal(size=(150, 3)) * [3.0, 2.0, 1.0]
    kept = classical_mds(between(points))
    assert kept.share == pytest.approx(13 / 14, abs=0.02)
    assert kept.shares[0] == pytest.approx(9 / 14, abs=0.06)


def test_distances_that_fit_nowhere_are_never_shown_whole():
    # A star: a center at 1 from three leaves, which are at 2 from each other.
    d = np.full((4, 4), 2.0)
    d[0] = d[:, 0] = 1.0
    np.fill_diagonal(d, 0.0)
    found = classical_mds(d, 4)
    assert found.share < 0.99
    assert (found.shares >= 0.0).all()


def test_mirrored_and_turned_points_give_the_same_picture():
    points = rng(2).normal(size=(6, 2)) * [2.0, 1.0]
    turn = np.linalg.qr(rng(3).normal(size=(2, 2)))[0]
    one, other = classical_mds(between(points)), classical_mds(between(points @ turn + 5.0))
    assert one.positions == pytest.approx(other.positions, abs=1e-9)
    farthest = np.abs(one.positions).argmax(0)
    assert (one.positions[farthest, [0, 1]] > 0.0).all()


def test_equal_variances_are_turned_by_the_first_policy_and_not_by_rounding():
    square = between([[1, 0], [0, 1], [-1, 0], [0, -1]])
    noise = between([[1, 1e-13], [0, 1], [-1, 0], [0, -1]])
    found = classical_mds(square).positions
    assert found == pytest.approx(np.array([[1, 0], [0, 1], [-1, 0], [0, -1]]), abs=1e-9)
    assert classical_mds(noise).positions == pytest.approx(found, abs=1e-6)


def test_policies_all_alike_lie_on_one_point():
    found = classical_mds(np.zeros((3, 3)))
    assert not found.positions.any()
    assert found.share == 0.0
    assert classical_mds([[0.0]]).positions.tolist() == [[0.0, 0.0]]


def test_alignment_turns_mirrors_and_moves_a_map_back():
    before = rng(4).normal(size=(7, 2))
    turn = np.linalg.qr(rng(5).normal(size=(2, 2)))[0] @ np.diag([1.0, -1.0])
    after = before @ turn + [3.0, -8.0]
    assert align(after, before) == pytest.approx(before)
    assert between(align(rng(6).normal(size=(7, 2)) + after, before)) == pytest.approx(
        between(rng(6).normal(size=(7, 2)) + after)
    )


def test_positions_are_as_sure_as_payoffs_are():
    cycle = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])

    def spread(matches):
        covariances = np.broadcast_to(
            np.array([[1.0, -1.0], [-1.0, 1.0]])[:, :, None, None], (2, 2, 3, 3)
        )
        names = (("a", "b", "c"),) * 2
        counts = np.full((3, 3), matches)
        payoffs = Payoffs(names, np.stack([cycle, -cycle]), covariances, counts, True)
        found = payoff_map(payoffs.completed(), rng())
        return np.trace(found.spread, axis1=1, axis2=2).mean()

    assert spread(100) / spread(10000) == pytest.approx(100, rel=0.3)
    assert not payoff_map(exact(cycle), rng(), draws=3).spread.round(12).any()
