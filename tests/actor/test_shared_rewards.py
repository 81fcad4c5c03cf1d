"""What agents learn from where rewards are shared: by hand, and while a run goes on."""

import numpy as np
import pytest

from remuda.actor.shared_rewards import FixedShares, SharedRewards
from remuda.config import load_config
from remuda.config.hyperparameters import LiveHyperparameters
from remuda.population.ledger.ratings import count_teams, sides_by_agent
from remuda.population.ledger.records import FRESH, REWARD, TEAM, TEAM_SQUARES

GIVEN = np.array([[0.0, 1.0, 5.0]] * 2, np.float32)


@pytest.mark.parametrize(
    ("shares", "teams", "expected"),
    [
        ((0.0, 0.0, 0.0), "   ", [0, 1, 5]),
        ((1.0, 1.0, 1.0), "   ", [2, 2, 2]),
        ((0.5, 0.5, 0.5), "   ", [1, 1.5, 3.5]),
        ((1.0, 1.0, 1.0), "aab", [0.5, 0.5, 5]),
        ((0.5, 0.5, 0.5), "aba", [1.25, 1, 3.75]),
        ((0.0, 0.5, 1.0), "   ", [0, 1.5, 2]),
        ((0.0, 1.0, 0.5), "aba", [0, 1, 3.75]),
    ],
)
def test_shared_rewards_by_hand(shares, teams, expected):
    shared = SharedRewards(2, sides_by_agent(list(teams)))
    assert shared.mixed(GIVEN) is GIVEN  # nothing is reckoned where none shares
    shared.begin(np.ones(2, np.bool_), np.array([shares]))
    assert shared.mixed(GIVEN) == pytest.approx(np.array([expected] * 2))
    for agent in range(3):
        assert shared.mixed_of(agent, GIVEN) == pytest.approx(np.array([expected[agent]] * 2))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_reward_that_is_no_number_reaches_only_those_who_learn_from_it(bad):
    given = np.array([[bad, 1.0, 2.0, 6.0]], np.float32)
    shared = SharedRewards(1, sides_by_agent(["red", "red", "blue", "blue"]))
    shared.begin(np.ones(1, np.bool_), np.array([[1.0, 0.0, 1.0, 0.5]]))
    mixed = shared.mixed(given)[0]
    assert not np.isfinite(mixed[0])
    assert mixed[1:].tolist() == [1.0, 4.0, 5.0]
    assert [shared.mixed_of(agent, given)[0] for agent in (1, 2, 3)] == [1.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("teams", "expected"),
    [
        (["", "", ""], [0, 0, 0]),
        (["red", "blue", "red"], [0, 1, 0]),
        (["red", "", "red", ""], [0, 1, 0, 2]),
    ],
)
def test_who_has_no_team_where_others_have_one_stands_for_itself(teams, expected):
    assert sides_by_agent(teams).tolist() == expected


def test_a_share_stays_until_the_episode_is_over():
    shared = SharedRewards(2, sides_by_agent(["", "", ""]))
    shared.begin(np.array([False, True]), np.ones((1, 3)))
    assert shared.mixed(GIVEN).tolist() == [[0, 1, 5], [2, 2, 2]]
    shared.begin(np.array([True, False]), np.full((2, 3), 0.5))
    assert shared.mixed(GIVEN) == pytest.approx(np.array([[1, 1.5, 3.5], [2, 2, 2]]))
    twin = SharedRewards(2, sides_by_agent(["", "", ""]))
    twin.restore(shared.shares)
    assert twin.mixed(GIVEN).tolist() == shared.mixed(GIVEN).tolist()


def test_a_change_while_the_run_goes_on_holds_from_the_next_episode_on():
    config = load_config({"policy": {"share_rewards": 0.25}})
    changes = LiveHyperparameters(dict.fromkeys(("a", "b"), config.policy))
    shares = FixedShares(["b", "a"], {"a": 0.25, "b": 0.25}, changes)
    assert shares.now().tolist() == [[0.25, 0.25]]
    changes.change("a", {"share_rewards": 0.75})
    assert shares.now().tolist() == [[0.25, 0.75]]
    changes.change("b", {"learning_rate": 0.5})
    assert shares.now().tolist() == [[0.25, 0.75]]


def test_what_a_team_earned_is_counted_for_each_of_its_seats():
    numbers = np.tile(np.array(FRESH), (4, 1))
    slots = np.array([[0, 1, 2], [2, 3, 0]])
    returns = np.array([[1.0, 3.0, 8.0], [2.0, 4.0, 5.0]])
    sides = sides_by_agent(["red", "red", "blue"])
    count_teams(slots, returns, np.array([True, False]), sides, numbers)
    assert numbers[:, TEAM].tolist() == [2.0, 2.0, 8.0, 0.0]
    count_teams(slots, returns, np.array([False, True]), sides, numbers)
    assert numbers[:, TEAM].tolist() == [7.0, 2.0, 11.0, 3.0]
    assert numbers[:, TEAM_SQUARES].tolist() == [29.0, 4.0, 73.0, 9.0]
    assert not numbers[:, REWARD].any()
