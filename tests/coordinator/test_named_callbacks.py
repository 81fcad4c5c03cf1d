"""Callbacks that the command line names."""

import sys

import pytest

import remuda
from callback_runs import FOR_LONG
from remuda.ui.cli.main import run as command

MINE = """
import remuda

class Stops(remuda.Callback):
    def on_metrics(self, run, row):
        run.stop("of the file")

class Needs:
    def __init__(self, what): ...

class Breaks(remuda.Callback):
    def on_metrics(self, run, row):
        row["nothing"]
"""


FLAGS = [
    *("--schedule", "sequential", "--policy.algorithm", "ppo", "--run.turns", str(FOR_LONG)),
    *("--run.evaluate_episodes", "2", "--policy.network.hidden", "16", "--run.log_every", "0.05"),
    *("--checkpoint.evaluate_episodes", "0"),
]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of the user's own."""
    (tmp_path / "my_callbacks.py").write_text(MINE)
    (tmp_path / "broken_callbacks.py").write_text("import remuda\n\n1 / 0\n")
    (tmp_path / "torn_callbacks.py").write_text("import math\n\nmath.nothing\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("my_callbacks", "broken_callbacks", "torn_callbacks"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_a_callback_is_named_on_the_command_line(mine, capsys):
    words = ["train", "support:Tape", *FLAGS, "--run.callbacks", "my_callbacks:Stops"]
    assert command([*words, "--run.directory", "run"]) == 0
    assert "stopped by a callback: of the file" in capsys.readouterr().out
    assert remuda.load("run").config.run.callbacks == ("my_callbacks:Stops",)


@pytest.mark.slow
def test_one_that_fails_is_told_in_one_line_on_the_command_line(mine, capsys):
    words = ["train", "support:Tape", *FLAGS, "--run.callbacks", "my_callbacks:Breaks"]
    assert command([*words, "--run.directory", "run"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Breaks.on_metrics failed: KeyError in your code (my_callbacks.py, line 13, in" in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "run.callbacks: No module named 'nothing'; name your own as module:Class"),
        ("nowhere:A", "run.callbacks: No module named 'nowhere'; name your own as module:Class"),
        ("my_callbacks:A", "run.callbacks: module 'my_callbacks' has no attribute 'A'; name your"),
        (
            "my_callbacks:Needs",
            "my_callbacks:Needs was called without arguments and failed: TypeError: Needs.__init",
        ),
        ("torn_callbacks:A", "AttributeError in your code (torn_callbacks.py, line 3): module"),
        (
            "broken_callbacks:A",
            "ZeroDivisionError in your code (broken_callbacks.py, line 3): division by zero",
        ),
    ],
)
def test_one_that_cannot_be_had_is_refused_before_anything_is_made(mine, capsys, name, said):
    words = ["train", "support:Tape", *FLAGS, "--run.callbacks", name, "--run.directory", "run"]
    assert command(words) == 2
    assert said in capsys.readouterr().err
    assert not (mine / "run").exists()
