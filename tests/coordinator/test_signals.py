"""A signal ends what is being played at once, and takes nothing from a run that is over."""

import signal

import pytest

import remuda.coordinator.best_checkpoint
from remuda.config import load_config
from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

LONG = 10**6
"""Episodes that take far longer than `run.evaluate_seconds`."""


def configured(directory, **checkpoint):
    tree = {
        "game": "rock_paper_scissors",
        "schedule": "sequential",
        "env": {"num_envs": 4},
        "policy": {
            "algorithm": "ppo",
            "network": {"hidden": (8,)},
            "ppo": {"rollout_length": 8, "minibatches": 1},
        },
        "checkpoint": {"every": 3600, "evaluate_episodes": 0, **checkpoint},
        "run": {"turns": 200, "directory": directory, "evaluate_episodes": 0},
    }
    return load_config(tree)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["evaluate", "margin"])
def test_in_one_process_a_signal_ends_the_judging_of_a_checkpoint(
    what, tmp_path, monkeypatch, capsys
):
    """The run waited for as long as `run.evaluate_seconds`, and as long again for a challenge."""
    config = configured(tmp_path / "run", every=0.01, evaluate_episodes=2)
    config = config.model_copy(
        update={"run": config.run.model_copy(update={"turns": None, "evaluate_seconds": 10.0})}
    )
    play, found = getattr(remuda.coordinator.best_checkpoint, what), []

    def interrupted(config, *words, limits=None, **how):
        *words, limits = (*words, limits) if limits is not None else words
        signal.raise_signal(signal.SIGTERM)
        words[2 if what == "margin" else 1] = LONG
        found.append(limits.interrupted())  # once the run has ended, all is interrupted
        return play(config, *words, limits=limits, **how)

    monkeypatch.setattr(remuda.coordinator.best_checkpoint, what, interrupted)
    result = train(config, PlainView())
    assert result.ended == "stopped by SIGTERM"
    assert not result.finished
    assert found == [True]
    assert "run.evaluate_seconds have passed" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_signal_after_the_last_turn_leaves_the_run_finished(tmp_path, monkeypatch):
    """It said that all turns were played, and that it was not finished."""

    class View(PlainView):
        def show(self, record):
            if record.turns >= 200:  # how the run ends is decided, and not yet told
                signal.raise_signal(signal.SIGTERM)

    result = train(configured(tmp_path / "run"), View())
    assert (result.ended, result.finished) == ("all turns were played", True)
    assert result.signal == signal.SIGTERM
    read = ScoreboardReader.read

    def late(board):  # before it is decided
        found = read(board)
        if hasattr(board, "start") and board.between(found, found).turns >= 200:
            signal.raise_signal(signal.SIGTERM)
        return found

    monkeypatch.setattr(ScoreboardReader, "read", late)
    result = train(configured(tmp_path / "other"), PlainView())
    assert (result.ended, result.finished) == ("all turns were played", True)
