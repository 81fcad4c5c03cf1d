"""A run whose learners cannot keep up says so at its end, and why."""

import functools
import time
from dataclasses import dataclass

import pytest

from faults.runs import small_config
from remuda.actor.role import ActorRole
from remuda.assembly.assembly import Assembly
from remuda.learner.role import LearnerRole
from remuda.system.scoreboard import Learn, Play
from remuda.training import run as training
from remuda.ui.reports.results import remarks
from remuda.ui.reports.summary import read_run
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.process

ASKED, SIZE, TURNS, UPDATES = 0.64, 16, 20_000, 40


@dataclass(frozen=True)
class Slow(LearnerRole):
    """Sleeps in each update, until eight times the steps are there that the update is due at."""

    def build(self):
        group = super().build()
        for learner in group.learners:
            algorithm, experience = learner.algorithm, self.experience[learner.policies[0]]
            algorithm.update = self.slowed(algorithm.update, experience)
        return group

    def slowed(self, update, experience):
        done = []

        def slow(batch, first, end):
            done.append(1)
            steps = len(done) * SIZE * 8 / ASKED
            while experience.written < steps and self.scoreboard.turns() < TURNS:
                time.sleep(0.01)
            time.sleep(0.05 if self.scoreboard.turns() < TURNS else 1.0)
            return update(batch, first, end)

        return slow


@dataclass(frozen=True)
class WaitsBeforeItEnds(ActorRole):
    """Plays on only when the learners had updates enough to be judged by, and some seconds."""

    def build(self):
        actor = super().build()
        work, began = actor.work, time.monotonic()
        learn = [self.scoreboard.learn(spec.name) for spec in self.specs]

        def held_back():
            updates = min(row[Learn.UPDATES] for row in learn)
            enough = updates >= UPDATES and time.monotonic() > began + 5.0
            if self.scoreboard.play()[Play.TURNS] > TURNS - 100 and not enough:
                time.sleep(0.05)
                return True
            return work()

        actor.work = held_back
        return actor


@pytest.mark.slow
def test_a_run_whose_learners_are_slowed_tells_of_the_missed_ratio_and_why(tmp_path, monkeypatch):
    monkeypatch.setattr(
        training,
        "Assembly",
        functools.partial(Assembly, learner_role=Slow, actor_role=WaitsBeforeItEnds),
    )
    config = small_config(
        run={"turns": TURNS, "seconds": None, "directory": str(tmp_path / "run")},
        policy={"batch_size": SIZE, "experience": {"replay_ratio": ASKED, "on_full": "overwrite"}},
    )
    result = training.train(config, PlainView())
    assert result.finished
    assert 0.0 < result.processors["learner-agent_0"] < 0.75
    summary = read_run(tmp_path / "run")
    for policy in summary.policies:
        assert 0.0 < policy.replay_ratio < ASKED / 2
    said = "\n".join(remarks(summary))
    assert "agent_0, agent_1 trained on" in said
    assert "policy.experience.replay_ratio is 0.64" in said
    assert "and had a processor for" in said
