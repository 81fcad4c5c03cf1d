"""What lies in a run's directory: it is there whole, and what hinders writing it is told."""

import errno
import os
from pathlib import Path

import pytest

import remuda
from refusals import refuses
from remuda.config import load_config, read_config
from remuda.errors import RunDirectoryError
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint import state
from remuda.ui.terminal.live import PlainView

TREE = {
    "game": "support:Tape",
    "schedule": "sequential",
    "policy": {
        "network": {"hidden": [8]},
        "iqn": {"quantiles": 4, "cosines": 4},
        "batch_size": 8,
        "experience": {"learning_starts": 16, "capacity": 200},
    },
    "run": {"turns": 40, "evaluate_episodes": 0},
    "checkpoint": {"evaluate_episodes": 0},
}


@pytest.fixture
def full_disk(monkeypatch):
    """A disk on which nothing more can be written for good, once it is called."""

    def fill():
        def fsync(descriptor):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(state.os, "fsync", fsync)

    return fill


def test_a_resume_that_cannot_write_the_configuration_leaves_it_as_it_was(
    tmp_path, full_disk, monkeypatch
):
    directory = tmp_path / "run"
    remuda.train(config=TREE, run={"directory": directory}, view=PlainView())
    before = (directory / "config.yaml").read_bytes()
    saved = RunDirectory.save_config

    def save_config(run, config):
        full_disk()
        saved(run, config)

    monkeypatch.setattr(RunDirectory, "save_config", save_config)
    with refuses(RunDirectoryError, "config.yaml"):
        remuda.train(resume=directory, run={"turns": 80}, view=PlainView())
    assert (directory / "config.yaml").read_bytes() == before
    assert not [path for path in directory.iterdir() if path.name.startswith(".config")]
    assert remuda.load(directory).config.run.turns == 40


def test_a_run_that_cannot_be_begun_lets_go_of_its_directory(tmp_path, full_disk):
    config = load_config({"run": {"directory": tmp_path / "run"}})
    full_disk()
    with refuses(RunDirectoryError):
        RunDirectory.create(config)
    assert not (tmp_path / "run" / "config.yaml").exists()
    assert not RunDirectory(tmp_path / "run").is_running()


def test_a_run_whose_lock_cannot_be_written_is_told(tmp_path):
    (tmp_path / "lock").mkdir()
    with refuses(RunDirectoryError):
        RunDirectory(tmp_path).lock()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("given", ["~/runs/a", Path("~/runs/a")])
def test_the_home_directory_is_found_where_a_run_is_made_and_opened(home, given):
    config = load_config({"run": {"directory": given}, "trace": "~/trace.json"})
    assert config.run.directory == home / "runs" / "a"
    assert config.trace == home / "trace.json"
    made = RunDirectory.create(config)
    made.unlock()
    assert made.path == home / "runs" / "a"
    assert RunDirectory.open(Path("~/runs/a")).path == made.path
    assert not (home / "~").exists()


def test_the_home_directory_is_found_where_a_configuration_is_read(home):
    (home / "mine.yaml").write_text("seed: 7\n")
    assert read_config(Path("~/mine.yaml")) == {"seed": 7}


def test_the_directory_of_a_run_that_goes_on_is_told_as_such(tmp_path):
    """Red before: of two that began at once, one was told to begin with the other's configuration.

    It holds for `--resume auto` too, where both looked before either had begun.
    """
    config = load_config({**TREE, "run": {**TREE["run"], "directory": tmp_path / "run"}})
    first = RunDirectory.create(config)
    with refuses(RunDirectoryError):
        RunDirectory.create(config)
    first.unlock()
    with refuses(RunDirectoryError):
        RunDirectory.create(config)
