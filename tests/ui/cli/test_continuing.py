"""What users are advised to do with an unfinished run works."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from refusals import refuses
from remuda.config import load_config
from remuda.errors import RunDirectoryError
from remuda.runs.run_directory import RunDirectory, can_continue, how_to_continue
from remuda.ui.cli.main import run
from remuda.ui.terminal.live import PlainView
from remuda.ui.terminal.status import current_status

WORDS = (
    *("treasure_hunt", "--schedule", "sequential", "--env.num_envs", "2"),
    *("--policy.network.hidden", "8", "--policy.iqn.quantiles", "4"),
    *("--run.evaluate_episodes", "0", "--checkpoint.evaluate_episodes", "0"),
)


def train(directory, *words):
    return run(["train", *WORDS, "--run.directory", str(directory), *words])


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run that was killed before its first checkpoint, as by a second Ctrl-C."""
    directory = tmp_path_factory.mktemp("killed") / "run"
    words = ("--run.directory", str(directory), "--checkpoint.every", "3600")
    process = subprocess.Popen([sys.executable, "-m", "remuda", "train", *WORDS, *words])
    limit = time.monotonic() + 120
    while not (directory / "status.json").exists():
        assert time.monotonic() < limit
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return directory


@pytest.mark.slow
def test_without_a_checkpoint_a_new_run_is_advised(killed, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert run(["status", str(killed)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"--resume {killed}" not in said
    command = f"remuda train --config {killed / 'config.yaml'} --run.directory NEW"
    assert command in said
    assert run(["train", "--resume", str(killed)]) == 1
    assert command in capsys.readouterr().err
    with_words = [word.replace("NEW", str(tmp_path / "new")) for word in command.split()[1:]]
    assert run([*with_words, "--run.turns", "20"]) == 0


def test_a_run_that_is_begun_again_in_its_directory_is_told_the_same(killed, capsys):
    assert train(killed) == 1
    assert "start a new run" in capsys.readouterr().err


@pytest.mark.slow
def test_with_a_checkpoint_a_resume_is_advised_unless_its_manifest_is_damaged(tmp_path):
    assert train(tmp_path / "run", "--run.turns", "20") == 0
    found = RunDirectory.open(tmp_path / "run")
    assert can_continue(found)
    assert how_to_continue(found) == f"continue with: remuda train --resume {tmp_path / 'run'}"
    for number in found.checkpoints.numbers():
        (found.checkpoints.directory(number) / "manifest.json").write_text("{")
    assert not can_continue(found)
    assert "start a new run" in how_to_continue(found)


def again(*words):
    return run(["train", *WORDS, "--resume", "auto", *words])


@pytest.mark.slow
def test_auto_begins_a_run_and_continues_it_until_it_is_finished(tmp_path, monkeypatch, capsys):
    """The same command in a batch queue, each time without a terminal."""
    monkeypatch.chdir(tmp_path)

    def log(view, record):
        if not vars(view).setdefault("stopped", False):
            view.stopped = True
            signal.raise_signal(signal.SIGTERM)  # as the time limit of a queue

    monkeypatch.setattr(PlainView, "log", log)
    words = ("--run.turns", "100000", "--run.log_every", "0.01", "--seed", "3")
    assert again(*words) == 143
    (first,) = (tmp_path / "runs").iterdir()
    assert again(*words) == 143
    assert "was started by the same command" in capsys.readouterr().out
    assert len(list((first / "earlier").iterdir())) == 1
    summary = json.loads((first / "summary.json").read_text())
    (first / "summary.json").write_text(json.dumps({**summary, "finished": True}))
    assert again(*words) == 143
    assert len(list((tmp_path / "runs").iterdir())) == 2, "what is finished is not continued"


@pytest.mark.slow
def test_auto_continues_the_run_of_the_directory_that_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ("--run.directory", "mine")
    assert again(*words, "--run.turns", "20") == 0
    assert again(*words, "--run.turns", "60") == 0
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text())
    assert summary["ended"] == "all turns were played"
    assert len(list((tmp_path / "mine" / "earlier").iterdir())) == 1
    capsys.readouterr()
    assert again(*words, "--run.turns", "60") == 0, "nothing is left to do"
    assert "nothing was left to do" in capsys.readouterr().out


@pytest.mark.slow
def test_auto_begins_anew_in_a_named_directory_without_a_checkpoint(
    killed, tmp_path, monkeypatch, capsys
):
    shutil.copytree(killed, tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert again("--run.directory", "mine", "--run.turns", "20") == 0
    assert "mine has no checkpoint" in capsys.readouterr().out
    assert (tmp_path / "mine-given-up" / "config.yaml").exists()
    assert json.loads((tmp_path / "mine" / "summary.json").read_text())["finished"]


@pytest.mark.slow
def test_auto_leaves_a_run_alone_that_another_process_is_running(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert again("--run.directory", "mine", "--run.turns", "20") == 0
    held = RunDirectory.open(tmp_path / "mine")
    held.lock()
    assert again("--run.directory", "mine", "--run.turns", "40") == 1
    assert "another process is running" in capsys.readouterr().err
    held.unlock()


@pytest.mark.slow
def test_auto_works_for_seeds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--seeds", "2", "--run.directory", "both", "--run.turns", "20")
    assert again(*words) == 0
    shutil.rmtree(tmp_path / "both" / "seed_1")
    assert again(*words) == 0
    assert (tmp_path / "both" / "seed_1" / "summary.json").exists()
    assert not os.path.exists(tmp_path / "runs")


def test_a_run_that_ended_before_its_first_status_is_told_as_such(tmp_path):
    """Red before: two Ctrl-Cs in its first second, and it "has not begun"."""
    run = RunDirectory.create(load_config({"run": {"directory": tmp_path / "run"}}))
    run.unlock()
    with refuses(RunDirectoryError):
        current_status(run)
