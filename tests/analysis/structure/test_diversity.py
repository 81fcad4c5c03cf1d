"""Diversity by hand-worked numbers, and what noise makes of policies that are all equal."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.payoffs.bias import all_equal, estimate
from remuda.analysis.payoffs.payoffs import Payoffs, exact
from remuda.analysis.structure.diversity import (
    expected_cardinality,
    payoff_distances,
    response_diversity,
)
from remuda.errors import UsageError

ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
EVEN = np.full(3, 1 / 3)


def rng(seed=0):
    return np.random.default_rng(seed)


def seen(truth, deviation, matches, drawn, symmetric=True):
    """Payoffs of a zero-sum game as so many matches show them."""
    n, m = truth.shape
    noise = drawn.normal(0.0, deviation / np.sqrt(matches), (n, m))
    if symmetric:
        noise = np.triu(noise, 1) - np.triu(noise, 1).T
    means = np.stack([truth + noise, -truth - noise])
    covariances = np.array([[1.0, -1.0], [-1.0, 1.0]])[:, :, None, None] * deviation**2
    names = (
        tuple(f"a{i}" for i in range(n)),
        tuple(f"{'a' if symmetric else 'b'}{i}" for i in range(m)),
    )
    counts = np.full((n, m), matches)
    return Payoffs(
        names, means, np.broadcast_to(covariances, (2, 2, n, m)), counts, symmetric
    ).completed()


def test_policies_without_anything_in_common_count_as_far_as_their_rows_are_long():
    # L is diag(9, 1, 0): 9/10 + 1/2.
    assert expected_cardinality([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]) == pytest.approx(1.4)
    assert expected_cardinality([[3.0, 0.0], [0.0, 1.0]], scale=0.01) == pytest.approx(2, abs=1e-3)


def test_cardinality_is_the_trace_of_the_paper():
    m = rng().normal(size=(5, 7))
    by_trace = np.trace(np.eye(5) - np.linalg.inv(m @ m.T + np.eye(5)))
    assert expected_cardinality(m) == pytest.approx(by_trace)


def test_a_copy_adds_almost_nothing_to_cardinality():
    once = expected_cardinality(100 * ROCK_PAPER_SCISSORS)
    twice = expected_cardinality(100 * np.vstack([ROCK_PAPER_SCISSORS] * 2))
    assert once == pytest.approx(2, abs=1e-3)  # three rows that add up to 0 span two dimensions
    assert twice == pytest.approx(once, abs=1e-3)


def test_distances_are_root_mean_squares_of_rows():
    found = payoff_distances([[0.0, 1.0], [3.0, 5.0]])
    assert found[0, 1] == pytest.approx(np.sqrt((9 + 16) / 2))
    drawn = rng(1).normal(0.0, 1.0, (2, 4000))
    assert payoff_distances(drawn)[0, 1] == pytest.approx(np.sqrt(2), rel=0.1)


def test_equal_policies_look_diverse_but_the_correction_and_the_null_say_that_they_are_not():
    drawn = rng(3)
    values, corrected, shares = [], [], []
    for _ in range(30):
        found = response_diversity(seen(np.zeros((6, 6)), 1.0, 20, drawn), drawn, draws=100)
        values.append(found.value)
        corrected.append(found.corrected)
        shares.append(found.null_share)
    assert np.mean(values) > 0.8
    assert np.mean(corrected) < 0.4 * np.mean(values)
    assert np.mean(np.array(shares) <= 0.1) < 0.3
    assert 0.3 < np.mean(shares) < 0.7


def test_intervals_of_cardinality_cover_the_truth():
    truth = np.kron(ROCK_PAPER_SCISSORS, np.ones((2, 2)))
    right = expected_cardinality(truth)
    drawn, inside, corrected, values = rng(4), 0, [], []
    for _ in range(60):
        found = response_diversity(seen(truth, 1.0, 25, drawn), drawn, draws=100)
        inside += found.interval[0] <= right <= found.interval[1]
        corrected.append(found.corrected)
        values.append(found.value)
        assert found.null_share < 0.05
    assert inside >= 51
    assert abs(np.mean(corrected) - right) < 0.4 * abs(np.mean(values) - right)


def test_equal_policies_of_one_role_differ_by_opponent_only():
    payoffs = seen(np.array([[0.0, 2.0], [4.0, 6.0]]), 1.0, 10**12, rng(), symmetric=False)
    null = all_equal(payoffs)
    assert null.means[0] == pytest.approx(np.array([[2.0, 4.0], [2.0, 4.0]]), abs=1e-4)
    assert null.counts.tolist() == payoffs.counts.tolist()


def test_an_estimate_takes_the_bias_of_a_square_out():
    drawn = rng(8)
    payoffs = seen(np.zeros((8, 8)), 1.0, 4, drawn, symmetric=False)
    square = lambda matrix: float((matrix**2).mean())  # noqa: E731
    found = estimate(payoffs, square, square, drawn)
    assert found.value == pytest.approx(0.25, rel=0.3)
    assert abs(found.corrected) < 0.1
    assert found.interval[0] < 0.0 < found.interval[1]


def test_an_interval_stays_within_what_a_value_can_be():
    drawn = rng(8)
    payoffs = seen(np.zeros((8, 8)), 1.0, 4, drawn, symmetric=False)
    square = lambda matrix: float((matrix**2).mean())  # noqa: E731
    found = estimate(payoffs, square, square, drawn, bounds=(0.05, 0.1))
    assert found.interval[0] == 0.05
    assert 0.05 <= found.corrected <= 0.1


@pytest.mark.parametrize(
    "call",
    [
        lambda: expected_cardinality([1.0]),
        lambda: expected_cardinality([[np.nan]]),
        lambda: expected_cardinality([[1.0]], scale=0.0),
        lambda: response_diversity(exact(ROCK_PAPER_SCISSORS), rng(), draws=1),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(call):
    with refuses(UsageError):
        call()
