"""Losses and weights that are not finite are undone, told, never published; too many end it."""

from dataclasses import dataclass

import numpy as np
import pytest

from faults.runs import make_runtime, run_until, small_config
from refusals import refuses
from remuda.errors import RoleDiedError
from remuda.learner.role import LearnerRole
from remuda.system.scoreboard import Learn, Play
from remuda.training.run import train
from support import Tape


class Poisonous(Tape):
    """Gives agent_0 a reward that is no number in every 50th turn."""

    turns = 0

    def end_turn(self):
        type(self).turns += 1
        if self.turns % 50 == 0:
            self._rewards[:, 0] = np.nan
        return super().end_turn()


class Spoiled(Tape):
    """Gives agent_0 a reward that is no number in every turn after its 600th."""

    turns = 0

    def end_turn(self):
        self.turns += 1
        if self.turns > 600:
            self._rewards[:, 0] = np.nan
        return super().end_turn()


@dataclass(frozen=True)
class Explodes(LearnerRole):
    """agent_0's weights become infinite in three updates in a row, now and then."""

    def build(self):
        group = super().build()
        if self.specs[0].name == "agent_0":
            algorithm = group.learners[0].algorithm
            update, calls = algorithm.update, []

            def explode(batch, first, end):
                loss = update(batch, first, end)
                calls.append(1)
                if len(calls) % 20 < 3:
                    algorithm.online.flat[0, 3] = float("inf")
                return loss

            algorithm.update = explode
        return group


@pytest.mark.slow
def test_weights_that_are_not_finite_are_undone_and_never_published(tmp_path):
    ring, runtime = make_runtime(small_config(), tmp_path, Explodes)
    runtime.start(lambda: False)
    try:
        learn = ring.scoreboard.learn("agent_0")
        seen = 0
        while learn[Learn.NONFINITE] < 9:
            runtime.run_for(0.01)
            snapshot = ring.snapshots().get("agent_0")
            if snapshot is not None:
                assert np.isfinite(snapshot.weights).all()
                seen = max(seen, snapshot.learner_step)
        assert seen > 10
        assert learn[Learn.HALTED] == 0
        updates = learn[Learn.UPDATES]
        run_until(runtime, lambda: learn[Learn.UPDATES] > updates + 10)
    finally:
        runtime.stop()
    assert "restored update" in (tmp_path / "learner-agent_0.log").read_text()
    assert ring.scoreboard.learn("agent_1")[Learn.NONFINITE] == 0


class Remembers:
    """A view that keeps what it is told."""

    def __init__(self):
        self.said = []

    def start(self, goal):
        pass

    def show(self, record):
        pass

    log = show

    def say(self, message):
        self.said.append(message)

    def close(self):
        pass


@pytest.mark.process
def test_a_game_that_gives_no_number_is_told_by_the_process_that_played_it(tmp_path):
    """Agent, copy and turn stand in the line that ends the run, and nothing was trained on it."""
    tree = {"game": "faults.test_bad_numbers:Poisonous", "supervision": {"restarts": 0}}
    ring, runtime = make_runtime(small_config(**tree), tmp_path)
    runtime.start(lambda: False)
    try:
        with refuses(RoleDiedError):
            run_until(runtime, lambda: False)
    finally:
        runtime.stop()
    assert ring.scoreboard.learn("agent_0")[Learn.NONFINITE] == 0


@pytest.mark.slow_cases("ppo")
@pytest.mark.parametrize(
    "policy",
    [
        # Waiting for one that learns no more would end the game; overwriting could not.
        pytest.param(
            {"experience": {"on_full": "overwrite", "capacity": 500, "segment_length": 3}},
            marks=pytest.mark.slow,
        ),
        {"experience": {"on_full": "wait", "capacity": 500, "segment_length": 3}},
        {
            "algorithm": "ppo",
            "ppo": {"rollout_length": 64},
            "experience": {"segment_length": 4},
        },
    ],
    ids=["overwrite", "wait", "ppo"],
)
def test_a_policy_that_cannot_learn_stops_learning_and_the_run_goes_on(policy, tmp_path):
    tree = {
        "game": "faults.test_bad_numbers:Spoiled",
        "schedule": "sequential",
        "env": {"check": False},
        "policy": {"max_nonfinite": 4} | policy,
        "run": {"turns": 1500, "directory": tmp_path / "run", "seconds": None},
    }
    view = Remembers()
    result = train(small_config(**tree), view)
    assert result.finished
    bad, good = result.record.policies["agent_0"], result.record.policies["agent_1"]
    assert bad.halted
    assert bad.nonfinite >= 4
    assert (good.halted, good.nonfinite) == (False, 0)
    assert good.updates > bad.updates
    assert result.record.turns == 1500
    assert result.record.waits == 0
    told = " ".join(view.said)
    assert "policy agent_0: a loss or weight was not finite" in told
    assert "policy agent_0 stops learning after" in told
    assert "agent_1" not in told
    assert Play.TURNS == 0
