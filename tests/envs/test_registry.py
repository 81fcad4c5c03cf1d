"""The registry: games by name, options checked, faults told in one line."""

import pytest

from remuda.envs.registry import GAMES, find_game, make_env
from remuda.errors import ConfigError, UnknownGameError


@pytest.mark.parametrize("name", GAMES)
def test_every_game_is_made_by_its_name(name):
    env = make_env(name, 2)
    assert env.num_envs == 2
    assert find_game(name).kind in ("cooperative", "competitive", "mixed")
    # What it says of its options is what it takes.
    assert make_env(name, 1, **env.options()).options() == env.options()


def test_a_game_of_your_own_is_found_by_its_path():
    assert make_env("support:Tape", 3, num_agents=4).num_agents == 4


@pytest.mark.parametrize(
    ("name", "options", "error", "said"),
    [
        ("treasure_hnt", {}, UnknownGameError, "Did you mean treasure_hunt"),
        ("chess", {}, UnknownGameError, "Known games are .*treasure_hunt"),
        ("support:Nothing", {}, UnknownGameError, "cannot load the game support:Nothing"),
        ("treasure_hunt", {"speed": 1}, ConfigError, "env.options.speed: treasure_hunt has no"),
        ("treasure_hunt", {"height": 1}, ConfigError, "treasure_hunt refuses them: height is 1"),
    ],
)
def test_faults_are_told(name, options, error, said):
    with pytest.raises(error, match=said):
        make_env(name, 1, **options)
