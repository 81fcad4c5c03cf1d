"""A run is opened by its files: its environment is described there, and is not made."""

import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box

import remuda
from refusals import refuses
from remuda.envs.registry import Game
from remuda.errors import ConfigError, RunDirectoryError
from remuda.population.run_spec import RunSpec
from remuda.runs.run_directory import RunDirectory
from remuda.ui.cli.main import run as command

QUIET = {
    "schedule": "sequential",
    "env": {"num_envs": 4},
    "policy": {"algorithm": "ppo", "network": {"hidden": [8]}, "ppo": {"rollout_length": 16}},
    "run": {"turns": 60, "evaluate_episodes": 2, "live": False},
}
POPULATION = {"matchmaker": "random", "policies": 3}


def trained(directory, game="treasure_hunt", **more):
    run = {**QUIET["run"], "directory": directory}
    return remuda.train(game, **{**QUIET, **more, "run": run})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run, of which tests that change its files have copies."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    trained(directory)
    return directory


@pytest.fixture
def files(whole, tmp_path):
    """The files of a run that a test may change."""
    shutil.copytree(whole, tmp_path / "run")
    return RunDirectory.open(tmp_path / "run")


def no_game(monkeypatch):
    """Let no environment be made from here on."""

    def broken(self, *_, **__):
        raise ConfigError(f"{self.name} cannot be made")

    monkeypatch.setattr(Game, "make", broken)


@pytest.mark.slow_cases("population1")
@pytest.mark.parametrize("population", [None, POPULATION])
def test_what_was_saved_is_what_is_opened(population, tmp_path):
    trained(tmp_path / "run", **({"population": population} if population else {}))
    opened = RunDirectory.open(tmp_path / "run").spec()
    made = RunSpec.of(opened.config)
    assert opened == made
    assert opened.env.in_force == {}, "it comes from the file"
    assert repr(opened.policies) == repr(made.policies)
    assert opened.roster == made.roster


def test_a_run_is_opened_without_its_game(tmp_path, monkeypatch, capsys):
    directory = tmp_path / "run"
    trained(directory, "rock_paper_scissors", population=POPULATION)
    trained(tmp_path / "other", "rock_paper_scissors", population=POPULATION, seed=1)
    no_game(monkeypatch)
    run = remuda.load(directory)
    assert run.agents == ("agent_0", "agent_1")
    assert len(run.ledger()) > 0
    assert run.payoffs().names
    shape = run["policy_0"].observation_space.shape
    assert run["policy_0"].act(np.zeros(shape, np.float32)) is not None
    assert remuda.compare([directory, tmp_path / "other"]) is not None
    for words in (["status"], ["analyse", "--seconds", "0"], ["runs"]):
        assert command([words[0], str(directory), *words[1:]]) == 0, capsys.readouterr().err
    capsys.readouterr()


def test_a_game_whose_code_is_gone_is_missed_only_where_it_plays(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "vanishing_game.py").write_text(
        "from remuda.envs.games.treasure_hunt import TreasureHunt\n"
        "class Hunt(TreasureHunt):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    trained(tmp_path / "run", "vanishing_game:Hunt")
    (folder / "vanishing_game.py").unlink()
    monkeypatch.delitem(sys.modules, "vanishing_game")
    run = remuda.load(tmp_path / "run")
    shape = run["agent_0"].observation_space.shape
    assert run["agent_0"].act(np.zeros(shape, np.float32)) is not None
    assert command(["status", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert command(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 2
    assert "No module named 'vanishing_game'" in capsys.readouterr().err


def test_without_a_description_the_environment_is_described_again(files):
    saved = files.spec()
    files.environment.unlink()
    assert files.spec() == saved
    assert not files.environment.exists(), "opening a run writes nothing"


def test_a_description_of_other_options_is_not_used(files):
    text = files.config.read_text()
    plain = json.loads(files.environment.read_text())
    files.environment.write_text(json.dumps(plain | {"of": "another"}))
    assert files.spec() == RunSpec.of(files.read_config())
    assert files.config.read_text() == text


@pytest.mark.slow_cases("", "[]", "{")
@pytest.mark.parametrize("contents", ["", "{", "[]", "{}"])
def test_a_damaged_description_is_reported_with_the_way_out(contents, files):
    files.environment.write_text(contents)
    with refuses(RunDirectoryError, "environment.json"):
        files.spec()


def test_play_in_a_game_that_has_changed_is_refused(files, tmp_path, capsys):
    plain = json.loads(files.environment.read_text())
    plain["agents"][0]["name"] = "bob"
    files.environment.write_text(json.dumps(plain))
    assert command(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 1
    said = capsys.readouterr().err
    assert "has changed" in said
    assert "bob" in said


def test_a_description_that_cannot_be_saved_leaves_no_older_one(files):
    spec = files.spec()
    agent = replace(spec.agents[0], env_observation_space=OwnSpace(0, 1, (2,)))
    files.save_spec(replace(spec, env=replace(spec.env, agents=(agent, spec.agents[1]))))
    assert not files.environment.exists()


class OwnSpace(Box):
    """A class of the user's."""


def test_a_directory_whose_name_is_too_long_is_refused_in_one_line(tmp_path, capsys):
    words = ["train", "treasure_hunt", "--run.directory", str(tmp_path / ("x" * 300))]
    assert command(words) == 1
    said = capsys.readouterr().err
    assert said.startswith("remuda: cannot write the run directory")
    assert said.count("\n") == 1
