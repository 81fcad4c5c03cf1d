"""Games of OpenSpiel as games of Remuda."""

import numpy as np
import pytest

from refusals import refuses
from remuda.envs.adapters.libraries import LIBRARIES
from remuda.envs.adapters.open_spiel import OpenSpielEnv
from remuda.envs.contract import VectorEnvContract
from remuda.envs.pettingzoo_export import parallel_env
from remuda.envs.registry import find_game, make_env
from remuda.errors import ConfigError

pyspiel = pytest.importorskip("pyspiel")


class TestLeduc(VectorEnvContract):
    def make(self, num_envs):
        return OpenSpielEnv("leduc_poker", num_envs)


class TestTicTacToe(VectorEnvContract):
    def make(self, num_envs):
        return OpenSpielEnv("tic_tac_toe", num_envs)


class TestGoofspiel(VectorEnvContract):
    """Players move at the same time."""

    def make(self, num_envs):
        return OpenSpielEnv("goofspiel(num_cards=4,imp_info=True)", num_envs)


class TestKuhnOfThree(VectorEnvContract):
    def make(self, num_envs):
        return OpenSpielEnv("kuhn_poker(players=3)", num_envs)


def played(env, seed, most=200):
    """An episode of all copies by random legal actions: returns [num_envs, players]."""
    rng, count = np.random.default_rng(seed), env.num_envs
    env.reset(np.arange(count) + seed, np.ones(count, bool))
    returns, over = np.zeros((count, env.num_agents)), np.zeros(count, bool)
    for _ in range(most):
        env.begin_turn()
        for group in env.turn_groups:
            chosen = {}
            for agent in group:
                spec = env.agents[agent]
                env.observe(agent, np.zeros((count, *spec.observation_space.shape), np.float32))
                masks = np.zeros((count, spec.action_space.n), bool)
                env.mask(agent, masks)
                chosen[agent] = np.array([rng.choice(np.flatnonzero(row)) for row in masks])
            for agent in group:
                env.act(agent, chosen[agent])
        result = env.end_turn()
        returns += result.rewards
        over |= result.terminated.all(1)
        if over.all():
            return returns
    raise AssertionError("an episode is not over")


@pytest.mark.parametrize(
    "name",
    [
        "leduc_poker",
        "kuhn_poker(players=3)",
        "goofspiel(num_cards=5)",
        "pig",
        "matrix_pd",
        *("2048", "hanabi", "coop_box_pushing", "blackjack", "solitaire"),  # red before
    ],
)
def test_returns_are_those_of_the_game(name):
    """Whatever was given when, and by chance too, adds up to what OpenSpiel says at the end."""
    env = OpenSpielEnv(name, 6)
    returns = played(env, 3, 5_000)
    assert all(state.is_terminal() for state in env.states)
    np.testing.assert_allclose(returns, [state.returns() for state in env.states], atol=1e-2)
    assert len({tuple(env.history(e)) for e in range(6)}) > 1


def test_chance_is_drawn_as_often_as_the_game_says():
    env = OpenSpielEnv("leduc_poker", 3_000)
    env.reset(np.arange(3_000), np.ones(3_000, bool))
    first = np.array([env.history(e)[0] for e in range(3_000)])
    counts = np.bincount(first, minlength=6)
    assert (np.abs(counts - 500) < 5 * np.sqrt(500 * 5 / 6)).all()


def test_a_player_sees_its_information_state_and_what_is_legal():
    env = OpenSpielEnv("leduc_poker", 2)
    env.reset(np.array([1, 2]), np.ones(2, bool))
    seen = np.zeros((2, *env.agents[0].observation_space.shape), np.float32)
    masks = np.zeros((2, 3), bool)
    env.begin_turn()
    env.observe(0, seen)
    env.mask(0, masks)
    for e, state in enumerate(env.states):
        assert seen[e].tolist() == state.information_state_tensor(0)
        assert np.flatnonzero(masks[e]).tolist() == state.legal_actions()
    assert env.describe(0) == env.states[0].information_state_string(0)


def test_where_everything_is_seen_the_board_is_and_keeps_its_shape():
    assert make_env("open_spiel:tic_tac_toe", 1).agents[0].observation_space.shape == (3, 3, 3)
    other = make_env("open_spiel:leduc_poker", 1, sees="observation")
    assert other.options() == {"sees": "observation"}
    assert other.agents[0].observation_space.shape == (16,)


def test_a_game_that_was_saved_goes_on_as_it_would_have():
    env = OpenSpielEnv("leduc_poker", 3)
    env.reset(np.arange(3), np.ones(3, bool))
    env.begin_turn()
    env.act(0, np.ones(3, np.int64))
    env.act(1, np.ones(3, np.int64))
    env.end_turn()
    other = OpenSpielEnv("leduc_poker", 3)
    other.restore(env.state())
    assert [other.history(e) for e in range(3)] == [env.history(e) for e in range(3)]
    assert (other.active == env.active).all()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("leduc_pokr", {}),
        ("leduc_poker(players=77)", {}),
        ("connect_four(rows=-1)", {}),
        ("nfg_game(filename=/tmp)", {}),
        ("crazy_eights(players=0)", {}),
        ("catch(rows=-5)", {}),
        ("nfg_game", {}),
        ("mfg_crowd_modelling", {}),
        ("leduc_poker", {"sees": "all"}),
        ("nim", {"sees": "information_state"}),
        ("crossword", {}),
        ("leduc_poker", {"players": 3}),
    ],
)
def test_what_cannot_be_played_is_told(name, options):
    with refuses(ConfigError):
        make_env(f"open_spiel:{name}", 1, **options)


def test_a_missing_package_is_told(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with refuses(ConfigError):
        find_game("open_spiel:leduc_poker").make(1)


def test_a_state_has_a_picture():
    env = OpenSpielEnv("tic_tac_toe", 1)
    before = env.render()
    assert before.shape == (320, 480, 3)
    env.reset(np.array([0]), np.ones(1, bool))
    env.begin_turn()
    env.act(0, np.array([4]))
    assert (env.render() != before).any()


def test_policies_of_its_games_are_measured_exactly():
    """As OpenSpiel itself measures them."""
    from open_spiel.python import policy as policies
    from open_spiel.python.algorithms import exploitability

    from remuda.analysis.trees.exact_play import walked_game
    from remuda.analysis.trees.exploitability import measure

    env = OpenSpielEnv("leduc_poker", 1)
    game = walked_game("open_spiel:leduc_poker", env)
    rng, tabular = np.random.default_rng(0), policies.TabularPolicy(env.game)
    play = []
    for player in range(2):
        seen, legal = game.observe(player)
        assert seen.shape == (468, 30)
        own = rng.random(legal.shape) * legal
        play.append(own / own.sum(1, keepdims=True))
        for known, row in zip(game.tree.information_sets[player], play[-1], strict=True):
            tabular.policy_for_key(known.key)[:] = row
    theirs = exploitability.nash_conv(env.game, tabular)
    assert measure(game.tree, play).nash_conv == pytest.approx(theirs)


@pytest.mark.parametrize(
    "name", ["tic_tac_toe", "goofspiel(num_cards=4)", "connect_four", "go", "shogi", "chess"]
)
def test_games_that_are_large_or_of_moves_at_once_are_not_walked(name):
    from remuda.analysis.trees.exact_play import walked_game

    assert walked_game(f"open_spiel:{name}", OpenSpielEnv(name, 1)) is None


def test_games_of_moves_at_once_are_observed_together_and_exported_so():
    """Red before: refused, as if one agent acted at a time."""
    for name, together in (("open_spiel:matrix_rps", True), ("open_spiel:kuhn_poker", False)):
        env = make_env(name, 1)
        assert env.can_observe_together is together
        if together:
            assert make_env(name, 1, **{"env.observe_together": True}).turn_groups == ((0, 1),)
            pair = parallel_env(name)
            pair.reset(seed=0)
            assert pair.step({"player_0": 0, "player_1": 1})[1] == {"player_0": -1, "player_1": 1}
        else:
            with refuses(ConfigError):
                make_env(name, 1, **{"env.observe_together": True})


@pytest.mark.slow
def test_a_game_of_too_many_actions_is_refused_with_the_reason():
    """Red before: a turn of its run took a second."""
    with refuses(ConfigError):
        make_env("open_spiel:colored_trails", 1)
    assert "open_spiel:colored_trails" not in LIBRARIES["open_spiel"].names()
