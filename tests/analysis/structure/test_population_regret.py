"""What could be gained against each policy by another of the population."""

import json
from dataclasses import replace

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.payoffs.payoffs import exact, from_sums
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.analysis.structure.population_regret import within_population, within_roles
from remuda.errors import UsageError

NAMES = ("rock", "paper", "scissors")


def game(matrix):
    a = np.array(matrix, np.float64)
    return exact(a, a.T, names=(NAMES, NAMES), symmetric=True)


def test_gains_are_those_worked_out_by_hand():
    # Against rock, paper earns 0.25 where rock earns 0; against paper, scissors loses and rock
    # does, so nothing is gained; against scissors, rock earns 0.5.
    payoffs = game([[0, -0.25, 0.5], [0.25, 0, 0.1], [-0.5, -0.1, 0]])
    found = within_population(payoffs, np.random.default_rng(0), 50)
    assert [each.value for each in found.gains] == [0.25, 0.0, 0.5]
    assert found.best_responses == ("paper", "paper", "rock")
    assert found.least == "paper"
    assert json.loads(json.dumps(found.as_summary()))["policies"][2] == {
        "policy": "scissors",
        "best_response": "rock",
        "gain": found.gains[2].as_summary(),
    }


def test_a_game_that_is_not_zero_sum_counts_what_the_policy_itself_would_earn():
    # The prisoner's dilemma: to defect against a cooperator gains 5 - 3, against a defector 0.
    a = np.array([[3.0, 0.0], [5.0, 1.0]])
    names = ("cooperate", "defect")
    payoffs = exact(a, a.T, names=(names, names), symmetric=True)
    found = within_population(payoffs, np.random.default_rng(0), 50)
    assert [each.value for each in found.gains] == [2.0, 0.0]


def test_the_gains_of_opponents_in_two_roles_are_worked_out_by_hand():
    """Against a, x earns 3 and y 1: 1 above their mean. Against b, y earns 6 more than x."""
    payoffs = exact([[9, 8], [7, 6]], [[3, 1], [0, 6]], names=[("a", "b"), ("x", "y")])
    found = within_roles(payoffs, np.zeros(2, int), np.random.default_rng(0), 50)
    assert [each.value for each in found.gains] == [1.0, 3.0]
    assert [each.corrected for each in found.gains] == [1.0, 3.0]
    assert found.best_responses == ("x", "y")
    assert found.least == "a"


def test_the_best_response_is_of_any_role_over_the_mean_of_that_role():
    """Opponents x and y are one role, which earns much, and z alone is another."""
    payoffs = exact([[0, 0, 0]], [[10, 12, 1]], names=[("a",), ("x", "y", "z")])
    found = within_roles(payoffs, np.array([0, 0, 1]), np.random.default_rng(0), 50)
    assert found.best_responses == ("y",)
    assert found.gains[0].value == 1.0
    assert json.loads(json.dumps(found.as_summary()))["over"] == found.over


def test_opponents_that_never_met_are_named():
    payoffs = exact([[1, 2], [3, 4]], names=[("a", "b"), ("x", "y")])
    counts = payoffs.counts.copy()
    counts[0, 1] = 0
    with refuses(UsageError):
        within_roles(
            replace(payoffs, counts=counts), np.zeros(2, int), np.random.default_rng(0), 50
        )


def test_few_matches_are_told_by_a_wide_interval_that_holds_the_truth():
    truth = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    one, other = (np.repeat(axis, 60) for axis in np.triu_indices(3, 1))
    first = np.random.default_rng(3).normal(truth[one, other], 1.0)
    sums = np.zeros((6, 3, 3))
    add_up(np.stack([one, other], 1), np.stack([first, -first], 1), np.arange(2), True, False, sums)
    payoffs = from_sums(NAMES, sums, True).completed()
    for each in within_population(payoffs, np.random.default_rng(0), 400).gains:
        low, high = each.interval
        assert low < 1.0 < high
        assert 0.2 < high - low < 1.0


def played(truth, matches, rng):
    """The payoffs of a zero-sum game from so many matches a pair, whose returns deviate by 1."""
    count = len(truth)
    one, other = (np.repeat(axis, matches) for axis in np.triu_indices(count, 1))
    first = rng.normal(truth[one, other], 1.0)
    sums = np.zeros((ROWS, count, count))
    add_up(np.stack([one, other], 1), np.stack([first, -first], 1), np.arange(2), True, False, sums)
    return from_sums([f"p{place}" for place in range(count)], sums, True).completed()


def several_times(truth, matches, times=100):
    """Values, corrected values and whether intervals hold the truth: [times, N] each."""
    rng = np.random.default_rng(1)
    gains = (truth - np.diagonal(truth)).max(0)
    found = [within_population(played(truth, matches, rng), rng, 100).gains for _ in range(times)]
    values, corrected = (
        np.array([[getattr(each, what) for each in gains] for gains in found])
        for what in ("value", "corrected")
    )
    lows, highs = np.moveaxis([[each.interval for each in gains] for gains in found], 2, 0)
    assert (lows <= corrected).all()
    assert (corrected <= highs).all()
    return values, corrected, (lows <= gains) & (gains <= highs)


@pytest.mark.slow_cases("5")
@pytest.mark.parametrize("matches", [5, 30])
def test_of_equal_policies_nothing_is_gained_on_the_mean(matches):
    values, corrected, held = several_times(np.zeros((8, 8)), matches)
    error = 1.0 / np.sqrt(matches)
    assert values.mean() > 0.8 * error, "the largest of several noisy means"
    assert abs(corrected.mean()) < 0.1 * error
    assert 0.92 <= held.mean() <= 1.0 - 0.005


def test_the_gain_of_a_clear_best_response_is_found():
    truth = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    _, corrected, held = several_times(truth, 40)
    assert corrected.mean() == pytest.approx(1.0, abs=0.05)
    assert 0.92 <= held.mean() <= 0.995


def test_what_is_told_is_a_lower_bound_where_several_are_nearly_as_good():
    truth = np.zeros((6, 6))
    truth[1:, 0] = [0.3, 0.25, 0.2, 0.1, 0.0]
    truth[0, 1:] = -truth[1:, 0]
    values, corrected, held = several_times(truth, 30)
    assert values[:, 0].mean() > 0.35
    assert 0.15 < corrected[:, 0].mean() < 0.31
    assert held[:, 0].mean() >= 0.92


def test_what_a_policy_earns_against_itself_must_be_known():
    payoffs = game(np.zeros((3, 3)))
    counts = payoffs.counts.copy()
    np.fill_diagonal(counts, 0)
    means = np.where(counts == 0, np.nan, payoffs.means)
    with refuses(UsageError):
        within_population(
            replace(payoffs, means=means, counts=counts), np.random.default_rng(0), 50
        )
    with refuses(UsageError):
        within_population(exact(np.zeros((2, 3))), np.random.default_rng(0), 50)
