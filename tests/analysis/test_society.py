"""What becomes of a group of agents is told from its episodes."""

import json

import numpy as np
import pytest

from remuda.analysis.society import society
from remuda.errors import UsageError


def test_all_of_it_is_as_worked_out_by_hand():
    # Two episodes of 2 turns, and of 1: agent a earns 3 and 3, b 1 and 1.
    rewards = np.array([[[1.0, 1.0], [2.0, 0.0]], [[3.0, 1.0], [0.0, 0.0]]])
    found = society(("a", "b"), rewards, [2, 1], {"apples": [4.0, 6.0]})
    assert found.returns.tolist() == [[3, 1], [3, 1]]
    assert [each.value for each in found.earned] == [3.0, 1.0]
    assert found.outcomes.efficiency.value == pytest.approx((4 / 2 + 4 / 1) / 2)
    # The differences |3 - 1| of both orders, over 2 * 2 * 4: 1 - 4 / 16.
    assert found.outcomes.equality.value == pytest.approx(0.75)
    told = found.in_words()
    assert told["returns"] == "a earns the most, 3 an episode, and b the least, 1."
    assert told["equality"].startswith("0.75 within an episode, 0.75 over all episodes")
    assert told["the game tells"] == "apples 5 ± 1."
    assert set(found.measures) >= {"efficiency", "equality", "episode_length", "apples"}
    json.dumps(found.as_summary(), allow_nan=False)


def test_a_difference_is_sure_where_it_is_many_standard_errors():
    rng = np.random.default_rng(0)
    rewards = rng.normal([2.0, 1.0], 0.1, (40, 1, 2))
    told = society(("a", "b"), rewards, [1] * 40).in_words()["returns"]
    assert told.startswith("a earns the most, ")
    assert "chance" not in told
    told = society(("a", "b"), rewards[:1], [1]).in_words()["returns"]
    assert told.endswith("; that may be chance.")


def test_competition_is_told_as_such():
    rewards = np.array([[[1.0, -1.0]], [[-1.0, 1.0]]])
    told = society(("a", "b"), rewards, [1, 1]).in_words()
    assert told["efficiency"].startswith("Agents share out a constant sum")
    assert "equality" not in told


def test_less_than_nothing_has_no_shares():
    rewards = np.array([[[1.0, -1.0]], [[3.0, -1.0]]])
    told = society(("a", "b"), rewards, [1, 1]).in_words()
    assert told["equality"].startswith("It is not told: an agent earned less than nothing")


def test_no_episode_is_told():
    with pytest.raises(UsageError, match="no episode was over"):
        society(("a",), np.zeros((0, 0, 1)), [])
