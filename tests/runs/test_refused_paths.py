"""Paths that cannot be, or that are empty, are refused in one line."""

import pytest

import remuda
from refusals import refuses
from remuda.config import load_config, read_config
from remuda.errors import ConfigError, RemudaError, RunDirectoryError, UsageError
from remuda.runs.run_directory import RunDirectory
from remuda.ui.cli.main import run as command

LONG = 5000 * "a"
KEYS = [
    ("run.directory", lambda path: {"run": {"directory": path}}),
    ("trace", lambda path: {"trace": path}),
    ("policy.init_from", lambda path: {"policy": {"init_from": path}}),
    ("policies.a.init_from", lambda path: {"policies": {"a": {"init_from": path}}}),
    ("population.members_from", lambda path: {"population": {"members_from": [path]}}),
]


@pytest.mark.parametrize(("key", "tree"), KEYS)
@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("", "is '': the path is empty; write `.` for the current directory"),
        ("a\0b", r"is 'a\x00b': a path cannot contain a NUL byte"),
        (LONG, "aaa…: a path cannot have more than 4,095 bytes"),
    ],
)
def test_a_path_that_cannot_be_is_refused(key, tree, path, told):
    with pytest.raises(ConfigError) as error:
        load_config(tree(path))
    said = str(error.value)
    assert said.startswith(f"{key} is ")
    assert told in said
    assert len(said) < 300


@pytest.mark.parametrize("path", [300 * "a", "a\0b", LONG])
def test_a_run_at_a_path_that_cannot_be_is_told(path, tmp_path):
    with refuses(RunDirectoryError):
        remuda.load(path)
    with refuses(RunDirectoryError):
        RunDirectory.open(tmp_path / path)
    with refuses(ConfigError):
        read_config(tmp_path / path)
    with pytest.raises(RemudaError):
        remuda.train("rock_paper_scissors", resume=path)
    with refuses((UsageError, RunDirectoryError)):
        remuda.tournament(
            {"a": "random", "b": "random"}, game="rock_paper_scissors", directory=path
        )


@pytest.mark.parametrize("key", ["run.directory", "policy.init_from"])
def test_a_name_that_is_too_long_for_the_disk_is_told(key, tmp_path, capsys):
    words = [f"--{key}", str(tmp_path / (300 * "a"))]
    words += ["--schedule", "sequential", "--run.turns", "10"]
    assert command(["train", "rock_paper_scissors", *words])
    assert "too long" in capsys.readouterr().err


def test_all_seats_scripted_is_refused(tmp_path):
    tree = {"env": {"scripted": {"agent_0": "random", "agent_1": "random"}}}
    with refuses(ConfigError):
        remuda.train("rock_paper_scissors", run={"directory": tmp_path / "run"}, **tree)
    assert not (tmp_path / "run").exists()
