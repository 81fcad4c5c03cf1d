"""Which tests are left to CI, by how long they took."""

import durations

SECONDS = {
    "a.py::test_x[1]": 5.0,
    "a.py::test_x[2]": 4.0,
    "a.py::test_y": 9.0,
    "b.py::test_x[1]": 1.0,
    "b.py::test_x[2]": 1.5,
}


def test_further_cases_of_a_test_go_before_any_test_goes_whole():
    assert durations.choose(SECONDS, 100.0) == []
    assert durations.choose(SECONDS, 20.0) == ["a.py::test_x[1]"]
    assert durations.choose(SECONDS, 14.0) == ["a.py::test_x[1]", "b.py::test_x[2]"]
    assert durations.choose(SECONDS, 13.0) == [
        "a.py::test_x[1]",
        "a.py::test_y",
        "b.py::test_x[2]",
    ]


def test_the_list_names_tests_of_files_that_are_there():
    names = durations.listed()
    root = durations.LIST.parent.parent
    for name in names:
        file, _, test = name.partition("::")
        function = test.split("[")[0].split("::")[-1]
        assert f"def {function}(" in (root / file).read_text(), f"{name}: choose anew"
