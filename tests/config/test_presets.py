"""Presets: settings for a kind of world, under files, flags and whatever Python says."""

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.config import Config, all_presets, config_text, load_config, preset_tree
from remuda.config.presets import Preset
from remuda.envs.registry import make_env
from remuda.errors import ConfigError, UsageError
from remuda.ui.cli.commands.train import read_arguments
from remuda.ui.cli.main import run

GAME = "treasure_hunt"


@pytest.mark.parametrize("name", all_presets())
def test_every_preset_is_a_configuration_that_changes_something(name):
    preset = all_presets()[name]
    assert load_config(preset_tree([name])) != Config()
    assert preset.suits
    assert preset.reason.endswith(".")


def test_pursuers_own_rewards_add_up_to_those_that_they_share():
    """So what a team comes to with the preset is what it would come to in the world as it is."""
    totals = []
    for options in ({}, preset_tree(["pursuit"])["env"]["options"]):
        env = make_env("pettingzoo:sisl/pursuit_v5", 2, max_cycles=60, **options)
        rng, returns = np.random.default_rng(3), np.zeros((2, env.num_agents))
        env.reset(np.array([5, 6]), np.ones(2, bool))
        while env.active.any():
            env.begin_turn()
            for agent in env.turn_groups[0]:
                env.act(agent, rng.integers(0, 5, 2))
            returns += env.end_turn().rewards
        env.close()
        totals.append(returns.sum(1))
        assert (np.ptp(returns, axis=1) < 1e-4).all() == (not options)
    np.testing.assert_allclose(*totals, atol=1e-3)


def test_a_preset_goes_under_files_and_these_under_flags(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text("policy: {discount: 0.5, learning_rate: 0.25}\n")
    plain = read_arguments([GAME, "--preset", "mpe"])
    words = [GAME, "--policy.learning_rate", "0.125", "--config", str(file), "--preset", "mpe"]
    config = read_arguments(words)
    assert plain.policy.discount == all_presets()["mpe"].tree["policy"]["discount"]
    assert plain.policy.algorithm == "ppo"
    assert config.policy.discount == 0.5
    assert config.policy.learning_rate == 0.125
    assert config.policy.ppo == plain.policy.ppo


OWN = "support.nowhere:Environment"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([OWN], ("ppo", 8, 1_000_000)),
        ([OWN, "--policy.algorithm", "dqn"], ("dqn", 8, 1_000_000)),
        ([OWN, "--policies.agent_0.algorithm", "dqn"], ("ppo", 8, 1_000_000)),
        ([OWN, "--preset", "mpe"], ("ppo", 64, 1_000_000)),
        (["pettingzoo:mpe2.simple_spread_v3", "--env.num_envs", "1"], ("ppo", 1, 1_000_000)),
        ([OWN, "--run.turns", "9"], ("ppo", 8, 9)),
        ([GAME], ("iqn", 1, 1_500_000)),
    ],
)
def test_own_environments_have_own_defaults(words, found, monkeypatch):
    monkeypatch.setattr("remuda.envs.registry.find_game", lambda name: None)
    config = read_arguments(words)
    assert (config.policy.algorithm, config.env.num_envs, config.run.turns) == found


def test_the_first_line_lists_values_of_the_preset(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("remuda.envs.registry.find_game", lambda name: None)
    read_arguments([OWN, "--run.turns", "9"])
    first = capfd.readouterr().out.splitlines()[0]
    assert "policy.algorithm ppo, env.num_envs 8" in first
    assert "run.turns" not in first
    read_arguments([OWN, "--run.turns", "9", "--policy.algorithm", "dqn", "--env.num_envs", "1"])
    read_arguments([GAME])
    assert "own_environment" not in capfd.readouterr().out


def test_a_resumed_run_keeps_its_settings(tmp_path, capsys):
    options = {"schedule": "sequential", "view": "plain"}
    quick = {"turns": 16, "evaluate_episodes": 0}
    game, own = "gymnasium:CartPole-v1", {"algorithm": "dqn"}
    run = {**quick, "directory": tmp_path / "run"}
    first = remuda.train(game, policy=own, env={"num_envs": 1}, run=run, **options)
    assert "own_environment" not in capsys.readouterr().out
    remuda.train(resume=first, run={"turns": 32}, **options)
    config = remuda.load(first).config
    assert (config.policy.algorithm, config.env.num_envs) == ("dqn", 1)
    other = remuda.train(game, run={**quick, "directory": tmp_path / "other"}, **options)
    assert "policy.algorithm ppo, env.num_envs 8" in capsys.readouterr().out
    config = remuda.load(other).config
    assert (config.policy.algorithm, config.env.num_envs) == ("ppo", 8)


def test_of_several_presets_each_goes_over_those_before_it(monkeypatch):
    other = Preset("tests", "To be last.", {"policy": {"discount": 0.75}})
    monkeypatch.setitem(all_presets(), "other", other)
    both = read_arguments([GAME, "--preset=mpe", "--preset", "other"])
    assert both.policy.discount == 0.75
    assert both.policy.algorithm == "ppo"
    first = read_arguments([GAME, "--preset", "other", "--preset", "mpe"])
    assert first.policy.discount == all_presets()["mpe"].tree["policy"]["discount"]


def test_a_preset_with_options_of_a_game_is_for_no_other(capsys):
    """Red before: it was told that the game has no such option, which nobody had written."""
    told = "preset pursuit is for pettingzoo:sisl/pursuit_v5, but the game is treasure_hunt"
    assert run(["train", GAME, "--preset", "pursuit"]) == 2
    assert told in capsys.readouterr().err
    for preset in ("pursuit", ["mpe", "pursuit"]):
        with refuses(ConfigError):
            remuda.train(GAME, preset=preset)
    for name, preset in all_presets().items():
        assert bool(preset.game) == ("options" in preset_tree([name]).get("env", {}))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--preset", "mpf"],
            "there is no preset 'mpf': did you mean mpe? There are: mpe: for MPE",
        ),
        (["--preset"], "--preset needs the name of a preset"),
    ],
)
def test_what_is_no_preset_is_told_in_a_line(words, told, capsys):
    assert run(["train", GAME, *words]) == 2
    assert told in capsys.readouterr().err


def test_a_preset_of_which_nothing_is_left_is_refused(tmp_path, capsys):
    file = tmp_path / "all.yaml"
    file.write_text(config_text(load_config({"game": GAME})))
    assert run(["train", "--preset", "mpe", "--config", str(file)]) == 2
    assert f"preset mpe changes nothing, since {file} sets all" in capsys.readouterr().err
    with refuses(ConfigError):
        remuda.train(preset="mpe", config=load_config({"game": GAME}))


def test_a_preset_is_for_a_run_that_begins(tmp_path, capsys):
    remuda.train(
        GAME,
        run={"turns": 10, "evaluate_episodes": 0, "directory": str(tmp_path / "run")},
        schedule="sequential",
    )
    for option in ("--preset", "--config"):
        assert run(["train", "--resume", str(tmp_path / "run"), option, "mpe"]) == 2
        assert "are for new runs" in capsys.readouterr().err
    with refuses(UsageError):
        remuda.train(resume=tmp_path / "run", preset="mpe")


def test_a_preset_is_for_seeds_that_begin(tmp_path, capsys):
    words = ["train", GAME, "--schedule", "sequential", "--run.turns", "10", "--seeds", "1"]
    words += ["--run.evaluate_episodes", "0", "--run.directory", str(tmp_path / "seeds")]
    assert run(words) == 0
    for option in ("--preset", "--config"):
        assert run(["train", "--resume", str(tmp_path / "seeds"), option, "mpe"]) == 2
        assert "are for new runs" in capsys.readouterr().err


@pytest.mark.parametrize("preset", [None, 3, ["mpe", 3]])
def test_what_cannot_name_a_preset_is_told(preset):
    with refuses(UsageError):
        remuda.train(GAME, preset=preset)


def test_help_names_the_presets(capsys):
    assert run(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--preset NAME" in shown
    assert all(f"{name}, for" in shown for name in all_presets())


@pytest.mark.slow_cases("mpe")
@pytest.mark.parametrize("preset", ["mpe", ["mpe"]])
def test_presets_from_python(preset, tmp_path):
    result = remuda.train(
        GAME,
        preset=preset,
        config={"policy": {"learning_rate": 0.25}},
        run={"turns": 10, "evaluate_episodes": 0, "directory": str(tmp_path / "run")},
        env={"num_envs": 1},
        schedule="sequential",
    )
    policy = remuda.load(result).config.policy
    assert policy.ppo.epochs == all_presets()["mpe"].tree["policy"]["ppo"]["epochs"]
    assert policy.learning_rate == 0.25
    with refuses(ConfigError):
        remuda.train(GAME, preset="nothing")
