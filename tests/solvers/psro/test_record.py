"""The record of a double oracle: what is written stays, and nothing else is read."""

import json
import os
import resource
import signal

import pytest

from refusals import refuses
from remuda.errors import RunDirectoryError
from remuda.solvers.psro import record as records
from remuda.solvers.psro.record import LINES, begin, description_of, go_on, read


def test_lines_come_back_as_they_were(tmp_path):
    line = {"numbers": [0.1, 1e-300, 1 / 3], "name": "ä", "nested": {"2": [None, True]}}
    with begin(tmp_path / "new", {"game": "kuhn_poker"}) as record:
        record.append(line)
        record.append({"last": 1})
    assert read(tmp_path / "new") == [
        {"psro": records.VERSION, "game": "kuhn_poker"},
        line,
        {"last": 1},
    ]
    with go_on(tmp_path / "new") as record:
        assert record.description == {"psro": records.VERSION, "game": "kuhn_poker"}
        record.append({"more": 2})
    assert read(tmp_path / "new")[1:] == [line, {"last": 1}, {"more": 2}]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_that_was_written_in_part_never_was(tmp_path, cut):
    with begin(tmp_path, {"game": "a"}) as record:
        record.append({"one": "1" * 60})
        record.append({"two": "2" * 60})
    path = tmp_path / LINES
    path.write_bytes(path.read_bytes()[:-cut])
    assert [list(line) for line in read(tmp_path)] == [["psro", "game"], ["one"]]
    with go_on(tmp_path) as record:
        record.append({"three": 3})
    assert [list(line) for line in read(tmp_path)[1:]] == [["one"], ["three"]]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_line_that_was_changed_is_refused(tmp_path):
    with begin(tmp_path, {"game": "a"}) as record:
        record.append({"value": 1.5})
        record.append({"value": 2.5})
    path = tmp_path / LINES
    path.write_text(path.read_text().replace("1.5", "1.7"))
    with refuses(RunDirectoryError):
        read(tmp_path)
    with refuses(RunDirectoryError), go_on(tmp_path):
        pass


def test_a_directory_is_for_one_process_at_a_time(tmp_path):
    with (
        begin(tmp_path, {"game": "a"}),
        refuses(RunDirectoryError),
        go_on(tmp_path),
    ):
        pass
    with go_on(tmp_path):
        pass


def test_what_lies_in_a_directory_is_left_as_it_is(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with refuses(RunDirectoryError), begin(tmp_path, {}):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]
    with begin(tmp_path / "new", {"game": "a"}):
        pass
    with refuses(RunDirectoryError), begin(tmp_path / "new", {}):
        pass


def test_a_directory_without_a_record_is_told(tmp_path):
    for directory in (tmp_path, tmp_path / "nowhere"):
        with refuses(RunDirectoryError):
            description_of(directory)


@pytest.mark.process
def test_what_was_appended_survives_a_kill(tmp_path):
    child = os.fork()
    if child == 0:
        with records.begin(tmp_path, {"game": "a"}) as record:
            record.append({"one": 1})
            os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert read(tmp_path)[1:] == [{"one": 1}]


@pytest.mark.process
def test_a_full_disk_is_one_clear_line_and_what_was_written_is_kept(tmp_path):
    child = os.fork()
    if child == 0:
        status = 1
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
        try:
            with begin(tmp_path, {"game": "a"}) as record:
                record.append({"one": 1})
                record.append({"two": "2" * 300})
        except RunDirectoryError as error:
            status = 0 if "earlier lines are kept" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read(tmp_path)[1:] == [{"one": 1}]
    with go_on(tmp_path) as record:
        record.append({"two": 2})
    assert read(tmp_path)[1:] == [{"one": 1}, {"two": 2}]


@pytest.mark.parametrize("name", ["lock", LINES])
def test_a_file_that_cannot_be_written_is_one_clear_line(tmp_path, name, monkeypatch):
    with begin(tmp_path / "was", {"game": "a"}):
        pass
    (tmp_path / "was" / name).rename(tmp_path / "away")
    (tmp_path / "was" / name).mkdir()
    if name == LINES:
        monkeypatch.setattr(records, "description_of", lambda directory: {})
    with (
        refuses(RunDirectoryError),
        go_on(tmp_path / "was"),
    ):
        pass


def test_a_file_of_that_name_that_is_none_of_ours_is_left_as_it_is(tmp_path):
    (tmp_path / LINES).write_text("notes of mine\n")
    with refuses(RunDirectoryError), begin(tmp_path, {"game": "a"}):
        pass
    assert (tmp_path / LINES).read_text() == "notes of mine\n"
