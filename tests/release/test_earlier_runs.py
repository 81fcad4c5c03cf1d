"""Run directories that version 0.1.0 wrote: they are shown, played, analysed and begun from."""

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

import remuda
from remuda.coordinator.logs import log_to
from remuda.ui import cli
from remuda.ui.live import PlainView

RUNS = Path(__file__).parent / "runs_of_0_1_0"
SEATS = {"ppo": 1, "league": 2}


def main(words):
    """The exit code of a command."""
    try:
        cli.main(words)
    except SystemExit as ending:
        return ending.code or 0
    return 0


@pytest.fixture(params=[*SEATS])
def run(request, tmp_path):
    """One of them, where it may be written to."""
    return shutil.copytree(RUNS / request.param, tmp_path / request.param)


def test_it_is_loaded_and_played(run):
    found = remuda.load(run)
    played = found.evaluate(4)
    assert played.returns.shape == (4, SEATS[run.name])
    assert np.isfinite(played.returns).all()
    assert found.metrics()["turns"][-1] in (3_000, 4_000)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["status"], "all turns were played"),
        (["evaluate", "--episodes", "2"], "2 greedy episodes"),
        (["report"], "report.html"),
    ],
)
def test_commands_show_it(run, command, said, capsys):
    name, *options = command
    assert main([name, str(run), *options]) == 0
    assert said in capsys.readouterr().out


def test_it_is_listed(run, capsys):
    assert main(["runs", str(run.parent)]) == 0
    assert run.name in capsys.readouterr().out


def test_its_population_is_analysed(tmp_path, capsys):
    run = shutil.copytree(RUNS / "league", tmp_path / "league")
    assert main(["analyse", str(run)]) == 0
    assert (run / "analysis.json").exists()


def test_a_resume_is_refused_with_what_can_be_done(run, capsys):
    assert main(["train", "--resume", str(run)]) != 0
    said = capsys.readouterr().err
    assert "format 1" in said
    assert f"policy.init_from {run}" in said
    assert "Traceback" not in said


def test_a_checkpoint_of_a_newer_version_asks_for_that_version(run, capsys):
    manifest = run / "checkpoints" / "000001" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 99'))
    assert main(["train", "--resume", str(run)]) != 0
    said = capsys.readouterr().err
    assert "a newer one wrote it" in said
    assert "init_from" not in said


def test_what_is_logged_finds_its_folder_again(tmp_path):
    file = tmp_path / "cleared" / "away" / "coordinator.log"
    with log_to(file):
        logging.getLogger("remuda.test").warning("a word")
    assert "a word" in file.read_text()


def test_a_new_run_begins_with_its_weights(tmp_path):
    settings = {
        "policy": {
            "algorithm": "ppo",
            "network": {"hidden": (8,), "shared": True},
            "ppo": {"normalise_values": False},
            "init_from": str(RUNS / "ppo"),
        },
        "run": {"turns": 500, "evaluate_episodes": 0, "directory": tmp_path / "new"},
    }
    result = remuda.train("gymnasium:CartPole-v1", config=settings, view=PlainView())
    assert result.finished
