"""Runs whose population is analysed meanwhile: what they tell of it, and who ends with whom."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from faults.runs import QUICK, Terminal, lives, wait_until_gone
from remuda.coordinator.status import read_status
from remuda.runs.metrics import read_metrics
from remuda.ui.cli.main import run
from remuda.ui.reports.summary import read_run

pytestmark = pytest.mark.process

POPULATION = (
    *("--game", "connect_four", "--policy.algorithm", "dqn", "--env.num_envs", "8"),
    *("--population.matchmaker", "random", "--population.policies", "3"),
    *("--population.snapshots.every", "50", "--population.snapshots.keep", "2"),
    *("--analysis.every", "0.3"),
)


def train(directory, log, *words):
    return Terminal(log, "train", "--run.directory", str(directory), *QUICK, *POPULATION, *words)


def helpers(terminal):
    """The process ids of the helpers of a run."""
    return [
        child.pid
        for child in psutil.Process(terminal.process.pid).children(recursive=True)
        if lives(child.pid) and name_of(child.pid) == "rm:analysis"
    ]


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def last_record(directory):
    path = directory / "metrics.jsonl"
    records = list(read_metrics(path)) if path.exists() and path.stat().st_size else []
    return records[-1] if records else None  # the first line may be half written


def has_analysis(directory):
    def found():
        record = last_record(directory)
        return record is not None and record.population["nash_support"] is not None

    return found


def read_population(directory):
    """What the status says of the population, which is written after the metrics."""
    return read_status(directory / "status.json").get("population") or {}


@pytest.mark.slow_cases("async")
@pytest.mark.parametrize("schedule", ["async", pytest.param("sequential", marks=pytest.mark.slow)])
def test_a_run_tells_of_its_population_and_ends_in_order(schedule, tmp_path, capsys):
    directory = tmp_path / "run"
    with train(directory, tmp_path / "said", "--schedule", schedule) as terminal:
        terminal.until(has_analysis(directory))
        (pid,) = helpers(terminal)
        os.kill(pid, signal.SIGKILL)
        terminal.until(lambda: [p for p in helpers(terminal) if p != pid])
        pids = [child.pid for child in terminal.children()]
        terminal.until(lambda: read_population(directory).get("nash_support"))
        status = read_status(directory / "status.json")
        assert run(["status", str(directory)]) == 0
        os.killpg(terminal.process.pid, signal.SIGINT)
        assert terminal.wait() == 130
        wait_until_gone(pids, 30.0)
        said = terminal.said
    assert "Traceback" not in said
    assert said.count("the process that analyses the population died") == 1
    shown = capsys.readouterr().out
    assert "equilibrium" in shown
    assert status["population"]["matches"] > 0
    told = [r.population for r in read_run(directory).records if r.population["nash_support"]]
    assert 1 <= told[-1]["nash_support"] <= told[-1]["analysed"] <= 9
    assert json.loads((directory / "summary.json").read_text())["population"]["analysed"] >= 2
    columns = set(read_columns(directory))
    assert {"population/fitness_best", "population/nash_entropy", "policy_0/nash"} <= columns
    log = (directory / "logs" / "analysis.log").read_text()
    assert "Traceback" not in log


def read_columns(directory):
    """The tags of TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(directory / "tensorboard"))
    found.Reload()
    return found.Tags()["scalars"]


@pytest.mark.slow
def test_a_helper_that_is_stopped_ends_with_a_coordinator_that_is_killed(tmp_path):
    directory = tmp_path / "run"
    with train(directory, tmp_path / "said") as terminal:
        terminal.until(has_analysis(directory))
        (pid,) = helpers(terminal)
        os.kill(pid, signal.SIGSTOP)
        turns = last_record(directory).turns
        terminal.until(lambda: last_record(directory).turns > turns)  # it is not waited for
        pids = [*(child.pid for child in terminal.children()), pid]
        terminal.process.kill()
        terminal.process.wait(60)
        wait_until_gone(pids, 30.0)
