"""Which tests are left to CI, by how long they took."""

import durations

SECONDS = {
    "a.py::test_x[1]": 5.0,
    "a.py::test_x[2]": 4.0,
    "a.py::test_y": 9.0,
    "b.py::test_x[1]": 1.0,
    "b.py::test_x[2]": 1.5,
}


def test_the_longest_go_first_and_of_each_test_the_quickest_case_stays_longer():
    assert durations.choose(SECONDS, 100.0) == []
    assert durations.choose(SECONDS, 16.0) == ["a.py::test_x[1]"]
    assert durations.choose(SECONDS, 12.0) == ["a.py::test_x[1]", "a.py::test_y"]
    assert durations.choose(SECONDS, 5.0) == [
        "a.py::test_x[1]",
        "a.py::test_y",
        "b.py::test_x[2]",
    ]
    assert durations.choose(SECONDS, 0.0) == sorted(SECONDS)


def test_the_list_names_tests_of_files_that_are_there():
    names = durations.listed()
    root = durations.LIST.parent.parent
    for name in names:
        file, _, test = name.partition("::")
        function = test.split("[")[0].split("::")[-1]
        assert f"def {function}(" in (root / file).read_text(), f"{name}: choose anew"


def test_what_was_chosen_before_stays_where_more_are(tmp_path, monkeypatch):
    monkeypatch.setattr(durations, "LIST", tmp_path / "slow.txt")
    durations.LIST.write_text("c.py::test_z\n")
    recorder = durations.Recorder(12.0, durations.listed())
    recorder.seconds = dict(SECONDS)
    recorder.pytest_sessionfinish(None, 0)
    assert durations.listed() == {"c.py::test_z", "a.py::test_x[1]", "a.py::test_y"}
