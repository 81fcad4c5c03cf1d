"""Directories that begin in one instant are distinct; files of processes that were killed go."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

import remuda
from remuda.config import load_config
from remuda.runs.run_directory import RunDirectory
from remuda.solvers.psro.record import begin, go_on
from remuda.system.checkpoint.names import make_directory, new_directory
from remuda.system.checkpoint.state import sweep
from remuda.ui.cli.seeds import Seeds


def test_directories_that_are_made_in_one_instant_are_distinct(tmp_path):
    barrier = Barrier(8)

    def make(_):
        barrier.wait()
        return new_directory(tmp_path / "runs", "a/game", "-seeds")

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(8)))
    assert len(set(made)) == 8
    assert all(path.name.startswith("a-game-") and "-seeds" in path.name for path in made)


def test_runs_that_begin_in_one_instant_are_all_begun(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("remuda.system.checkpoint.names.time.strftime", lambda _: "now")
    config = load_config({"game": "treasure_hunt"})
    barrier = Barrier(4)

    def create(_):
        barrier.wait()
        return RunDirectory.create(config)

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(create, range(4)))
    assert len({run.path for run in runs}) == 4
    for run in runs:
        run.unlock()


KILLED = """
import os, signal, sys
from pathlib import Path
from remuda.system.checkpoint import state
state.os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
state.write_whole(Path(sys.argv[1]), b"half")
"""


@pytest.mark.process
@pytest.mark.slow_cases("<lambda>")
@pytest.mark.parametrize("again", [RunDirectory.lock, lambda run: RunDirectory.open(run.path)])
def test_what_a_kill_left_half_written_goes_when_the_run_is_opened(again, tmp_path):
    config = load_config({"game": "treasure_hunt", "run": {"directory": tmp_path / "run"}})
    run = RunDirectory.create(config)
    run.unlock()
    run.checkpoints.path.mkdir()
    for name in ("checkpoints/best.json", "summary.json", "weights/agent_0.safetensors"):
        subprocess.run([sys.executable, "-c", KILLED, str(run.path / name)], check=False)
    alive = run.path / f".status.json.{os.getpid()}.tmp"
    alive.touch()
    left = list(run.path.rglob("*.tmp"))
    assert len(left) == 4
    again(run)
    assert list(run.path.rglob("*.tmp")) == [alive]


def open_tournament(directory):
    game = "rock_paper_scissors"
    remuda.tournament({"a": "random", "b": "random"}, game=game, episodes=2, directory=directory)


def open_double_oracle(directory):
    with begin(directory, {"game": "kuhn_poker"}):
        pass
    (directory / ".report.html.999999999.tmp").touch()
    with go_on(directory):
        pass


def open_seeds(directory):
    config = load_config({"game": "treasure_hunt", "run": {"directory": directory}})
    Seeds.create(config, 2)
    (directory / ".seeds.json.999999998.tmp").touch()
    Seeds.open(directory, {})
    (directory / ".seeds.json.999999999.tmp").touch()
    assert Seeds.begun(config, 2)


def claim_for_exploiters(directory):
    make_directory(directory, "target.safetensors")


@pytest.mark.parametrize(
    "opened", [open_tournament, open_double_oracle, open_seeds, claim_for_exploiters]
)
def test_it_goes_when_a_directory_of_another_kind_is_opened_too(opened, tmp_path):
    if opened is not open_double_oracle:  # which begins in an empty directory only
        (tmp_path / ".target.safetensors.999999999.tmp").touch()
    opened(tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))


def test_other_files_stay(tmp_path):
    names = (".notes.999999999.tmp.txt", "best.json.999999999.tmp", ".x.tmp", ".x.9x.tmp")
    for name in names:
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    sweep(tmp_path / "missing")
