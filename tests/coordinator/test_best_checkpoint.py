"""Judging of checkpoints: only greedy play that came to its end decides."""

import numpy as np
import pytest

from assembled import spec_of
from remuda.config import load_config
from remuda.coordinator import best_checkpoint
from remuda.coordinator.best_checkpoint import CheckpointPlay
from remuda.coordinator.checkpointing import BestKeeper
from remuda.evaluation.results import Evaluation, Limits

CONFIG = load_config(
    {
        "game": "treasure_hunt",
        "run": {"evaluate_episodes": 100},
        "checkpoint": {"evaluate_episodes": 8},
    }
)


def played(episodes, cut):
    return Evaluation(("a", "b"), np.ones((episodes, 2)), asked=8, cut=cut)


@pytest.mark.parametrize(
    ("episodes", "cut", "decides"),
    [
        (8, "", True),
        (7, "the time was up", False),
        (8, "the time was up", False),
        (4, "the time was up", False),
        (7, "interrupted", False),
    ],
)
def test_play_that_was_cut_short_measures_no_checkpoint(episodes, cut, decides, monkeypatch):
    """Short episodes are over first: half of them was enough to be the best by."""
    monkeypatch.setattr(best_checkpoint, "evaluate", lambda *_, **__: played(episodes, cut))
    found = CheckpointPlay(spec_of(CONFIG), None, Limits(60.0)).measure({}, 1)
    assert (found is not None) is decides


@pytest.mark.parametrize(("cut", "decides"), [("", True), ("the time was up", False)])
def test_play_that_was_cut_short_does_not_judge_the_last_checkpoint(cut, decides):
    """More episodes were asked for than a checkpoint is judged by, and enough of them were over."""
    asked = []

    class Coordinator:
        def compare_last(self, measured, snapshots, challenge):
            asked.append(measured)
            return True

    class Ended:
        evaluation = played(50, cut)

    judge = CheckpointPlay(spec_of(CONFIG), None, Limits(60.0))
    assert best_checkpoint.compare_last(spec_of(CONFIG), Ended, Coordinator(), judge, {}) is Ended
    assert bool(asked) is decides


def test_a_checkpoint_none_of_whose_policies_took_part_is_not_the_best():
    said = []
    keeper = BestKeeper(None, lambda *_: {"mean_return": None}, said.append, inline=True)
    keeper.offer(3, {})
    assert keeper.compare(4, {"mean_return": None}, {})
    keeper.close(0.0)
    assert "no learning agent took part" in said[0]
    assert "evaluate_seconds" not in said[0]
