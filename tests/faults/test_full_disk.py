"""A disk that is full when a run ends costs what cannot be written, told in one line."""

import errno
import logging
import os
import shutil
import subprocess
import sys

import pytest

from remuda.coordinator.coordinator import Coordinator
from remuda.coordinator.logs import log_to
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.system.checkpoint import state
from remuda.system.checkpoint.store import Checkpoints
from remuda.ui.cli.main import run

WORDS = (
    *("treasure_hunt", "--schedule", "sequential", "--env.num_envs", "2"),
    *("--policy.network.hidden", "8", "--policy.iqn.quantiles", "4"),
    *("--run.evaluate_episodes", "2", "--checkpoint.evaluate_episodes", "2"),
)


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A run of 200 turns, of which each test continues a copy."""
    directory = tmp_path_factory.mktemp("full") / "run"
    assert run(["train", *WORDS, "--run.turns", "200", "--run.directory", str(directory)]) == 0
    return directory


@pytest.mark.slow_cases("0", "9")
@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n in (0, 7, 9) else pytest.mark.slow) for n in range(14)]
)
def test_each_write_of_the_end_may_be_the_first_that_fails(
    number, half, tmp_path, monkeypatch, capsys
):
    directory = tmp_path / "run"
    shutil.copytree(half, directory)
    left, checkpoint, fsync = [], Coordinator.checkpoint, os.fsync

    def last_checkpoint(coordinator, record, words):
        if words:
            left.append(number)
        return checkpoint(coordinator, record, words)

    def full(descriptor):
        if left:
            if left[0] == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left[0] -= 1
        fsync(descriptor)

    monkeypatch.setattr(Coordinator, "checkpoint", last_checkpoint)
    monkeypatch.setattr(state.os, "fsync", full)
    code = run(["train", "--resume", str(directory), "--run.turns", "300"])
    failed = left == [0]
    monkeypatch.undo()
    said = capsys.readouterr()
    assert failed
    assert "Traceback" not in said.out + said.err
    if code == 0:
        assert "note: no report" in said.out
    else:
        (line,) = said.err.splitlines()
        assert code == 1
        assert "No space left" in line
        assert f"remuda train --resume {directory}" in line
    store = Checkpoints(directory / "checkpoints")
    store.verify(store.numbers()[-1])
    load_run(RunDirectory.open(directory))
    assert run(["train", "--resume", str(directory), "--run.turns", "320"]) == 0
    assert not list(directory.rglob("*.tmp"))


SCRIPT = """
import os, sys
from remuda.coordinator.coordinator import Coordinator
from remuda.__main__ import main
checkpoint = Coordinator.checkpoint
def last(coordinator, record, words):
    if words:
        with open("fill", "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
    return checkpoint(coordinator, record, words)
Coordinator.checkpoint = last
main()
"""


def test_on_a_file_system_that_is_full_the_weights_and_results_are_kept(tmp_path):
    """They have room of their own since the run began."""
    there = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False)
    if there.returncode:
        pytest.skip("this system lets no user mount a file system")
    (tmp_path / "disk").mkdir()
    script = tmp_path / "full.py"
    script.write_text(SCRIPT)
    commands = f"""
        mount -t tmpfs -o size=16m tmpfs "{tmp_path}/disk"
        cd "{tmp_path}/disk"
        {sys.executable} {script} train {" ".join(WORDS)} --run.turns 400 --run.directory run
        echo "code $?"
        ls run/weights run
        {sys.executable} -m remuda evaluate run --episodes 2 && echo evaluated
    """
    found = subprocess.run(
        ["unshare", "-rm", "sh", "-c", commands], capture_output=True, text=True, timeout=300
    )
    assert "Traceback" not in found.stdout + found.stderr
    assert "code 1" in found.stdout
    assert "agent_0.safetensors" in found.stdout
    assert "agent_1.safetensors" in found.stdout
    assert "summary.json" in found.stdout
    assert "evaluated" in found.stdout
    assert "no last checkpoint was written: No space left on device" in found.stderr


def test_a_log_on_a_full_disk_closes_without_a_traceback(tmp_path, monkeypatch):
    def full(handler):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with log_to(tmp_path / "log"):
        logging.getLogger("remuda").info("held")
        monkeypatch.setattr(logging.FileHandler, "close", full)
