"""Named pipes in place of a run's files: nothing that reads runs waits for a writer."""

import os
import shutil
import signal

import numpy as np
import pytest

from remuda.analysis.payoffs.ledger_reader import LedgerReader
from remuda.analysis.payoffs.ledger_seats import LedgerSeats
from remuda.coordinator.loggers import IDS, known_id
from remuda.coordinator.recent_payoffs import RecentPayoffs
from remuda.coordinator.requests import FOLDER, Requests
from remuda.errors import RemudaError
from remuda.evaluation.tournaments.record import (
    DESCRIPTION,
    WEIGHTS,
    kept_weights,
    read_description,
)
from remuda.evaluation.tournaments.rounds import read_rounds
from remuda.population.ledger.ledger import LedgerFile, copy_later, read_records, record_type
from remuda.population.ledger.lineage import read_lineage
from remuda.runs.run_directory import RunDirectory
from remuda.runtime.child import last_line
from remuda.solvers.psro.record import read as read_double_oracle
from remuda.system.checkpoint.state import save_tensors
from remuda.system.loading import read_beside
from remuda.ui.cli.main import run
from remuda.ui.cli.seeds import SEEDS, Seeds
from remuda.ui.dashboard.catalogue import Catalogue
from remuda.ui.reports.html import with_pictures

NAMES = (
    *("status.json", "config.yaml", "summary.json", "lock", "metrics.jsonl", "ledger.bin"),
    *("changes.jsonl", "code-paths.json", "requests/1.request", "weights/agent_0.safetensors"),
    *("logs/actor.log", "checkpoints/000001/manifest.json", "checkpoints/best.json"),
)
LIMIT = 60
"""Seconds after which a reader hangs."""


@pytest.fixture(autouse=True)
def limited(tmp_path, monkeypatch):
    """A reader that waits is stopped by an exception that none of them catches."""
    monkeypatch.chdir(tmp_path)  # where a comparison is written

    class HangError(BaseException):
        pass

    def hang(*_):
        raise HangError("it waits for a writer")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("pipes") / "run"
    words = ["rock_paper_scissors", "--schedule", "sequential", "--run.turns", "50"]
    words += ["--run.live", "false", "--run.evaluate_episodes", "0", "--run.directory", str(path)]
    assert run(["train", *words]) == 0
    return path


def pipe(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def ends_in_a_line(capsys, *words):
    capsys.readouterr()
    code = run(words)
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err, words
    assert code == 0 or said.err.count("\n") == 1, (words, said.err)


@pytest.mark.slow_cases("status.json")
@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_in_a_run_holds_up_no_look_at_it(name, finished, tmp_path, capsys):
    directory = tmp_path / "runs" / "piped"
    shutil.copytree(finished, directory)
    pipe(directory / name)
    ends_in_a_line(capsys, "runs", str(tmp_path / "runs"))
    ends_in_a_line(capsys, "status", str(directory))
    Catalogue(tmp_path / "runs").scan()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_in_a_run_holds_up_neither_its_resume_nor_its_pages(
    name, finished, tmp_path, capsys
):
    directory = tmp_path / "piped"
    shutil.copytree(finished, directory)
    pipe(directory / name)
    ends_in_a_line(capsys, "report", str(directory))
    ends_in_a_line(capsys, "compare", str(directory), str(finished))
    ends_in_a_line(capsys, "train", "--resume", str(directory))


def refused(read, *arguments):
    """Read a pipe; returns what comes of it, None: it is refused."""
    try:
        return read(*arguments)
    except (OSError, RemudaError):
        return None


def test_no_reader_of_a_file_waits_for_a_writer(tmp_path):
    """Red before: most of them waited for ever."""
    path = pipe(tmp_path / "ledger.bin")
    for read in (LedgerReader.open, read_records, read_lineage, read_rounds):
        assert refused(read, path) is None
    refused(copy_later, path, 0, tmp_path / "later")
    ledger = refused(LedgerFile, path, ("a", "b"), 2)
    if ledger is not None:
        assert refused(ledger.append, np.zeros(1, record_type(2))) is None
        assert refused(ledger.rewind, 0) is None
    RecentPayoffs(path, LedgerSeats((0, 1), (0, 1))).read()
    for name in (DESCRIPTION, WEIGHTS, SEEDS, IDS, "psro.jsonl", "code-paths.json", "a.png"):
        pipe(tmp_path / name)
    assert refused(read_description, tmp_path) is None
    assert kept_weights(tmp_path) == {}
    assert refused(Seeds.open, tmp_path, {}) is None
    assert known_id(tmp_path, "wandb") is None
    assert refused(read_double_oracle, tmp_path) is None
    read_beside(tmp_path / "config.yaml", {})
    assert with_pictures('<img src="a.png">', tmp_path) == '<img src="a.png">'
    assert last_line(pipe(tmp_path / "actor.log")) == "its log cannot be read"


def test_weights_are_what_was_saved(tmp_path):
    files = RunDirectory(tmp_path)
    files.weights.mkdir()
    files.save_weights("a", {"x": np.ones((2, 3), np.float32)}, {"policies": "a"})
    arrays, facts = files.load_weights("a")
    assert facts == {"policies": "a"}
    np.testing.assert_array_equal(arrays["x"], np.ones((2, 3)))
    (files.weights / "a.safetensors").write_bytes(save_tensors({}, {})[:5])
    assert refused(files.load_weights, "a") is None


def test_a_coordinator_takes_no_request_from_a_pipe(tmp_path):
    said = []
    requests = Requests(tmp_path, None, said.append)
    pipe(tmp_path / FOLDER / "1.request")
    requests.poll()
    requests.close()
