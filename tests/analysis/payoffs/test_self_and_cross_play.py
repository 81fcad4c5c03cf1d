"""Self-play against cross-play, with standard errors over entrants."""

import numpy as np
import pytest

from remuda.analysis.payoffs.self_and_cross_play import self_and_cross_play

SEATS = np.array([[8.0, 8], [1, 3]])  # returns whose sum varies


def test_means_and_errors_by_hand():
    found = self_and_cross_play(np.array([[8.0, 1, 3], [1, 10, 5], [3, 5, 12]]), SEATS)
    # Self-play: the standard error of the mean of 8, 10 and 12 is 2 / sqrt(3).
    assert found.self_play == pytest.approx((10.0, 2 / 3**0.5))
    # Cross-play without each entrant: 5, 3 and 1.
    assert found.cross_play == pytest.approx((3.0, (2 / 3 * 8) ** 0.5))
    # Self-play without each entrant: 11, 10 and 9; so the gap: 6, 7 and 8.
    assert found.gap == pytest.approx((7.0, (2 / 3 * 2) ** 0.5))


def test_the_error_covers_entrants_that_differ():
    """Policies of 200 tournaments of ten: the spread of the gap is what its error says."""
    rng, gaps, errors = np.random.default_rng(0), [], []
    for _ in range(200):
        skill, shift = rng.normal(size=10), rng.normal(size=10)
        means = skill[:, None] + skill + np.diag(5.0 + shift)
        found = self_and_cross_play(means, SEATS)
        gaps.append(found.gap[0])
        errors.append(found.gap[1])
    assert np.mean(gaps) == pytest.approx(5.0, abs=0.1)
    assert np.mean(errors) == pytest.approx(np.std(gaps), rel=0.2)


ALIKE = np.array([[3.0, 1, 2], [1, 3, 2], [2, 2, 3]])


@pytest.mark.parametrize(
    ("means", "returns"),
    [
        (ALIKE, [[2.0, -1, -1], [0, 3, -3 + 1e-6], [np.nan, 1, -1]]),  # constant-sum
        (ALIKE, [[8.0], [1]]),  # a single seat meets no other entrant
        (np.array([[3.0, 1], [1, 3]]), SEATS),  # a pair without one entrant is no pair
        (np.array([[np.nan, 1, 2], [1, np.nan, 3], [2, 3, np.nan]]), SEATS),  # no self-play
    ],
)
def test_some_tournaments_have_no_gap(means, returns):
    assert self_and_cross_play(means, np.array(returns)) is None
