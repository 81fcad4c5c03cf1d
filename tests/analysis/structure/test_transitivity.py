"""Structure: skill and cycles are told apart, noise is neither, and discs show who beats whom."""

import json

import numpy as np
import pytest
from scipy import linalg

from refusals import refuses
from remuda.analysis.payoffs.payoffs import exact, from_sums
from remuda.analysis.structure.transitivity import (
    disc,
    margin_variances,
    margins,
    split,
    split_intervals,
)
from remuda.errors import UsageError

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def transitive(skills):
    return np.subtract.outer(np.asarray(skills), skills)


def random_game(rng, count):
    half = rng.normal(size=(count, count))
    return half - half.T


def played(means, deviation, matches, rng):
    """A symmetric zero-sum population whose true margins are `means`: [matches] a pair."""
    count = len(means)
    sums = np.zeros((6, count, count))
    for i in range(count):
        for j in range(i + 1, count):
            a = rng.normal(means[i, j], deviation, matches)
            one, two = a.sum(), (a * a).sum()
            sums[:, i, j] = matches, one, -one, two, two, -two
            sums[:, j, i] = matches, -one, one, two, two, -two
    return from_sums([f"p{i}" for i in range(count)], sums, True)


def test_differences_of_ratings_are_all_transitive_and_a_cycle_is_all_cyclic():
    skill = split(transitive([3.0, 1.0, -4.0]))
    assert skill.ratings == pytest.approx([3.0, 1.0, -4.0])
    assert (skill.transitive, skill.cyclic) == pytest.approx((1.0, 0.0))
    cycle = split(RPS)
    assert (cycle.transitive, cycle.cyclic) == pytest.approx((0.0, 1.0))
    assert cycle.curl == pytest.approx(RPS)


def test_a_sum_of_both_is_parted_again():
    """RPS has squared norm 6; ratings 1, 0, -1 have 2 * (1 + 1 + 4) = 12."""
    found = split(transitive([1.0, 0.0, -1.0]) + RPS)
    assert found.ratings == pytest.approx([1.0, 0.0, -1.0])
    assert found.curl == pytest.approx(RPS)
    assert (found.transitive, found.cyclic) == pytest.approx((2 / 3, 1 / 3))


def test_the_parts_add_up_stand_at_right_angles_and_the_curl_goes_round():
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 8):
        matrix = random_game(rng, count)
        found = split(matrix)
        assert found.gradient + found.curl == pytest.approx(matrix)
        assert (found.gradient * found.curl).sum() == pytest.approx(0.0, abs=1e-12)
        assert found.curl.sum(1) == pytest.approx(np.zeros(count), abs=1e-12)
        if count > 1:
            assert found.transitive + found.cyclic == pytest.approx(1.0)


def test_of_other_payoffs_the_margin_counts():
    both = np.array([[np.nan, 5.0], [1.0, np.nan]])
    assert margins(both).tolist() == [[0.0, 2.0], [-2.0, 0.0]]
    assert np.isnan(split(np.ones((3, 3))).cyclic)
    for wrong in (np.ones((2, 3)), [[0, np.nan], [1, 0]]):
        with refuses(UsageError):
            split(wrong)


def test_noise_in_a_game_of_skill_is_not_taken_for_cycles():
    """With 3 matches a pair most of the observed margins is noise, which looks cyclic."""
    rng = np.random.default_rng(1)
    truth = transitive(np.linspace(-0.5, 0.5, 12))
    observed, corrected, holds = [], [], 0
    for _ in range(60):
        found = split_intervals(played(truth, 1.0, 3, rng), rng, samples=100)
        observed.append(found.observed.cyclic)
        corrected.append(found.cyclic)
        holds += found.cyclic_interval[0] < 0.02
        assert found.transitive + found.cyclic == pytest.approx(1.0)
    assert np.mean(observed) > 0.4
    assert np.mean(corrected) < 0.1
    assert holds >= 55


def test_the_cyclic_share_lies_in_its_interval_as_often_as_promised():
    rng = np.random.default_rng(2)
    curl = split(random_game(rng, 8)).curl
    truth = transitive(np.linspace(-1.0, 1.0, 8)) + curl
    share, inside, found = split(truth).cyclic, 0, []
    assert 0.2 < share < 0.8
    for _ in range(100):
        each = split_intervals(played(truth, 2.0, 8, rng), rng, samples=100, level=0.9)
        inside += each.cyclic_interval[0] <= share <= each.cyclic_interval[1]
        found.append(each.cyclic)
    assert np.mean(found) == pytest.approx(share, abs=0.02)
    assert inside >= 84


def test_the_noise_that_is_taken_off_is_the_noise_there_is():
    rng = np.random.default_rng(3)
    gradients, curls, expected = [], [], []
    for _ in range(300):
        payoffs = played(np.zeros((6, 6)), 1.0, 4, rng)
        found = split(payoffs.matrix)
        gradients.append((found.gradient**2).sum())
        curls.append((found.curl**2).sum())
        expected.append(margin_variances(payoffs).sum())
    assert np.mean(expected) == pytest.approx(30 * 1.0 / 4, rel=0.05)
    assert np.mean(gradients) == pytest.approx(np.mean(expected) / 3, rel=0.1)
    assert np.mean(curls) == pytest.approx(np.mean(expected) * 2 / 3, rel=0.1)


def test_where_noise_is_all_there_is_nothing_is_claimed():
    rng = np.random.default_rng(4)
    found = split_intervals(played(np.zeros((5, 5)), 1.0, 4, rng), rng, samples=200)
    assert found.cyclic_interval.tolist() == [0.0, 1.0]
    assert found.noise > 0.5
    assert json.dumps(found.as_summary(), allow_nan=False)


def test_known_payoffs_are_parted_without_doubt():
    found = split_intervals(
        exact(transitive([1.0, 0.0, -1.0]) + RPS, symmetric=True), np.random.default_rng(0), 10
    )
    assert found.cyclic == pytest.approx(1 / 3)
    assert found.cyclic_interval == pytest.approx([1 / 3, 1 / 3])
    assert found.transitive_interval == pytest.approx([2 / 3, 2 / 3])
    assert found.noise == 0.0
    assert found.rating_intervals == pytest.approx(np.array([[1.0, 0.0, -1.0]] * 2))
    with refuses(UsageError):
        split_intervals(exact(RPS), np.random.default_rng(0))


def test_ratings_lie_in_their_intervals_and_are_as_unsure_as_means():
    rng = np.random.default_rng(5)
    found = split_intervals(played(transitive([1.0, 0.0, -1.0]), 1.0, 100, rng), rng, 4000)
    low, high = found.rating_intervals
    # A rating is a third of the sum of two margins, each with the error 1 / sqrt(100).
    assert high - low == pytest.approx(np.full(3, 2 * 1.96 * np.sqrt(2) / 3 / 10), rel=0.15)


def margins_of(found):
    x, y = found.coordinates[..., 0], found.coordinates[..., 1]
    return np.einsum("pi,pj->ij", x, y) - np.einsum("pi,pj->ij", y, x)


def test_planes_add_up_to_the_game():
    rng = np.random.default_rng(6)
    for count in (2, 5, 8):
        matrix = random_game(rng, count)
        found = disc(matrix, count // 2)
        assert margins_of(found) == pytest.approx(matrix)
        assert found.explained.sum() == pytest.approx(1.0)
        assert (np.diff(found.strengths) <= 1e-12).all()


def test_planes_are_the_blocks_of_the_schur_form():
    matrix = random_game(np.random.default_rng(7), 7)
    form = linalg.schur(matrix, output="real")[0]
    blocks = np.sort(np.abs(np.diagonal(form, 1)))[::-1]
    assert disc(matrix, 3).strengths == pytest.approx(blocks[blocks > 1e-9][:3])


def test_a_cycle_lies_round_a_disc_and_each_beats_the_next_counterclockwise():
    found = disc(RPS)
    assert found.explained == pytest.approx([1.0])
    x, y = found.coordinates[0].T
    angles = (np.degrees(np.arctan2(y, x)) + 1.0) % 360.0 - 1.0
    # 0 loses to 1, which loses to 2: the next clockwise wins.
    assert angles == pytest.approx([0.0, 240.0, 120.0])
    assert found.coordinates[0, 0, 1] == pytest.approx(0.0, abs=1e-12)
    assert np.hypot(x, y) == pytest.approx(np.full(3, np.hypot(x[0], y[0])))


def test_a_disc_is_the_best_picture_in_one_plane():
    """By no two vectors is the squared rest less than by the first plane (Eckart and Young)."""
    rng = np.random.default_rng(8)
    matrix = random_game(rng, 6)
    rest = ((matrix - margins_of(disc(matrix))) ** 2).sum()
    for _ in range(300):
        x, y = disc(matrix).coordinates[0].T + rng.normal(scale=0.1, size=(2, 6))
        assert ((matrix - np.outer(x, y) + np.outer(y, x)) ** 2).sum() >= rest - 1e-12


@pytest.mark.parametrize("planes", [0, 2])
def test_planes_that_are_not_there_are_refused(planes):
    with refuses(UsageError):
        disc(RPS, planes)


def test_a_game_without_margins_lies_in_one_point():
    found = disc(np.zeros((4, 4)), 2)
    assert not found.coordinates.any()
    assert found.as_summary()["explained"] == [None, None]
