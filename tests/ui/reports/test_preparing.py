"""Child processes draw the picture and write the report; what breaks there costs only these."""

import json
import os
import signal
import time

import pytest

from remuda.runs.run_directory import RunDirectory
from remuda.system.processes import client as forkserver
from remuda.ui.cli.main import run
from remuda.ui.reports import run_end as preparing
from remuda.ui.reports.run_end import Preparation, make_report

SMALL = (
    *("--schedule", "sequential", "--env.num_envs", "2", "--run.turns", "200"),
    *("--policy.network.hidden", "8", "--policy.iqn.quantiles", "4"),
    *("--policy.batch_size", "16", "--policy.experience.learning_starts", "64"),
    *("--run.live", "false", "--checkpoint.evaluate_episodes", "0"),
)


@pytest.fixture
def directory(tmp_path):
    """A run that has ended, without its picture."""
    words = ("endings:Faulty", *SMALL, "--run.evaluate_episodes", "7")
    words += ("--env.options.fault", "later")
    assert run(["train", *words, "--run.directory", str(tmp_path / "run")]) == 0
    (tmp_path / "run" / "play.gif").unlink()
    return tmp_path / "run"


@pytest.fixture
def started(monkeypatch):
    """The children that were started."""
    found, start = [], forkserver.start

    def noted(*words, **how):
        found.append(start(*words, **how))
        return found[-1]

    monkeypatch.setattr(forkserver, "start", noted)
    return found


def prepared(directory, fault="none"):
    config = directory / "config.yaml"
    config.write_text(config.read_text().replace("fault: later", f"fault: {fault}"))
    forkserver.begin()
    preparation = Preparation()
    preparation.begin(RunDirectory.open(directory), True)
    preparation.end()
    return preparation


@pytest.mark.slow
def test_a_child_draws_it(directory, started):
    preparation = prepared(directory)
    assert len(started) == 2
    assert preparation.picture() == ""
    assert (directory / "play.gif").read_bytes().startswith(b"GIF")
    assert not (directory / "logs" / "picture.log").exists()


@pytest.mark.slow
def test_what_it_failed_by_is_told(directory):
    preparation = prepared(directory, "render")
    assert preparation.picture() == "OSError: no display"
    assert "Traceback" in (directory / "logs" / "picture.log").read_text()
    assert not (directory / "play.gif").exists()


@pytest.mark.process
@pytest.mark.slow
def test_a_game_that_takes_the_process_with_it_costs_the_picture(directory, capfd):
    """As native code of a game may do."""
    preparation = prepared(directory, "kill")
    assert preparation.picture() == "its process was killed by SIGKILL"


@pytest.mark.slow
def test_one_that_never_ends_is_not_waited_for(directory, started, monkeypatch):
    monkeypatch.setattr(preparing, "LIMIT", 0.5)
    preparation = prepared(directory, "hang")
    process = started[0]
    while process.pid is None:
        process.join(0.01)
    pid = process.pid
    assert "more than" in preparation.picture()
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.slow
def test_without_a_server_nobody_has_tried(directory):
    forkserver.end()
    preparation = Preparation()
    preparation.begin(RunDirectory.open(directory), True)
    preparation.end()
    assert preparation.picture() is None


@pytest.mark.slow
def test_a_run_in_processes_has_its_picture_from_a_child(tmp_path, capsys):
    words = ("--schedule", "async", "--run.evaluate_episodes", "7", "--env.options.fault", "render")
    where = tmp_path / "run"
    assert run(["train", "endings:Faulty", *SMALL, *words, "--run.directory", str(where)]) == 0
    said = capsys.readouterr()
    assert "note: no picture: OSError: no display" in said.out
    assert "Traceback" not in said.out + said.err
    assert "no display" in (where / "logs" / "picture.log").read_text()
    assert json.loads((where / "summary.json").read_text())["evaluation"]["episodes"] == 7
    assert (where / "report.html").exists()


class Refused:
    exitcode, failure, was_lost = 255, "Resource temporarily unavailable", False

    def join(self, _):
        return True

    def close(self):
        pass

    kill = close


@pytest.mark.slow
def test_where_the_system_refuses_a_process_nobody_has_tried(directory, monkeypatch):
    asked = []
    monkeypatch.setattr(forkserver, "start", lambda *_, **__: asked.append(1) or Refused())
    assert prepared(directory).picture() is None
    assert asked


@pytest.fixture
def without_report(directory):
    (directory / "report.html").unlink()
    forkserver.begin()
    preparation = Preparation()
    preparation.begin(RunDirectory.open(directory), False)
    yield preparation
    preparation.end()


@pytest.mark.process
@pytest.mark.slow
def test_a_child_writes_the_report_once_it_may(directory, without_report, started):
    page = directory / "report.html"
    time.sleep(0.5)
    assert not page.exists()
    assert without_report.report()
    assert page.exists()
    assert not (directory / "logs" / "report.log").exists()
    assert not without_report.report()  # it is written once


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["killed", "damaged"])
def test_a_report_that_the_child_does_not_write_is_written_here(
    directory, without_report, fault, capsys
):
    process = without_report._writing[0]
    if fault == "killed":
        while process.pid is None:
            process.join(0.01)
        os.kill(process.pid, signal.SIGKILL)
        assert make_report(RunDirectory.open(directory), without_report) == []
        assert (directory / "report.html").exists()
        return
    found = RunDirectory.open(directory)
    found.config.unlink()
    notes = make_report(found, without_report)
    assert any(note.startswith("no report: ") for note in notes)


@pytest.mark.process
@pytest.mark.slow
def test_a_child_that_nobody_needs_is_ended(directory, without_report):
    process = without_report._writing[0]
    while process.pid is None:
        process.join(0.01)
    pid = process.pid
    without_report.end()
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "expected"), [(signal.SIGCONT, ""), (signal.SIGKILL, None)], ids=["drawn", "not drawn"]
)
def test_a_server_that_dies_meanwhile_takes_nothing_from_the_picture(
    directory, then, expected, started
):
    """None tells how the child ended: by the picture it is known whether it drew one."""
    preparation = prepared(directory, "stop")
    process = started[0]
    while process.pid is None or state_of(process.pid) != "T":
        assert not process.join(0.01)
    os.kill(forkserver.server_pid(), signal.SIGKILL)
    os.kill(process.pid, then)
    found = preparation.picture()
    assert found == expected
    assert (found == "") == RunDirectory.open(directory).recording.exists()


def state_of(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]
