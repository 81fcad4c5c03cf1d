"""Runs trained with several seeds."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

import remuda
from remuda.config import Config, overlay
from remuda.ui.cli.commands.train import read_arguments
from remuda.ui.cli.main import run as command
from remuda.ui.cli.seeds import ONE_OF_SEEDS, Seeds, train_seeds
from remuda.ui.reports.comparison import compare
from remuda.ui.reports.summary import find_runs, summarise

FLAGS = [
    *("--schedule", "sequential", "--policy.algorithm", "ppo", "--policy.network.hidden", "16"),
    *("--policy.ppo.rollout_length", "20", "--run.evaluate_episodes", "4", "--run.live", "false"),
    *("--checkpoint.evaluate_episodes", "0", "--run.log_every", "0.05"),
]


@pytest.fixture
def finds_games(monkeypatch):
    """Programs that are started find the games of these tests."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


@pytest.mark.process
@pytest.mark.slow_cases("1")
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_seeds_are_trained_into_one_directory_with_one_report(tmp_path, capfd, jobs, finds_games):
    base = tmp_path / "runs"
    words = ["train", "support:Tape", *FLAGS, "--run.turns", "300", "--seed", "5", "--seeds", "3"]
    assert command([*words, "--jobs", str(jobs), "--run.directory", str(base)]) == 0
    said = capfd.readouterr().out
    assert {path.name for path in find_runs(base)} == {"seed_5", "seed_6", "seed_7"}
    found = compare([base])
    (group,) = found.groups
    assert group.seeds == (5, 6, 7)
    assert group.evaluated("agent_0").words in said
    html = (base / "report.html").read_text()
    assert group.evaluated("agent_0").words in html
    assert (base / "learning.png").exists()
    assert not list(base.glob("seed_*/report.html"))  # one report was asked for
    assert not list(base.glob("seed_*/*.png")) + list(base.glob("seed_*/*.gif"))
    # Each is what that seed alone would be.
    alone = [*words[:-2], "--seed", "6", "--run.directory", str(tmp_path / "alone")]
    assert command(alone) == 0
    one, other = remuda.load(base / "seed_6"), remuda.load(tmp_path / "alone")
    for name, weights in one["agent_0"].weights().items():
        assert (weights == other["agent_0"].weights()[name]).all()


def wait_for(condition, process, seconds=300.0):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it takes too long"
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.slow_cases("1")
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_leaves_what_is_done_and_tells_how_to_go_on(tmp_path, jobs, capfd, finds_games):
    base = tmp_path / "runs"
    words = [
        *("train", "support:Tape", *FLAGS, "--run.turns", "None", "--run.seconds", "600"),
        *("--seeds", "3", "--jobs", str(jobs), "--run.directory", str(base)),
        *("--checkpoint.every", "0.5"),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "remuda", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        begun = [base / f"seed_{seed}" / "checkpoints" for seed in range(jobs)]
        wait_for(lambda: all(list(path.glob("0*")) for path in begun), process)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=300)[0]
    assert process.returncode == 130, said
    assert f"0 of 3 seeds are done; continue with: remuda train --resume {base}" in said
    states = {path.name: summarise(path).state for path in find_runs(base)}
    assert states == {f"seed_{seed}": "stopped by SIGINT" for seed in range(jobs)}
    # Of two that were trained at a time, either may be ahead.
    before = max(remuda.load(base / f"seed_{seed}").summary()["turns"] for seed in range(jobs))
    assert before > 0
    # One that is done, one that goes on, one that begins.
    go_on = ["train", "--resume", str(base), "--run.seconds", "None", "--run.turns"]
    assert command([*go_on, str(before + 200), "--jobs", str(jobs)]) == 0
    assert "already done" not in capfd.readouterr().out
    turns = {path.name: summarise(path).turns for path in find_runs(base)}
    assert turns["seed_0"] == before + 200
    assert set(turns) == {"seed_0", "seed_1", "seed_2"}
    assert (base / "report.html").exists()
    assert command(["train", "--resume", str(base)]) == 0  # nothing is left to do
    assert "already done: 3" in capfd.readouterr().out
    assert command([*go_on, str(before + 300), "--jobs", str(jobs)]) == 0  # all of them go on
    assert {summarise(path).turns for path in find_runs(base)} == {before + 300}


@pytest.mark.slow
def test_seeds_that_were_begun_and_never_saved_begin_anew(tmp_path, capfd):
    base = tmp_path / "runs"
    config = {"game": "support:Tape", "schedule": "sequential", "policy": {"algorithm": "ppo"}}
    tree = overlay(config, {"run": {"turns": 100, "evaluate_episodes": 1, "live": False}})
    (base / "seed_0").mkdir(parents=True)
    (base / "seeds.json").write_text(json.dumps({"seeds": [0], "config": tree}))
    (base / "seed_0" / "config.yaml").write_text(yaml.safe_dump(Config().model_dump(mode="json")))
    assert command(["train", "--resume", str(base)]) == 0
    assert (base / "seed_0-given-up" / "config.yaml").exists()
    assert remuda.load(base / "seed_0").summary()["turns"] == 100


class Ended:
    """A child process that has ended at once."""

    returncode = 1

    def poll(self):
        return self.returncode

    def wait(self):
        return self.returncode


def test_a_seed_that_is_resumed_keeps_its_seed_and_directory(tmp_path, monkeypatch):
    """Red before: the flags of the command set those of the first seed."""
    started = []

    def start(words, **_):
        started.append(words[words.index(ONE_OF_SEEDS) + 1 :])
        return Ended()

    monkeypatch.setattr("remuda.ui.cli.seeds.subprocess.Popen", start)
    monkeypatch.setattr("remuda.ui.cli.seeds.continues", lambda run, say: True)
    flags = ["tag", "--seed", "5", "--run.directory", str(tmp_path / "runs")]
    train_seeds(Seeds.create(read_arguments(flags), 2), 2, (), flags)
    found = [(config.seed, config.run.directory) for config in map(read_arguments, started)]
    assert found == [(5, tmp_path / "runs" / "seed_5"), (6, tmp_path / "runs" / "seed_6")]
