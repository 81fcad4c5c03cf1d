"""The log of the process that runs a run, where another person's run has something else."""

import logging
import os

import pytest

from remuda.coordinator.logs import log_to


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_log_that_is_no_file_costs_the_log_alone(kind, tmp_path, capsys):
    """Red before: a pipe was waited for, and a link led out of the run."""
    path, other = tmp_path / "coordinator.log", tmp_path / "other"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(other)
    with log_to(path):
        logging.getLogger("remuda").info("something")
    assert not other.exists()
    assert capsys.readouterr() == ("", "")


def test_lines_are_appended(tmp_path):
    path = tmp_path / "logs" / "coordinator.log"
    for word in ("one", "two"):
        with log_to(path):
            logging.getLogger("remuda").info(word)
    assert [line.split()[-1] for line in path.read_text().splitlines()] == ["one", "two"]
