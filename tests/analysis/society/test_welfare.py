"""Social outcomes by hand-worked numbers, and their errors against what repetition shows."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.society.welfare import (
    efficiency,
    equality,
    long_run_equality,
    social_outcomes,
    sustainability,
)
from remuda.errors import UsageError


def rng(seed=0):
    return np.random.default_rng(seed)


def test_efficiency_is_what_all_earn_in_a_turn():
    found = efficiency([[1.0, 3.0], [2.0, 6.0]], 4)
    assert found.value == 1.5
    assert found.error == pytest.approx(np.std([1.0, 2.0], ddof=1) / np.sqrt(2))
    assert found.corrected == pytest.approx(1.5)
    assert efficiency([[1.0, 3.0], [2.0, 6.0]], [4, 8]).value == 1.0
    assert efficiency([[-1.0, -3.0]], 2).value == -2.0
    assert np.isnan(efficiency([[1.0]], 1).error)


@pytest.mark.parametrize(
    ("returns", "wanted"),
    [
        ([2.0, 2.0, 2.0], 0.0),
        ([0.0, 0.0, 3.0], 2 / 3),
        ([1.0, 3.0], 0.25),
        ([0.0, 0.0], 0.0),
        ([5.0], 0.0),
    ],
)
def test_gini_by_hand(returns, wanted):
    assert equality([returns]).value == pytest.approx(1 - wanted)


def test_gini_by_all_pairs():
    r = rng().random(9)
    pairs = np.abs(r[:, None] - r).sum()
    assert equality([r]).value == pytest.approx(1 - pairs / (2 * 9 * r.sum()))


def test_there_are_no_shares_of_less_than_nothing():
    assert np.isnan(equality([[-1.0, 3.0]] * 2).value)
    assert long_run_equality([[-1.0, 3.0], [1.0, -1.0]]).value == pytest.approx(0.5)
    assert equality([[-1.0, 3.0]]).as_summary()["value"] is None


def test_episodes_count_by_what_is_earned_in_them():
    # 1 - (4 + 0 + 0) / (2 * 2 * (4 + 2 + 0)): |1 - 3| counts for both orders.
    found = equality([[1.0, 3.0], [1.0, 1.0], [0.0, 0.0]])
    assert found.value == pytest.approx(1 - 4 / 24)
    assert found.episodes == 3
    nothing = equality(np.zeros((4, 3)))
    assert (nothing.value, nothing.error) == (1.0, 0.0)


def test_agents_that_take_turns_are_equal_in_the_long_run_only():
    returns = [[0.0, 4.0], [4.0, 0.0]] * 5
    assert equality(returns).value == 0.5
    assert long_run_equality(returns).value == 1.0


def test_errors_of_equality_are_what_repetition_shows():
    drawn = rng(1)

    def play(agents_alike):
        means = np.array([1.0, 1.0, 1.0]) if agents_alike else np.array([1.0, 2.0, 4.0])
        return drawn.gamma(2.0, means / 2.0, (40, 3))

    for measure in (equality, long_run_equality):
        found = [measure(play(False)) for _ in range(200)]
        spread = np.std([each.value for each in found])
        assert np.mean([each.error for each in found]) == pytest.approx(spread, rel=0.2)
    alike = [long_run_equality(play(True)) for _ in range(200)]
    away = 1.0 - np.mean([each.value for each in alike])
    assert abs(1.0 - np.mean([each.corrected for each in alike])) < 0.6 * away


def test_sustainability_is_when_rewards_are_collected():
    rewards = np.zeros((2, 10, 2))
    rewards[0, [1, 3], 0] = 1.0  # turns 2 and 4
    rewards[0, 8, 1] = 5.0  # turn 9; the size does not matter
    rewards[1, 0, 0] = 1.0  # the other collects nothing
    rewards[1, 5, 1] = -1.0
    found = sustainability(rewards)
    assert found.value == pytest.approx(((3 + 9) / 2 + 1) / 2)
    assert found.error == pytest.approx(np.std([6.0, 1.0], ddof=1) / np.sqrt(2))
    assert np.isnan(sustainability(np.zeros((2, 3, 2))).value)
    assert sustainability(np.ones((1, 9, 2))).value == 5.0


def test_what_comes_after_the_end_is_not_looked_at():
    rewards = np.full((2, 5, 2), np.nan)
    rewards[0, :2], rewards[1, :4] = 1.0, 1.0
    found = social_outcomes(rewards, lengths=[2, 4])
    assert found.efficiency.value == 2.0
    assert found.equality.value == 1.0
    assert found.sustainability.value == pytest.approx((1.5 + 2.5) / 2)
    assert found.as_summary()["sustainability"]["value"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: equality([1.0]),
        lambda: equality([[np.inf, 1.0]]),
        lambda: equality([[1.0], [np.nan]]),
        lambda: sustainability([[1.0]]),
        lambda: sustainability([[[1.0], [np.nan]]]),
        lambda: sustainability([[[1.0]]], lengths=[2]),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(call):
    with refuses(UsageError):
        call()
