"""Presets: settings for a kind of world, under files, flags and whatever Python says."""

import pytest

import remuda
from remuda.config import PRESETS, Config, load_config, preset_tree
from remuda.errors import ConfigError
from remuda.ui.cli import run
from remuda.ui.commands.configuration import read_arguments

GAME = "treasure_hunt"


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_configuration_that_changes_something(name):
    preset = PRESETS[name]
    assert load_config(preset_tree([name])) != Config()
    assert preset.suits
    assert preset.reason.endswith(".")


def test_a_preset_goes_under_files_and_these_under_flags(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text("policy: {discount: 0.5, learning_rate: 0.25}\n")
    plain = read_arguments([GAME, "--preset", "mpe"])
    words = [GAME, "--policy.learning_rate", "0.125", "--config", str(file), "--preset", "mpe"]
    config = read_arguments(words)
    assert plain.policy.discount == PRESETS["mpe"].tree["policy"]["discount"]
    assert plain.policy.algorithm == "ppo"
    assert config.policy.discount == 0.5
    assert config.policy.learning_rate == 0.125
    assert config.policy.ppo == plain.policy.ppo


def test_of_several_presets_each_goes_over_those_before_it(monkeypatch):
    other = remuda.config.Preset("tests", "To be last.", {"policy": {"discount": 0.75}})
    monkeypatch.setitem(PRESETS, "other", other)
    both = read_arguments([GAME, "--preset=mpe", "--preset", "other"])
    assert both.policy.discount == 0.75
    assert both.policy.algorithm == "ppo"
    first = read_arguments([GAME, "--preset", "other", "--preset", "mpe"])
    assert first.policy.discount == PRESETS["mpe"].tree["policy"]["discount"]


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


def test_help_names_the_presets(capsys):
    assert run(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--preset NAME" in shown
    assert all(f"{name}, for" in shown for name in PRESETS)


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
    assert policy.ppo.epochs == PRESETS["mpe"].tree["policy"]["ppo"]["epochs"]
    assert policy.learning_rate == 0.25
    with pytest.raises(ConfigError, match="no preset 'nothing'"):
        remuda.train(GAME, preset="nothing")
