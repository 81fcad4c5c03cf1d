"""Matrix games: the tables are those of the literature, by their equilibria."""

import numpy as np
import pytest

from refusals import refuses
from remuda.envs.contract import VectorEnvContract
from remuda.envs.games import matrix_games as games
from remuda.envs.registry import GAMES, make_env
from remuda.errors import ConfigError


class TestRockPaperScissors(VectorEnvContract):
    def make(self, num_envs):
        return games.rock_paper_scissors(num_envs)


class TestIteratedPrisonersDilemma(VectorEnvContract):
    def make(self, num_envs):
        return games.prisoners_dilemma(num_envs, rounds=7)


def play(env, *actions):
    env.begin_turn()
    for agent, action in enumerate(actions):
        env.act(agent, np.full(env.num_envs, action))
    return env.end_turn()


def sees(env, agent):
    out = np.full((env.num_envs, *env.agents[agent].observation_space.shape), 9.0, np.float32)
    env.observe(agent, out)
    return out[0].tolist()


@pytest.mark.parametrize(
    ("make", "row", "column", "values"),
    [
        (games.rock_paper_scissors, [1 / 3] * 3, [1 / 3] * 3, (0, 0)),
        (games.matching_pennies, [1 / 2] * 2, [1 / 2] * 2, (0, 0)),
        (games.prisoners_dilemma, [0, 1], [0, 1], (1, 1)),
        (games.stag_hunt, [1, 0], [1, 0], (5, 5)),
        (games.stag_hunt, [0, 1], [0, 1], (1, 1)),
        (games.stag_hunt, [1 / 5, 4 / 5], [1 / 5, 4 / 5], (1, 1)),
        (games.hawk_dove, [1, 0], [0, 1], (2, 0)),
        (games.hawk_dove, [1 / 5, 4 / 5], [1 / 5, 4 / 5], (4 / 5, 4 / 5)),
        (games.bach_or_stravinsky, [5 / 6, 1 / 6], [1 / 6, 5 / 6], (5 / 6, 5 / 6)),
    ],
)
def test_nobody_gains_by_leaving_an_equilibrium(make, row, column, values):
    payoffs = make().payoffs
    by_row, by_column = payoffs[..., 0] @ column, row @ payoffs[..., 1]
    np.testing.assert_allclose((row @ by_row, by_column @ column), values, atol=1e-6)
    assert by_row.max() <= values[0] + 1e-6
    assert by_column.max() <= values[1] + 1e-6


def test_the_biased_form_has_its_own_equilibrium():
    payoffs = games.rock_paper_scissors(biased=True).payoffs
    np.testing.assert_allclose(payoffs[..., 0] @ [1 / 4, 1 / 2, 1 / 4], 0.0, atol=1e-6)
    assert abs(payoffs[..., 0] @ np.full(3, 1 / 3)).max() > 0.3
    np.testing.assert_array_equal(payoffs[..., 0], -payoffs[..., 1])


def test_one_round_is_an_episode():
    env = games.rock_paper_scissors(num_envs=2)
    env.reset(np.zeros(2, np.int64), np.ones(2, bool))
    assert sees(env, 0) == [1, 0, 0, 0, 0, 0, 0]
    result = play(env, 1, 0)  # paper against rock
    assert result.rewards.tolist() == [[1, -1], [1, -1]]
    assert result.terminated.all()
    assert not result.truncated.any()
    assert not env.active.any()


def test_in_several_rounds_each_sees_the_last_its_own_choice_first():
    env = games.prisoners_dilemma(rounds=2)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    result = play(env, 0, 1)
    assert result.rewards.tolist() == [[0, 5]]
    assert env.active.all()
    assert sees(env, 0) == [1, 1, 0, 0, 1]
    assert sees(env, 1) == [1, 0, 1, 1, 0]
    assert play(env, 1, 1).terminated.all()


def test_the_games_are_known_by_name_and_refuse_no_rounds():
    assert make_env("stag_hunt", 3, rounds=4).options() == {"rounds": 4}
    with refuses(ConfigError):
        make_env("hawk_dove", 1, rounds=0)


@pytest.mark.parametrize(
    "name", [name for name, game in GAMES.items() if "matrix_games" in game.factory]
)
def test_each_action_has_a_policy_that_always_chooses_it(name):
    env, game = make_env(name, 3), GAMES[name]
    assert tuple(game.scripted) == env.action_names
    for action, policy in enumerate(game.scripted):
        chosen = game.policy(policy)(env, 1, np.zeros((3, 5), np.float32), None)
        assert chosen.tolist() == [action] * 3
