"""Stopping: a signal ends a run in order, a second one at once, and the run can be resumed."""

import json
import os
import shutil
import signal
import time

import pytest

from faults.runs import QUICK, Terminal, wait_until_gone
from remuda.runs.metrics import read_metrics
from remuda.system.checkpoint.store import Checkpoints
from remuda.ui.cli.main import run


def train(directory, log, *words):
    return Terminal(log, "train", "--run.directory", str(directory), *QUICK, *words)


def has_checkpoints(directory, count):
    return lambda: len(Checkpoints(directory / "checkpoints").numbers()) >= count


@pytest.mark.process
@pytest.mark.slow_cases("2-130-async")
@pytest.mark.parametrize(
    ("number", "code", "schedule"),
    [
        (signal.SIGINT, 130, "async"),
        pytest.param(signal.SIGTERM, 143, "sequential", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "async", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, "sequential", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_the_run_in_order(number, code, schedule, tmp_path):
    directory = tmp_path / "run"
    with train(directory, tmp_path / "said", "--schedule", schedule) as terminal:
        terminal.until(has_checkpoints(directory, 1))
        pids = [child.pid for child in terminal.children()]
        assert bool(pids) == (schedule == "async")
        before = Checkpoints(directory / "checkpoints").numbers()[-1]
        os.kill(terminal.process.pid, number)
        assert terminal.wait() == code
        wait_until_gone(pids, 0.0)
        said = terminal.said
    assert f"stopped by {number.name}; continue with: remuda train --resume {directory}" in said
    assert "Traceback" not in said
    store = Checkpoints(directory / "checkpoints")
    assert store.numbers()[-1] > before
    last = list(read_metrics(directory / "metrics.jsonl"))[-1]
    assert store.verify(store.numbers()[-1]).turns == last.turns
    assert (directory / "report.html").exists()
    assert not json.loads((directory / "summary.json").read_text())["finished"]


@pytest.mark.slow
def test_a_second_signal_ends_the_run_at_once(tmp_path):
    directory = tmp_path / "run"
    with train(directory, tmp_path / "said", "--run.stop_limit", "200") as terminal:
        terminal.until(has_checkpoints(directory, 1))
        pids = [child.pid for child in terminal.children()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # so that the first signal would take a while
        os.kill(terminal.process.pid, signal.SIGINT)
        time.sleep(0.5)
        assert terminal.process.poll() is None
        began = time.monotonic()
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.wait() == 128 + signal.SIGINT
        wait_until_gone(pids, 30.0)
        assert time.monotonic() - began < 100.0


@pytest.mark.process
@pytest.mark.slow_cases("2.4")
@pytest.mark.parametrize(
    "moment",
    [pytest.param(0.3 * i, marks=() if i in (1, 8) else pytest.mark.slow) for i in range(1, 16)],
)
def test_ctrl_c_while_it_starts_shows_no_traceback(moment, tmp_path):
    """Ctrl-C goes to every process of the terminal at once, ready or not."""
    with train(tmp_path / "run", tmp_path / "said", "--learners.processes", "2") as terminal:
        time.sleep(moment)
        pids = [child.pid for child in terminal.children()]
        os.killpg(terminal.process.pid, signal.SIGINT)
        assert terminal.wait() in (130, -signal.SIGINT), terminal.said
        wait_until_gone(pids, 30.0)
        # On a busy machine Ctrl-C may come before Python has run a line of Remuda.
        assert "Traceback" not in terminal.said or "remuda/" not in terminal.said


@pytest.mark.process
@pytest.mark.slow  # tests/faults/test_supervision.py spends a budget too
def test_a_spent_budget_keeps_what_was_learned(tmp_path):
    directory = tmp_path / "run"
    words = ("--supervision.restarts", "0")
    with train(directory, tmp_path / "said", *words) as terminal:
        terminal.until(has_checkpoints(directory, 1))
        pids = [child.pid for child in terminal.children()]
        (victim,) = [r for r in read_status(directory)["roles"] if r["name"] == "learner-agent_1"]
        before = Checkpoints(directory / "checkpoints").numbers()[-1]
        os.kill(victim["pid"], signal.SIGKILL)
        assert terminal.wait() == 1
        wait_until_gone(pids, 0.0)
        said = terminal.said
    last_line = said.splitlines()[-1]
    assert last_line.startswith("remuda: the process learner-agent_1 was killed by SIGKILL")
    assert "supervision.restarts" in last_line
    assert f"remuda train --resume {directory}" in last_line
    assert "Traceback" not in said
    store = Checkpoints(directory / "checkpoints")
    assert store.numbers()[-1] > before
    assert run(["evaluate", str(directory), "--episodes", "2"]) == 0
    words = ["train", "--resume", str(directory), "--run.turns"]
    turns = store.verify(store.numbers()[-1]).turns
    assert run([*words, str(turns + 2000)]) == 0


def read_status(directory):
    return json.loads((directory / "status.json").read_text())


@pytest.mark.slow
def test_a_killed_run_can_be_looked_at(tmp_path, capsys):
    directory = tmp_path / "run"
    words = ("--checkpoint.evaluate_episodes", "2")
    with train(directory, tmp_path / "said", *words) as terminal:
        best = directory / "checkpoints" / "best.json"
        terminal.until(best.exists)
        terminal.process.kill()
        terminal.process.wait(60)
    for checkpoint in ("final", "best"):
        flags = ["--episodes", "2", "--checkpoint", checkpoint]
        assert run(["evaluate", str(directory), *flags]) == 0
        assert "greedy episodes" in capsys.readouterr().out
    assert run(["evaluate", str(directory), "--checkpoint", "999"]) == 1
    assert "has no checkpoint 999; it has" in capsys.readouterr().err


def can_go_on(directory):
    """Whether a run has a checkpoint; what is left of one that has none is removed."""
    if Checkpoints(directory / "checkpoints").numbers():
        return True
    shutil.rmtree(directory, ignore_errors=True)
    return False


def resume_after_kills(tmp_path, kills, turns, moment):
    """Kill the coordinator so many times, each once its moment has come, and let it finish."""
    directory = tmp_path / "run"
    pids: set[int] = set()
    last = 0
    for _ in range(kills):
        words = ["--resume", str(directory)] if can_go_on(directory) else []
        if words:
            terminal = Terminal(tmp_path / "said", "train", *words, "--run.turns", str(turns))
        else:
            terminal = train(directory, tmp_path / "said", "--run.turns", str(turns))
        with terminal:
            terminal.until(moment(directory))
            pids |= {child.pid for child in terminal.children()}
            terminal.process.kill()
            terminal.process.wait(60)
        wait_until_gone(pids, 30.0)
        numbers = Checkpoints(directory / "checkpoints").numbers()
        if numbers:
            now = Checkpoints(directory / "checkpoints").verify(numbers[-1]).turns
            assert now >= last, "a kill cost more than the time since the last checkpoint"
            last = now
    words = ["--resume", str(directory)]
    if not can_go_on(directory):
        words = ["--run.directory", str(directory), *QUICK]
    log = tmp_path / "said"
    with Terminal(log, "train", *words, "--run.turns", str(last + 5_000)) as terminal:
        assert terminal.wait(300) == 0, terminal.said
        assert "Traceback" not in terminal.said
    turns_told = [record.turns for record in read_metrics(directory / "metrics.jsonl")]
    assert turns_told == sorted(turns_told)
    assert turns_told[-1] == last + 5_000
    assert json.loads((directory / "summary.json").read_text())["finished"]


@pytest.mark.slow
def test_a_run_goes_on_after_its_coordinator_was_killed(tmp_path):
    resume_after_kills(tmp_path, 1, 10**9, lambda directory: has_checkpoints(directory, 2))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_run_survives_twenty_kills_at_random_moments(tmp_path):
    import random

    moments = random.Random(0)

    def moment(_):
        end = time.monotonic() + moments.uniform(0.5, 12.0)
        return lambda: time.monotonic() >= end

    resume_after_kills(tmp_path, 20, 10**9, moment)


@pytest.mark.process
@pytest.mark.slow
def test_a_run_is_not_run_twice_at_once(tmp_path, capsys):
    directory = tmp_path / "run"
    with train(directory, tmp_path / "said") as terminal:
        terminal.until(has_checkpoints(directory, 1))
        assert run(["train", "--resume", str(directory)]) == 1
        assert "another process is running" in capsys.readouterr().err
        terminal.until(lambda: (directory / "status.json").exists())
        assert run(["status", str(directory)]) == 0
        shown = capsys.readouterr().out
        assert run(["status", str(directory), "--json"]) == 0
        status = json.loads(capsys.readouterr().out)
    for word in ("running", "learner-agent_0", "agent_1", "heartbeat", "updates"):
        assert word in shown
    assert status["running"]
    assert [role["name"] for role in status["roles"]] == [
        "actor",
        "learner-agent_0",
        "learner-agent_1",
    ]
    assert all(role["heartbeat_age"] < 30 for role in status["roles"])
    assert {"version", "slot", "updates", "replay_fill", "staleness"} <= set(
        status["policies"]["agent_0"]
    )
    assert run(["status", str(directory)]) == 0
    shown = capsys.readouterr().out
    assert "has died" in shown.replace("\n", " ")
    assert shown.count("ended") == len(status["roles"]), "no role of it is running any more"
