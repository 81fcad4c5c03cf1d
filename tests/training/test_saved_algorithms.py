"""Runs of users' algorithms, opened without the class, and after it was edited."""

import json
import subprocess
import sys

import pytest

import remuda
from refusals import refuses
from remuda.config import load_config
from remuda.errors import ConfigError, RunDirectoryError
from remuda.runs.run_directory import RunDirectory
from remuda.ui.terminal.live import PlainView

MODULE = "edited_algorithm"
NAME = f"{MODULE}:Own"
SOURCE = """
import remuda

class Own(remuda.RolloutAlgorithm):
    preset = {"learning_rate": 5e-3, "ppo": {"epochs": 1, "rollout_length": 20}}
    settings = {"push": 1.0}

    def losses(self, rows):
        losses = -rows.settings["push"] * rows.advantages * rows.log_probs
        return losses, (rows.targets - rows.values).square()
"""
SLOWER = SOURCE.replace("5e-3", "1e-3").replace('{"push": 1.0}', '{"push": 1.0, "pull": 0.5}')
RENAMED = SOURCE.replace("push", "pull")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write the source of the module; the next import reads it."""
    code = tmp_path / "code"
    code.mkdir()
    monkeypatch.syspath_prepend(code)

    def write(source):
        (code / f"{MODULE}.py").write_text(source)
        sys.modules.pop(MODULE, None)

    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit may keep size and second
    yield write
    sys.modules.pop(MODULE, None)


def train(directory, turns=100, **settings):
    return remuda.train(
        *(() if "resume" in settings else ("rock_paper_scissors",)),
        schedule="sequential",
        run={"turns": turns, "evaluate_episodes": 0, "directory": directory},
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
        **settings,
    )


def entry_of(run):
    return remuda.load(run).config.policy.entry


OPENED = """
import sys
from pathlib import Path

import remuda
from remuda.ui.cli.main import run as command
from remuda.ui.dashboard.catalogue import Catalogue

seats, dealt, module = sys.argv[1:]
for words in (["status", seats], ["compare", seats, dealt], ["runs", "runs"]):
    assert command(words) == 0, words
for path in (seats, dealt):
    run = remuda.load(path)
    assert run.config.policy.rollout_length == 20
    assert run.config.policy.entry.settings == {"push": 1.0}
    assert run.agents == ("agent_0", "agent_1")
    assert len(run.metrics()) and repr(run)
assert len(remuda.load(dealt).ledger())
catalogue = Catalogue(Path("runs"))
catalogue.scan()
for run in catalogue.runs():
    assert f"{module}:Own" in run.row()["algorithm"].split(", ") and not run.found.damaged
    assert run.settings["policy.network.shared"] is not None, "its settings are resolved"
assert not hasattr(sys, "imported")
assert command(["analyse", dealt]) == 0  # without the parts that play
assert command(["evaluate", seats]) > 0
assert command(["train", "--resume", seats, "--run.turns", "200"]) > 0
Path("code", f"{module}.py").unlink()
assert command(["evaluate", dealt]) == 2
"""


@pytest.mark.process
def test_a_run_is_opened_without_its_algorithm(write, tmp_path):
    write(SOURCE)
    seats, dealt = tmp_path / "runs" / "seats", tmp_path / "runs" / "dealt"
    own = {"policy": {"algorithm": NAME}}
    train(seats, policies={"agent_0": {"algorithm": "dqn"}}, **own)
    train(dealt, population={"policies": 2, "matchmaker": "random"}, **own)
    write("import sys; sys.imported = True; raise RuntimeError('imported')")
    words = [sys.executable, "-c", OPENED, str(seats), str(dealt), MODULE]
    out = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert out.returncode == 0, out.stdout + out.stderr
    assert "Traceback" not in out.stderr
    refusals = [line for line in out.stderr.splitlines() if line.startswith("remuda: ")]
    assert len(refusals) == 4, refusals
    assert all(MODULE in line for line in refusals)


def test_configurations_keep_the_class_that_they_were_read_with(write):
    tree = {"policy": {"algorithm": NAME}, "policies": {"agent_0": {"n_frames": 2}}}
    write(SOURCE)
    before = load_config(tree)
    write(SLOWER)
    after = load_config(tree)
    for config, rate in ((before, 5e-3), (after, 1e-3), (before, 5e-3)):
        policy = config.policy_of("agent_0")
        assert policy.learning_rate == policy.usual().learning_rate == rate
        assert ("pull" in policy.entry.settings) == (rate == 1e-3)
    assert load_config(before.model_dump(), known=before.entries) == before


def test_runs_of_two_versions_of_a_class_are_opened_in_one_process(write, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write(SOURCE)
    train(first, policy={"algorithm": NAME})
    write(RENAMED)
    train(second, policy={"algorithm": NAME})
    for _ in range(2):
        assert [*entry_of(first).settings] == ["push"]
        assert [*entry_of(second).settings] == ["pull"]
    assert remuda.load(first).evaluate(episodes=1).returns.shape == (1, 2)
    (spec, _) = RunDirectory.open(first).spec().policies
    assert [*spec.config.entry.settings] == ["pull"], "the code that would play"


def test_a_resumed_run_has_the_edited_class(write, tmp_path):
    run = tmp_path / "run"
    write(SOURCE)
    train(run, policy={"algorithm": NAME})
    write(SLOWER)
    train(run, turns=200, resume=run)
    assert entry_of(run).settings == {"push": 1.0, "pull": 0.5}
    config = remuda.load(run).config
    assert config.policy.learning_rate == 5e-3, "the saved value counts, not the new preset"
    assert config.policy.usual().learning_rate == 1e-3


def test_a_setting_that_an_edited_class_lacks_is_refused(write, tmp_path):
    run = tmp_path / "run"
    write(SOURCE)
    train(run, policy={"algorithm": NAME, "settings": {"push": 2.0}})
    write(RENAMED)
    assert remuda.load(run).config.policy.settings == {"push": 2.0}
    with refuses(ConfigError, "settings.push"):
        remuda.load(run).evaluate(episodes=1)
    with refuses(ConfigError, "settings.push"):
        train(run, turns=200, resume=run)


def test_a_damaged_description_of_algorithms_is_refused(write, tmp_path):
    write(SOURCE)
    config = load_config({"policy": {"algorithm": NAME}, "run": {"directory": tmp_path / "run"}})
    run = RunDirectory.create(config)
    run.unlock()
    plain = json.loads(run.algorithms.read_text())
    for damaged in ("{", "[1]", json.dumps({NAME: plain[NAME] | {"takes": "turns"}})):
        run.algorithms.write_text(damaged)
        with refuses(RunDirectoryError, "algorithms.json"):
            run.read_config()
    run.algorithms.unlink()
    assert run.read_config().policy.entry == config.policy.entry
