"""Everything in one process: what is built is finished, whichever of it fails."""

import numpy as np

import remuda
from refusals import refuses
from remuda.errors import UserCodeError
from remuda.runtime.inline import InlineRuntime
from remuda.ui.terminal.live import PlainView
from support import Tape


class Role:
    """Notes what is done with its worker; either may fail."""

    def __init__(self, name, done, builds=True, finishes=True):
        self.name, self.done, self.builds, self.finishes = name, done, builds, finishes

    def build(self):
        if not self.builds:
            raise MemoryError(f"no room for {self.name}")
        self.done.append(f"{self.name} built")
        return self

    def finish(self):
        self.done.append(f"{self.name} finished")
        if not self.finishes:
            raise RuntimeError(f"{self.name} cannot")


def test_what_was_built_before_a_role_that_cannot_be_is_finished():
    """Its environment's workers stayed alive."""
    done = []
    learners = [Role("one", done), Role("two", done, builds=False)]
    runtime = InlineRuntime(Role("actor", done), learners, None)
    with refuses(UserCodeError):
        runtime.start(lambda: False)
    runtime.stop()
    assert done == ["actor built", "one built", "actor finished", "one finished"]
    runtime.stop()
    assert len(done) == 4, "it was finished twice"


def test_every_learner_finishes_and_the_fault_of_one_is_told():
    done = []
    learners = [Role("one", done, finishes=False), Role("two", done)]
    runtime = InlineRuntime(Role("actor", done, finishes=False), learners, None)
    runtime.start(lambda: False)
    with refuses(UserCodeError):
        runtime.stop()
    assert done[-3:] == ["actor finished", "one finished", "two finished"]


class CannotClose(Tape):
    """A game whose window is gone when it is closed."""

    closes = 0

    def close(self):
        CannotClose.closes += 1
        if CannotClose.closes == 2:  # the first was looked at; greedy play comes later
            raise OSError("the window is gone")


def test_a_game_that_cannot_be_closed_costs_a_finished_run_nothing(tmp_path, monkeypatch):
    """The run was raised as a failure, without summary and without its last weights."""
    monkeypatch.setattr(CannotClose, "closes", 0)
    result = remuda.train(
        CannotClose,
        schedule="sequential",
        env={"num_envs": 1},
        policy={"algorithm": "ppo", "network": {"hidden": [8]}, "ppo": {"rollout_length": 20}},
        run={"turns": 60, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
    )
    assert CannotClose.closes >= 2
    assert result.finished
    run = remuda.load(result)
    assert run.summary()["turns"] == 60
    assert np.isfinite(run["agent_0"].act(np.zeros(5, np.float32)))
    said = (run.path / "logs" / "coordinator.log").read_text()
    assert "close() of CannotClose raised OSError in your code" in said
