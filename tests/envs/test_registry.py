"""The registry: games by name, options checked, faults told in one line."""

import pytest

from refusals import refuses
from remuda.envs.registry import GAMES, find_game, make_env
from remuda.errors import ConfigError, UnknownGameError
from support import play_episodes


@pytest.mark.parametrize("name", GAMES)
def test_every_game_is_made_by_its_name(name):
    env = make_env(name, 2)
    assert env.num_envs == 2
    assert find_game(name).kind in ("cooperative", "competitive", "mixed")
    # What it says of its options is what it takes.
    assert make_env(name, 1, **env.options()).options() == env.options()


@pytest.mark.slow_cases(
    "cleanup-division_of_labour",
    "cleanup-harvesters",
    "cleanup-cleaners",
    "cleanup-taking_turns",
    "treasure_hunt-greedy_walker",
)
@pytest.mark.parametrize(
    ("name", "policy"),
    [(name, policy) for name, game in GAMES.items() for policy in game.reference],
)
def test_reference_returns_are_what_play_earns(name, policy):
    game = find_game(name)
    copies = 40 if name == "cleanup" else 1000
    env = game.make(copies)
    returns = play_episodes(env, [game.policy(policy)] * env.num_agents, 2, seed=2)
    error = returns.mean(1).std() / len(returns) ** 0.5
    known = game.reference[policy]
    assert abs(returns.mean() - known) < 5 * error + 0.005 * abs(known) + 1e-6
    assert set(game.reference) == {"random", *game.scripted}


def test_a_policy_that_nobody_wrote_is_refused():
    with refuses(ConfigError):
        find_game("tag").policy("x")


def test_a_game_of_your_own_is_found_by_its_path():
    assert make_env("support:Tape", 3, num_agents=4).num_agents == 4


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("treasure_hnt", {}, UnknownGameError),
        ("chess", {}, UnknownGameError),
        ("support:Nothing", {}, UnknownGameError),
        ("treasure_hunt", {"speed": 1}, ConfigError),
        ("treasure_hunt", {"height": 1}, ConfigError),
    ],
)
def test_faults_are_told(name, options, error):
    with refuses(error):
        make_env(name, 1, **options)
