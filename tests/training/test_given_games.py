"""Runs of games that are given as classes and functions, from cells, scripts and modules."""

import os
import subprocess
import sys

import numpy as np
import pytest
import yaml

import remuda
from refusals import refuses
from remuda.errors import (
    CheckpointError,
    MissingCodeError,
    RoleDiedError,
    UnguardedScriptError,
    UserCodeError,
)
from remuda.system import loading
from remuda.system.processes.child import check_guard
from remuda.ui.cli.main import run as run_command
from remuda.ui.terminal.live import PlainView

SMALL = {
    "schedule": "sequential",
    "env": {"num_envs": 2},
    "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 20}},
    "run": {"turns": 120, "evaluate_episodes": 2, "log_every": 0.05},
    "checkpoint": {"evaluate_episodes": 0},
}
CELL = """
import gymnasium
import numpy as np
from gymnasium import spaces

PAYS = 1.0

class Typed(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, breaks_at=0):
        self.breaks_at = breaks_at
        self.total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return self.look(), {}

    def look(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def step(self, action):
        self.turn += 1
        self.total += 1
        if self.total == self.breaks_at:
            self.fail()
        return self.look(), PAYS * float(action), self.turn == 4, False, {}

    def fail(self):
        raise LookupError("no more turns")
"""


def typed(source=CELL):
    """A class as a notebook's cell defines it."""
    scope = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec"), scope)
    return scope["Typed"]


def begin(game, directory, **tree):
    return remuda.train(
        game, config=SMALL, view=PlainView(), **(tree | {"run": {"directory": directory}})
    )


@pytest.fixture
def forget(monkeypatch):
    """Know no more of pickled games than another process does."""

    def forget():
        monkeypatch.setattr(loading, "PICKLES", {})
        monkeypatch.setattr(loading, "OBJECTS", {})

    return forget


@pytest.fixture(scope="module")
def of_a_cell(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cell") / "run"
    assert begin(typed(), directory).finished
    return directory


def weights_of(directory):
    return (directory / "weights" / "agent_0.safetensors").read_bytes()


def test_a_class_of_a_cell_is_played_again_by_another_process(of_a_cell, forget):
    name = yaml.safe_load((of_a_cell / "config.yaml").read_text())["game"]
    assert name.startswith("pickled:Typed-")
    assert (of_a_cell / loading.file_name(name)).exists()
    forget()
    run = remuda.load(of_a_cell)
    assert run.game == name
    returns = run.evaluate(episodes=5).returns
    assert returns.shape == (5, 1)
    assert set(returns.ravel()) <= {0.0, 1.0, 2.0, 3.0, 4.0}
    found = remuda.tournament([run["agent_0"], "random"], game=typed(), episodes=3)
    assert found.means.shape == (2, 2)


def test_the_command_line_opens_it(of_a_cell, forget, capsys):
    forget()
    assert run_command(["evaluate", str(of_a_cell), "--episodes", "3"]) == 0
    assert "3 greedy episodes" in capsys.readouterr().out


def test_its_configuration_is_used_again_where_its_code_lies_beside(of_a_cell, forget, tmp_path):
    forget()
    words = {"run": {"directory": tmp_path / "run", "turns": 40}, "view": PlainView()}
    assert remuda.train(config=of_a_cell / "config.yaml", **words).finished
    assert remuda.load(tmp_path / "run").evaluate(episodes=1).returns.shape == (1, 1)
    (tmp_path / "alone.yaml").write_text((of_a_cell / "config.yaml").read_text())
    forget()
    with refuses(MissingCodeError):
        remuda.train(config=tmp_path / "alone.yaml")


@pytest.mark.slow
def test_a_run_goes_on_with_the_code_that_it_has_or_with_mended_code(tmp_path, forget):
    directory = tmp_path / "run"
    begin(typed(), directory)
    forget()
    on = {"resume": directory, "view": PlainView()}
    assert remuda.train(run={"turns": 160}, **on).record.turns == 160
    before = remuda.load(directory).game
    assert remuda.train(typed(CELL.replace("1.0\n\n", "7.0\n\n")), run={"turns": 200}, **on)
    run = remuda.load(directory)
    assert run.game != before
    forget()
    assert set(remuda.load(directory).evaluate(episodes=5).returns.ravel() % 7.0) == {0.0}
    with refuses(CheckpointError):
        remuda.train(lambda: typed()(), run={"turns": 240}, **on)


@pytest.mark.slow
def test_processes_are_sent_the_code_and_train_as_one_does(of_a_cell, tmp_path):
    tree = {"schedule": "lockstep"}
    begin(typed(), tmp_path / "apart", **tree)
    assert weights_of(tmp_path / "apart") == weights_of(of_a_cell)
    begin(typed(), tmp_path / "workers", env={"workers": 2})
    assert weights_of(tmp_path / "workers") == weights_of(of_a_cell)


@pytest.mark.process
@pytest.mark.slow_cases("processes", "workers")
@pytest.mark.parametrize(
    ("tree", "error", "words"),
    [
        ({}, UserCodeError, "coordinator.log"),
        ({"env": {"workers": 2}}, UserCodeError, "in worker [01] of the environment"),
        ({"schedule": "lockstep", "supervision": {"restarts": 0}}, RoleDiedError, "actor.log"),
    ],
    ids=["one process", "workers", "processes"],
)
def test_what_a_game_raises_in_the_middle_is_told_as_its_own(tree, error, words, tmp_path, capfd):
    tree = {**tree, "env": {**tree.get("env", {}), "options": {"breaks_at": 30}}}
    with pytest.raises(error) as found:
        begin(typed(), tmp_path / "run", **tree)
    told = str(found.value)
    line = CELL[: CELL.index("raise LookupError")].count("\n") + 1
    assert f"LookupError in your code (<cell>, line {line}, in fail, called from line " in told
    assert "in step): no more turns" in told
    assert words.split(" ")[-1] in told
    assert "\n" not in told
    log = tmp_path / "run" / "logs" / words
    if words.endswith(".log"):
        assert "Traceback" in log.read_text()
    assert "Traceback" not in capfd.readouterr().err


class BreaksInAChild:
    """Makes an environment in the process that made this, and in no other."""

    def __init__(self):
        self.home = os.getpid()

    def __call__(self):
        if os.getpid() != self.home:
            raise OSError("no screen in here")
        return typed()()


@pytest.mark.slow
def test_what_a_game_raises_as_a_process_begins_is_told_as_its_own(tmp_path):
    with pytest.raises(RoleDiedError) as found:
        begin(BreaksInAChild(), tmp_path / "run", schedule="lockstep")
    assert "the process actor ended by an exception: OSError in your code (" in str(found.value)
    assert "in __call__): no screen in here; it never got ready" in str(found.value)


def test_a_game_that_breaks_in_evaluation_is_told_as_its_own(of_a_cell, tmp_path):
    begin(typed(), tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    tree = yaml.safe_load(config.read_text())
    tree["env"]["options"]["breaks_at"] = 3
    config.write_text(yaml.safe_dump(tree))
    with refuses(UserCodeError):
        remuda.load(tmp_path / "run").evaluate(episodes=2)


def test_an_environment_is_refused_and_its_class_is_asked_for():
    with refuses(remuda.UsageError):
        remuda.train(typed()())
    with refuses(remuda.UsageError):
        remuda.train(config={"game": typed()()})


RUNS = f"""
import os
import sys

import remuda
from remuda.ui.terminal.live import PlainView

SMALL = {SMALL!r}

def begin(game, **tree):
    result = remuda.train(game, config=SMALL, view=PlainView(), **tree)
    print(remuda.load(result).evaluate(episodes=3).returns.shape)
"""


def python(words, source="", **where):
    return subprocess.run(
        [sys.executable, *words], input=source, capture_output=True, text=True, check=False, **where
    )


@pytest.mark.process
@pytest.mark.slow
def test_a_class_that_was_typed_in_trains_in_processes(tmp_path):
    source = RUNS + CELL + "\nbegin(Typed, schedule='lockstep')\n"
    ended = python(["-"], source, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("(3, 1)\n")


@pytest.mark.process
@pytest.mark.slow
def test_a_class_of_a_guarded_script_trains_in_processes(tmp_path):
    ends = "\nif __name__ == '__main__':\n    begin(Typed, schedule='lockstep')\n"
    (tmp_path / "guarded.py").write_text(RUNS + CELL + ends)
    ended = python(["guarded.py"], cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("(3, 1)\n")


@pytest.mark.slow
@pytest.mark.parametrize("tree", ["schedule='lockstep'", "env={'num_envs': 2, 'workers': 2}"])
def test_a_script_without_a_guard_is_told_so(tree, tmp_path):
    (tmp_path / "open_script.py").write_text(RUNS + f"\nbegin('tag', {tree})\n")
    ended = python(["open_script.py"], cwd=tmp_path)
    assert ended.returncode == 1
    *before, line = ended.stderr.strip().splitlines()
    assert "open_script.py trains without a guard" in line
    assert 'put its code under `if __name__ == "__main__":`' in line
    assert ended.stderr.count("open_script.py trains") == 1
    assert "multiprocessing" not in ended.stderr
    assert len(before) < 15  # the lines of the script, and no way through Remuda


@pytest.mark.process
@pytest.mark.slow
def test_a_script_without_a_guard_may_train_in_one_process(tmp_path):
    (tmp_path / "open_script.py").write_text(RUNS + "\nbegin('kuhn_poker')\n")
    ended = python(["open_script.py"], cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr


def test_only_what_is_read_by_a_child_is_refused():
    from multiprocessing import process

    check_guard()
    process.current_process()._inheriting = True
    try:
        with refuses(UnguardedScriptError):
            check_guard()
    finally:
        del process.current_process()._inheriting


@pytest.mark.slow
def test_a_path_is_played_by_the_command_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "games_of_mine.py").write_text(CELL)
    monkeypatch.syspath_prepend(tmp_path)
    words = "--schedule sequential --run.turns 40 --run.evaluate_episodes 2 --policy.algorithm ppo"
    words += f" --run.directory {tmp_path / 'run'} --policy.network.hidden 8"
    assert run_command(["train", "games_of_mine:Typed", *words.split()]) == 0
    assert run_command(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    capsys.readouterr()
    assert run_command(["play", "games_of_mine:Typed", "--env.options.breaks_at", "2"]) == 1
    said = capsys.readouterr()
    assert "remuda: LookupError in your code (" in said.err
    assert "Traceback" not in said.err
    assert np.isfinite(remuda.load(tmp_path / "run").metrics()["turns"]).all()
