"""What becomes of a group of agents is told from its episodes."""

import json

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.society.society import society
from remuda.errors import UsageError


def test_all_of_it_is_as_worked_out_by_hand():
    # Two episodes of 2 turns, and of 1: agent a earns 3 and 3, b 1 and 1.
    rewards = np.array([[[1.0, 1.0], [2.0, 0.0]], [[3.0, 1.0], [0.0, 0.0]]])
    found = society(("a", "b"), rewards, [2, 1], {"apples": [4.0, 6.0]})
    assert found.returns.tolist() == [[3, 1], [3, 1]]
    assert [each.value for each in found.mean_returns] == [3.0, 1.0]
    assert found.outcomes.efficiency.value == pytest.approx((4 / 2 + 4 / 1) / 2)
    # The differences |3 - 1| of both orders, over 2 * 2 * 4: 1 - 4 / 16.
    assert found.outcomes.equality.value == pytest.approx(0.75)
    told = found.in_words()
    assert told["returns"] == (
        "a has the highest return, 3 per episode, and b the lowest, 1; that may be chance."
    )
    assert told["equality"].startswith("0.75 within an episode, 0.75 over all episodes")
    assert told["episode metrics"] == "apples 5 ± 1."
    assert set(found.measures) >= {"efficiency", "equality", "episode_length", "apples"}
    json.dumps(found.as_summary(), allow_nan=False)


def test_a_difference_is_sure_where_it_is_many_standard_errors():
    rng = np.random.default_rng(0)
    rewards = rng.normal([2.0, 1.0], 0.1, (40, 1, 2))
    told = society(("a", "b"), rewards, [1] * 40).in_words()["returns"]
    assert told.startswith("a has the highest return, ")
    assert "chance" not in told
    told = society(("a", "b"), rewards[:1], [1]).in_words()["returns"]
    assert told.endswith("; that may be chance.")


@pytest.mark.slow_cases(
    *("False-5-4", "False-5-16", "False-40-2", "False-40-8"),
    *("True-5-2", "True-5-8", "True-5-16", "True-40-4", "True-40-16"),
)
@pytest.mark.parametrize("agents", [2, 4, 8, 16])
@pytest.mark.parametrize("episodes", [5, 40])
@pytest.mark.parametrize("together", [False, True])
def test_of_equal_agents_a_difference_is_told_as_sure_in_one_of_twenty(agents, episodes, together):
    """Also where they compete for a constant sum, and of unlike noise."""
    rng = np.random.default_rng(0)
    names = tuple(f"agent{place}" for place in range(agents))
    noise = np.linspace(0.5, 2.0, agents) if episodes > 20 else 1.0
    sure = 0
    for _ in range(300):
        rewards = rng.normal(0.0, noise, (episodes, 1, agents))
        if together:
            rewards -= rewards.mean(2, keepdims=True)
        told = society(names, rewards, [1] * episodes).in_words()["returns"]
        sure += not told.endswith("; that may be chance.")
    assert sure <= 300 * 0.05 + 2.5 * np.sqrt(300 * 0.05 * 0.95)


@pytest.mark.slow_cases(
    *("1.0-3-2", "1.0-8-2", "1.0-2-4", "1.0-5-4", "1.0-20-4"),
    *("0.3-2-2", "0.3-5-2", "0.3-20-2", "0.3-3-4", "0.3-8-4"),
)
@pytest.mark.parametrize("agents", [2, 4])
@pytest.mark.parametrize("episodes", [2, 3, 5, 8, 20])
@pytest.mark.parametrize("often", [1.0, 0.3])
def test_of_equal_agents_few_wins_of_one_are_chance(agents, episodes, often):
    """One of them wins all there is, in some of the episodes."""
    rng = np.random.default_rng(0)
    names, sure = tuple("abcd"[:agents]), 0
    for _ in range(300):
        won = rng.random((episodes, 1)) < often
        rewards = np.where(won, np.eye(agents)[rng.integers(agents, size=episodes)], 0.0)
        told = society(names, rewards[:, None], [1] * episodes).in_words()["returns"]
        sure += "the highest" in told and not told.endswith("; that may be chance.")
    assert sure <= 300 * 0.05 + 2.5 * np.sqrt(300 * 0.05 * 0.95)


def test_agents_that_earn_the_same_are_told_together():
    told = society(("a", "b"), np.ones((4, 1, 2)), [1] * 4).in_words()["returns"]
    assert told == "Each agent has a return of 1 per episode."
    assert society(("a",), np.ones((4, 1, 1)), [1] * 4).in_words()["returns"].startswith("a has")


def test_one_of_many_that_earns_more_is_told_as_sure():
    rewards = np.random.default_rng(0).normal(np.eye(8)[0], 0.5, (60, 1, 8))
    told = society(tuple("abcdefgh"), rewards, [1] * 60).in_words()["returns"]
    assert told.startswith("a has the highest return")
    assert "chance" not in told


def test_competition_is_told_as_such():
    rewards = np.array([[[1.0, -1.0]], [[-1.0, 1.0]]])
    told = society(("a", "b"), rewards, [1, 1]).in_words()
    assert told["efficiency"].startswith("Agents share out a constant sum")
    assert "equality" not in told


def test_less_than_nothing_has_no_shares():
    rewards = np.array([[[1.0, -1.0]], [[3.0, -1.0]]])
    told = society(("a", "b"), rewards, [1, 1]).in_words()
    assert told["equality"].startswith("It is undefined: an agent's return is negative")


def test_no_episode_is_told():
    with refuses(UsageError):
        society(("a",), np.zeros((0, 0, 1)), [])
