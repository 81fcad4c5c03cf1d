"""A run that has had all that it is to have, and is resumed: nothing of it changes."""

import json
import shutil
from dataclasses import replace

import pytest

import remuda
from remuda.config import load_config, overlay
from remuda.runs.result import cut_words, is_reported, summarise
from remuda.ui.terminal.live import PlainView

SMALL = {
    "policy": {
        "algorithm": "dqn",
        "network": {"hidden": (8,)},
        "batch_size": 8,
        "experience": {"segment_length": 5, "capacity": 1000, "learning_starts": 20},
    },
    "env": {"num_envs": 2},
    "run": {"evaluate_episodes": 2},
    "checkpoint": {"evaluate_episodes": 0},
}
KINDS = {
    "fixed": {},
    "dealt": {"population": {"policies": 3, "matchmaker": "random"}},
}


def trained(tmp_path, schedule, kind, **limit):
    run = {"directory": tmp_path / "run", **limit}
    settings = KINDS[kind]
    return remuda.train(
        "support:Tape", config=SMALL, schedule=schedule, run=run, view=PlainView(), **settings
    )


def holds(path):
    """What of a run is not to change."""
    weights = {each.name: each.read_bytes() for each in (path / "weights").iterdir()}
    numbers = sorted(each.name for each in (path / "checkpoints").iterdir())
    ledger = path / "ledger.bin"
    matches = ledger.read_bytes() if ledger.exists() else b""
    return weights, numbers, (path / "metrics.jsonl").read_bytes(), matches


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", ["async", "lockstep", "sequential"])
@pytest.mark.parametrize("limit", [{"seconds": 1.0, "turns": None}, {"turns": 300}])
def test_nothing_more_is_trained(tmp_path, capfd, limit, schedule, kind):
    """Red before by `run.seconds`: it played on for a tick, and kept weights of before that.

    Red before also: the summary's rate was 0, and its matches were those of the last checkpoint.
    """
    first = trained(tmp_path, schedule, kind, **limit)
    before, told = (
        holds(first.directory),
        json.loads((first.directory / "summary.json").read_text()),
    )
    assert told["agent_steps"] > 0
    for _ in range(2):
        again = remuda.train(resume=first, view=PlainView())
        assert json.loads((first.directory / "summary.json").read_text()) == told
        assert holds(first.directory) == before
        assert again.finished
        assert again.ended == first.ended
        assert again.evaluation is not None
        assert len(again.evaluation.returns) == 2
    assert told["turns"] == first.record.turns
    assert "nothing was left to do, and nothing more is trained" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["missing", "damaged"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_not_whole_are_written_once_more(tmp_path, capfd, kind, fault):
    """As where the process was killed between two files. Red before: they stayed so for good."""
    first = trained(tmp_path, "sequential", kind, turns=300)
    files = sorted((first.directory / "weights").iterdir())
    if fault == "missing":
        files[1].unlink()
        (first.directory / "summary.json").unlink()
    else:
        files[1].write_bytes(files[1].read_bytes()[:20])
    remuda.train(resume=first, view=PlainView())
    assert "missing or damaged: they are saved again" in capfd.readouterr().out
    assert sorted((first.directory / "weights").iterdir()) == files
    run = remuda.load(first.directory)
    assert all(run[name].weights() for name in run)
    before = holds(first.directory)
    remuda.train(resume=first, view=PlainView())
    assert holds(first.directory) == before


@pytest.mark.process
@pytest.mark.slow
def test_matches_after_the_last_checkpoint_stay_in_the_ledger(tmp_path):
    """Processes play on while it is written. Red before: the resume cut what they had played."""
    settings = {
        "population": {"policies": 3, "matchmaker": "random"},
        "actor": {"processes": 2},
        "env": {"num_envs": 16},
    }
    run = {"directory": tmp_path / "run", "seconds": 2.0, "evaluate_episodes": 0}
    first = remuda.train("kuhn_poker", schedule="async", run=run, view=PlainView(), **settings)
    before = holds(first.directory)
    assert before[-1]
    # As after a checkpoint with matches beyond it, however the processes were timed.
    ledger = first.directory / "ledger.bin"
    with ledger.open("ab") as file:
        file.write(before[-1][-(len(before[-1]) // 100) :])
    longer = ledger.read_bytes()
    remuda.train(resume=first, view=PlainView())
    assert ledger.read_bytes() == longer


@pytest.mark.slow
def test_a_copy_without_its_empty_directories_goes_on(tmp_path):
    """Red before: it trained to its end, and then could not write a policy's weights."""
    first = trained(tmp_path, "sequential", "fixed", turns=300)
    for name in ("weights", "tensorboard"):
        shutil.rmtree(first.directory / name)
    run = {"turns": 400}
    more = remuda.train(resume=first, config={"run": run}, view=PlainView())
    assert more.finished
    assert list((first.directory / "tensorboard").iterdir())
    loaded = remuda.load(first.directory)
    assert all(loaded[name].weights() for name in loaded)


@pytest.mark.slow
def test_a_summary_stays_whole_where_greedy_play_is_not_measured_again(tmp_path):
    """Red before: its returns were gone."""
    first = trained(tmp_path, "sequential", "fixed", turns=300)
    told = (first.directory / "summary.json").read_text()
    remuda.train(resume=first, config={"run": {"evaluate_episodes": 0}}, view=PlainView())
    assert json.loads((first.directory / "summary.json").read_text()) == json.loads(told)


@pytest.mark.process
@pytest.mark.slow
def test_a_run_on_several_nodes_that_is_over_needs_none(tmp_path, capfd):
    """Red before: its weights went back to the checkpoint, and each resume added a metrics line."""
    pytest.importorskip("ray")
    settings = {
        "population": {"policies": 3, "matchmaker": "random"},
        "cluster": {"local": 2},
        "env": {"num_envs": 4},
    }
    run = {"directory": tmp_path / "run", "turns": 1000, "evaluate_episodes": 0}
    first = remuda.train("kuhn_poker", schedule="async", run=run, view=PlainView(), **settings)
    path = first.directory / "weights" / "policy_0.safetensors"
    # As after updates beyond the last checkpoint, however the processes were timed.
    data = path.read_bytes()
    path.write_bytes(data[:-4] + bytes([data[-4] ^ 1]) + data[-3:])
    before = holds(first.directory)
    again = remuda.train(resume=first, view=PlainView())
    assert "nothing was left to do" in capfd.readouterr().out
    assert again.finished
    assert holds(first.directory) == before


@pytest.mark.slow
def test_a_run_that_is_over_needs_no_room_for_its_experience(tmp_path):
    """Red before: refused, since other actors cannot go on with what was lived through."""
    config = {
        "actor": {"processes": 2},
        "env": {"num_envs": 2},
        "checkpoint": {"replay": True},
        "run": {"directory": tmp_path / "run", "turns": 300},
    }
    first = remuda.train(
        "support:Tape", config=overlay(SMALL, config), schedule="async", view=PlainView()
    )
    before = holds(first.directory)
    remuda.train(resume=first, config={"actor": {"processes": 1}}, view=PlainView())
    assert holds(first.directory) == before


@pytest.mark.slow
def test_nothing_is_looked_for_that_only_training_needs(tmp_path, monkeypatch):
    """Red before: a trial was trained; on a cluster's head, the GPUs of its nodes were missed."""
    first = trained(tmp_path, "sequential", "fixed", turns=300)

    def no_trial(*args):
        raise AssertionError("a trial")

    monkeypatch.setattr("remuda.training.run.choose_layout", no_trial)
    config = {"cluster": {"local": 2}, "learners": {"devices": ["cuda"]}, "schedule": "async"}
    again = remuda.train(resume=first, config=config, view=PlainView())
    assert again.ended == first.ended


@pytest.mark.slow
def test_a_summary_that_is_damaged_is_made_anew(tmp_path):
    """Red before, nested without end: a RecursionError."""
    first = trained(tmp_path, "sequential", "fixed", turns=300)
    path = first.directory / "summary.json"
    for damage in ("[" * 100_000, "{"):
        path.write_text(damage)
        remuda.train(resume=first, view=PlainView())
        assert json.loads(path.read_text())["evaluation"]["episodes"] == 2


def test_returns_of_before_stay_where_greedy_play_is_cut_short_at_once(tmp_path):
    """Red before: they stayed, beside a note that they were of none of the episodes."""
    first = trained(tmp_path, "sequential", "fixed", turns=300)
    path = first.directory / "summary.json"
    told = json.loads(path.read_text())
    run = {"evaluate_seconds": 1e-9}
    remuda.train(resume=first, config={"run": run}, view=PlainView())
    now = json.loads(path.read_text())
    assert now["evaluation"] == told["evaluation"]
    assert now["notes"] == [
        "greedy play ran out of run.evaluate_seconds after 0 of 2 episodes; the returns are those "
        "of the earlier evaluation"
    ]


@pytest.mark.slow
def test_a_measurement_that_was_cut_does_not_replace_a_longer_one(tmp_path):
    """Red before: one episode of two was told, where two had been measured."""
    first = trained(tmp_path, "sequential", "fixed", turns=300)
    told = json.loads((first.directory / "summary.json").read_text())
    cut = replace(first.evaluation, returns=first.evaluation.returns[:1], cut="time")
    again = replace(first, before=told, evaluation=cut)
    now = summarise(load_config({"game": "tag"}), again, "")
    assert now["evaluation"] == told["evaluation"]
    assert "1 of 2 episodes; the returns are those" in cut_words(
        load_config({}), again, cut, interrupted=False
    )
    assert not is_reported(again, cut)
    assert is_reported(again, first.evaluation)
    assert is_reported(first, cut)


@pytest.mark.slow
def test_returns_of_before_stay_where_greedy_play_fails(tmp_path, monkeypatch):
    """Red before: the note did not say that the returns beside it are older."""
    first = trained(tmp_path, "sequential", "fixed", turns=300)
    path = first.directory / "summary.json"
    told = json.loads(path.read_text())

    def fails(*_, **__):
        raise RuntimeError("the game broke")

    monkeypatch.setattr("remuda.training.finish.evaluate", fails)
    remuda.train(resume=first, view=PlainView())
    now = json.loads(path.read_text())
    assert now["evaluation"] == told["evaluation"]
    assert now["notes"][0].endswith("; the returns are those of the earlier evaluation")
