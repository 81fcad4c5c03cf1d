"""What comes after training: results first, then pictures; nothing that fails there costs them."""

import json
import signal
import time

import pytest

from endings import Duel
from remuda.ui.cli.main import run

SMALL = (
    *("--schedule", "sequential", "--env.num_envs", "2", "--run.turns", "400"),
    *("--policy.network.hidden", "8", "--policy.iqn.quantiles", "4"),
    *("--policy.batch_size", "16", "--policy.experience.learning_starts", "64"),
    *("--run.live", "false", "--checkpoint.evaluate_episodes", "0"),
)


def train(directory, fault, *words):
    game = ("endings:Faulty", "--env.options.fault", fault, "--run.evaluate_episodes", "7")
    return run(["train", *game, *SMALL, "--run.directory", str(directory), *words])


def summary_of(directory):
    return json.loads((directory / "summary.json").read_text())


@pytest.mark.slow
def test_a_game_that_cannot_be_drawn_costs_the_picture(tmp_path, capsys):
    assert train(tmp_path / "run", "render") == 0
    said = capsys.readouterr()
    assert "agent_0" in said.out
    assert "no picture: OSError: no display" in said.out
    assert "Traceback" not in said.out + said.err
    assert (tmp_path / "run" / "report.html").exists()
    assert not (tmp_path / "run" / "play.gif").exists()
    assert "no display" in (tmp_path / "run" / "logs" / "coordinator.log").read_text()


@pytest.mark.slow
def test_a_game_that_raises_in_greedy_play_costs_the_measurement(tmp_path, capsys):
    assert train(tmp_path / "run", "raise") == 0
    said = capsys.readouterr()
    assert "all turns were played" in said.out
    assert "greedy play failed: RuntimeError in your code (" in said.out
    assert "): the game broke" in said.out
    assert "Traceback" not in said.out + said.err
    summary = summary_of(tmp_path / "run")
    assert summary["evaluation"] is None
    assert summary["notes"]
    assert "greedy play failed" in (tmp_path / "run" / "report.html").read_text()
    assert (tmp_path / "run" / "weights" / "agent_1.safetensors").exists()


@pytest.mark.slow
def test_ctrl_c_in_greedy_play_keeps_what_was_played(tmp_path, capsys):
    assert train(tmp_path / "run", "interrupt") == 130
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    summary = summary_of(tmp_path / "run")
    assert summary["finished"]
    assert 0 < summary["evaluation"]["episodes"] < 7
    assert f"interrupted after {summary['evaluation']['episodes']} of 7 episodes" in said.out
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.slow
def test_greedy_play_of_a_slow_game_ends_in_time_and_says_so(tmp_path, capsys):
    assert train(tmp_path / "run", "slow", "--run.evaluate_seconds", "1.2") == 0
    said = capsys.readouterr().out
    evaluated = summary_of(tmp_path / "run")["evaluation"]
    assert 0 < evaluated["episodes"] < 7
    assert f"after {evaluated['episodes']} of 7 episodes" in said
    assert "run.evaluate_seconds" in said


@pytest.mark.slow
def test_where_all_copies_are_too_slow_one_of_them_is_played(tmp_path):
    """Seven copies would not end an episode within the time, and one does."""
    words = ("--env.num_envs", "7", "--run.evaluate_seconds", "2", "--env.options.seconds", "0.1")
    assert train(tmp_path / "run", "slow", *words) == 0
    assert summary_of(tmp_path / "run")["evaluation"]["episodes"] >= 1


@pytest.mark.slow
def test_where_no_episode_ends_in_time_there_is_no_return(tmp_path, capsys):
    words = ("--run.evaluate_seconds", "0.01", "--env.options.seconds", "0.1")
    assert train(tmp_path / "run", "slow", *words) == 0
    assert "after 0 of 7 episodes" in capsys.readouterr().out
    assert summary_of(tmp_path / "run")["evaluation"] is None


@pytest.mark.slow
def test_results_come_before_pictures(tmp_path, monkeypatch, capsys):
    seen = []

    def late(*_, **__):
        seen.append(capsys.readouterr().out)
        raise KeyError("pictures")

    monkeypatch.setattr("remuda.ui.reports.report.write_report", late)
    assert train(tmp_path / "run", "") == 0
    assert "greedy return" in seen[0]
    assert "no report: KeyError: 'pictures'" in capsys.readouterr().out


@pytest.mark.slow
def test_the_report_is_made_again(tmp_path, capsys):
    directory = tmp_path / "run"
    assert train(directory, "") == 0
    pictures = {path.name for path in directory.iterdir()}
    for name in ("report.html", "play.gif", "learning.png"):
        (directory / name).unlink()
    capsys.readouterr()
    assert run(["report", str(directory)]) == 0
    assert {path.name for path in directory.iterdir()} == pictures
    assert str(directory / "report.html") in capsys.readouterr().out
    assert run(["report", str(tmp_path / "nowhere")]) == 1
    (directory / "summary.json").unlink()
    assert run(["report", str(directory)]) == 1
    assert "summary.json is missing: the run has not ended" in capsys.readouterr().err


@pytest.mark.slow
def test_a_policy_that_stopped_learning_is_told_to_the_end(tmp_path, capsys):
    directory = tmp_path / "run"
    assert train(directory, "", "--policies.agent_1.learning_rate", "1e38") == 3
    said = capsys.readouterr().out
    told = "agent_1 stopped learning"
    assert told in said.split("greedy return")[1], "after the table"
    assert summary_of(directory)["halted"] == ["agent_1"]
    assert told in (directory / "report.html").read_text()
    assert run(["train", "--help"]) == 0
    assert "3" in capsys.readouterr().out.split("exit code")[1]


@pytest.mark.slow
def test_a_run_without_a_turn_has_no_picture(tmp_path, capsys):
    directory = tmp_path / "run"
    assert train(directory, "") == 0
    for name in ("report.html", "play.gif"):
        (directory / name).unlink()
    facts = summary_of(directory) | {"turns": 0}
    (directory / "summary.json").write_text(json.dumps(facts))
    from remuda.runs.run_directory import RunDirectory
    from remuda.ui.reports.run_end import make_report

    assert make_report(RunDirectory.open(directory)) == []
    assert not (directory / "play.gif").exists()
    assert not (directory / "report.html").exists()


@pytest.mark.slow_cases("sequential")
@pytest.mark.parametrize("schedule", ["sequential", pytest.param("async", marks=pytest.mark.slow)])
def test_the_best_of_a_short_run_is_found(schedule, tmp_path, capsys):
    """It ends before the first checkpoint is due."""
    directory = tmp_path / "run"
    words = ("--checkpoint.evaluate_episodes", "2", "--schedule", schedule)
    assert train(directory, "", *words) == 0
    assert run(["evaluate", str(directory), "--checkpoint", "best", "--episodes", "4"]) == 0
    assert json.loads((directory / "checkpoints" / "best.json").read_text())["checkpoint"] == 1


@pytest.mark.slow
def test_where_none_was_measured_the_newest_checkpoint_stands_in(tmp_path, capsys):
    directory = tmp_path / "run"
    assert train(directory, "", "--run.evaluate_episodes", "0") == 0
    assert run(["evaluate", str(directory), "--checkpoint", "best", "--episodes", "4"]) == 0
    said = capsys.readouterr()
    assert "no checkpoint was evaluated" in said.err
    assert "checkpoint 1" in said.err


@pytest.mark.slow
def test_greedy_play_computes_in_one_thread(tmp_path, monkeypatch):
    """Two threads of a process fight where the machine is busy: it took seven times as long."""
    import torch

    from remuda.actor.actor import Actor

    seen, turn = set(), Actor.turn

    def counted(self):
        seen.add(torch.get_num_threads())
        turn(self)

    assert train(tmp_path / "run", "") == 0
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(Actor, "turn", counted)
    try:
        assert run(["evaluate", str(tmp_path / "run"), "--episodes", "3"]) == 0
        assert run(["watch", str(tmp_path / "run")]) == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {1}


JUDGED = ("--checkpoint.evaluate_episodes", "5", "--run.evaluate_episodes", "7")


def duel(directory, fault, *words):
    """Train, and go on: the last checkpoint then plays against the best so far, with `fault`."""
    game = ("endings:Duel", "--env.options.fault", fault)
    assert run(["train", *game, *SMALL, *JUDGED, "--run.directory", str(directory)]) == 0
    assert best_of(directory) == 1
    return run(["train", "--resume", str(directory), "--run.turns", "800", *words])


def best_of(directory):
    return json.loads((directory / "checkpoints" / "best.json").read_text())["checkpoint"]


def whole(directory, said):
    """Whether everything that came of a run is there, but for what judging adds."""
    assert "greedy return" in said.out.split("resumes from checkpoint")[1]
    assert "Traceback" not in said.out + said.err
    assert (directory / "report.html").exists()
    summary = summary_of(directory)
    return summary["evaluation"]["episodes"] == 7 and summary["finished"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_while_the_last_checkpoint_is_judged_loses_nothing(name, tmp_path, capsys):
    directory = tmp_path / "run"
    assert duel(directory, name) == 128 + getattr(signal, name)
    said = capsys.readouterr()
    assert whole(directory, said)
    note = (
        "the last checkpoint was not compared with the best so far: the comparison was interrupted"
    )
    assert f"note: {note}" in said.out
    assert note in (directory / "report.html").read_text()
    assert best_of(directory) == 1


@pytest.mark.slow
def test_a_game_that_raises_while_the_last_checkpoint_is_judged_costs_that(tmp_path, capsys):
    directory = tmp_path / "run"
    assert duel(directory, "raise") == 0
    said = capsys.readouterr()
    assert whole(directory, said)
    assert "note: the last checkpoint was not compared with the best so far: Run" in said.out
    assert "the game broke" in (directory / "logs" / "coordinator.log").read_text()
    assert best_of(directory) == 1


@pytest.mark.slow
def test_judging_ends_with_the_time_that_greedy_play_left(tmp_path, monkeypatch, capsys):
    """Where the time is up between two episodes, those that are over decide nothing."""
    directory, clock = tmp_path / "run", time.monotonic
    monkeypatch.setattr(Duel, "skipped", 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + Duel.skipped)
    assert duel(directory, "slow", "--run.evaluate_seconds", "1000") == 0
    said = capsys.readouterr()
    assert whole(directory, said)
    assert "note: the last checkpoint was not compared with the best so far: run.eval" in said.out
    assert best_of(directory) == 1
    assert 1000 <= Duel.skipped < 1300, "it went on"


@pytest.mark.slow
def test_results_come_before_judging(tmp_path, monkeypatch, capsys):
    seen = []

    def late(*_, **__):
        seen.append(capsys.readouterr().out)
        seen.append(summary_of(tmp_path / "run")["evaluation"]["episodes"])
        return 1.0

    monkeypatch.setattr("remuda.coordinator.best_checkpoint.margin", late)
    assert duel(tmp_path / "run", "") == 0
    assert "greedy return" in seen[0].split("resumes from checkpoint")[1]
    assert seen[1] == 7
    assert best_of(tmp_path / "run") == 2
