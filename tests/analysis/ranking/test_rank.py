"""Rankings: known orders, hand-worked skills, and ranks that are as sure as they say."""

import json

import numpy as np
import pytest
from scipy import stats

from refusals import refuses
from remuda.analysis.payoffs.payoffs import Payoffs, exact, from_sums
from remuda.analysis.ranking.rank import (
    mean_payoff,
    nash_average,
    rank_intervals,
    ranks,
)
from remuda.errors import UsageError

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def played(means, deviation, matches, rng, own=False):
    """A symmetric zero-sum population whose true payoffs are `means`: [matches] a pair."""
    count = len(means)
    sums = np.zeros((6, count, count))
    for i in range(count):
        for j in range(i + (not own), count):
            a = rng.normal(means[i, j], deviation, matches)
            for row, column, x in ((i, j, a), (j, i, -a)):
                y = -x
                sums[:, row, column] = (
                    *(matches, x.sum(), y.sum()),
                    *((x * x).sum(), (y * y).sum(), (x * y).sum()),
                )
    return from_sums([f"p{i}" for i in range(count)], sums, True)


def transitive(skills):
    return np.subtract.outer(skills, skills)


def test_the_mean_payoff_leaves_out_play_against_oneself():
    matrix = np.array([[np.nan, 1.0, 3.0], [5.0, np.nan, 1.0], [0.0, 0.0, 100.0]])
    assert mean_payoff(matrix).tolist() == [2.0, 3.0, 0.0]
    assert mean_payoff(np.array([[1.0, 3.0, 5.0]])).tolist() == [3.0]


def test_a_clone_changes_no_skill():
    clones = RPS[[0, 1, 2, 2]][:, [0, 1, 2, 2]]
    found = nash_average(clones, (1 / 3, 1 / 3, 1 / 6, 1 / 6))
    assert found.skills == pytest.approx(np.zeros(4), abs=1e-15)
    assert found.regret == pytest.approx(0.0, abs=1e-15)
    uniform = nash_average(clones, np.full(4, 0.25))
    assert uniform.skills == pytest.approx([0.25, -0.25, 0.0, 0.0])
    assert uniform.regret == pytest.approx(0.25)


def test_the_skill_is_the_payoff_against_the_equilibrium_of_any_constant_sum():
    matrix = transitive(np.array([2.0, 1.0, 0.0])) + 0.5
    found = nash_average(matrix, (1.0, 0.0, 0.0))
    assert found.skills.tolist() == [0.0, -1.0, -2.0]
    assert found.regret == 0.0
    assert json.dumps(found.as_summary())


@pytest.mark.parametrize(
    ("matrix", "mixture"),
    [
        (RPS, (0.5, 0.5)),
        (RPS, (0.5, 0.6, 0.0)),
        (RPS, (1.5, -0.5, 0.0)),
        (np.array([[0.0, 1.0], [1.0, 0.0]]), (0.5, 0.5)),
        (RPS[:2], (0.5, 0.5)),
    ],
)
def test_what_cannot_be_averaged_is_refused(matrix, mixture):
    with refuses(UsageError):
        nash_average(matrix, mixture)


def test_equal_scores_share_the_better_rank_and_rounding_is_no_order():
    assert ranks([0.5, 2.0, 0.5, 0.1]).tolist() == [2, 1, 2, 4]
    assert ranks([1.0 / 3.0, 1.0 - 2.0 / 3.0, 0.0]).tolist() == [1, 1, 3]
    assert ranks([0.0, 0.0]).tolist() == [1, 1]
    with refuses(UsageError):
        ranks([0.0, np.nan])


def test_known_payoffs_have_certain_ranks():
    payoffs = exact(transitive(np.array([0.0, 3.0, 1.0])), symmetric=True)
    found = rank_intervals(payoffs, mean_payoff, np.random.default_rng(0), samples=20)
    assert found.ranks.tolist() == [3, 1, 2]
    assert found.intervals.tolist() == [[3, 1, 2], [3, 1, 2]]
    assert found.first == pytest.approx([0.0, 1.0, 0.0])
    assert [each["name"] for each in found.as_summary()["ranking"]] == ["1", "2", "0"]
    assert json.dumps(found.as_summary())


def test_how_often_one_is_first_is_the_probability_that_it_earns_more():
    """Two policies, one payoff: first is who has the sign of the mean, by the t distribution."""
    rng = np.random.default_rng(1)
    payoffs = played(transitive(np.array([0.1, 0.0])), 1.0, 40, rng)
    found = rank_intervals(payoffs, mean_payoff, rng, samples=20_000)
    ratio = payoffs.matrix[0, 1] / payoffs.errors[0, 0, 1]
    expected = stats.t.cdf(ratio, payoffs.freedom[0, 1])
    assert 0.05 < expected < 0.95
    assert found.first[0] == pytest.approx(expected, abs=0.015)
    assert found.probabilities.sum(1) == pytest.approx(np.ones(2))


def test_the_true_rank_lies_in_its_interval_as_often_as_promised():
    rng = np.random.default_rng(2)
    skills = np.array([0.5, 0.3, 0.25, 0.0])
    inside = 0
    for _ in range(100):
        payoffs = played(transitive(skills), 1.0, 20, rng)
        found = rank_intervals(payoffs, mean_payoff, rng, samples=200)
        low, high = found.intervals
        inside += ((low <= np.arange(1, 5)) & (np.arange(1, 5) <= high)).sum()
    assert inside >= 0.93 * 400


def test_any_score_can_be_ranked():
    rng = np.random.default_rng(3)
    payoffs = played(RPS, 0.01, 10, rng)
    found = rank_intervals(payoffs, lambda matrix: matrix.mean(1), rng, samples=300)
    assert (found.first > 0.01).all()
    assert np.abs(found.score_intervals).max() < 0.02


def test_what_was_played_once_is_not_certain():
    """Symmetry knows what a policy earns against itself, but not what it earns against others."""
    sums = np.zeros((6, 2, 2))
    sums[:, 0, 1], sums[:, 1, 0] = (1, 2, -2, 4, 4, -4), (1, -2, 2, 4, 4, -4)
    once = from_sums(["a", "b"], sums, True)
    with refuses(UsageError):
        rank_intervals(once, mean_payoff, np.random.default_rng(0))
    never = Payoffs(
        once.strategies, np.full((2, 2, 2), np.nan), once.covariances, 0 * once.counts, True
    )
    with refuses(UsageError):
        rank_intervals(never, mean_payoff, np.random.default_rng(0))
    with refuses(UsageError):
        rank_intervals(exact(RPS, symmetric=True), mean_payoff, np.random.default_rng(0), 1)
