"""A kept kernel is compiled again when anything that it was made from has changed."""

import os
import subprocess
import sys

import pytest

KERNEL = """
from remuda.system.kernels import njit
import parts
from parts import FIELD, OPTIONS, TABLE, Pair, Pairs, inner, values

@njit(cache=True, **OPTIONS)
def outer(x, pair, nested):
    total = inner(x) * 10_000 + FIELD * 1_000 + parts.SCALE * 100 + TABLE[1][0] * 10
    total += pair.first + nested[0].first * 100_000
    if Pair(1, 2).first == 2:
        total += 1_000_000
    for value in values:
        total += value
    return total
"""
PARTS = """
from typing import NamedTuple
from remuda.system.kernels import njit
from deeper import deepest

FIELD = 1
SCALE = 2
TABLE = ((0,), (3, 3))
OPTIONS = {}
values = (0.0, 0.0)

class Pair(NamedTuple):
    first: float
    second: float

class Pairs(NamedTuple):
    first: float
    second: float

@njit(cache=True)
def inner(x):
    return deepest(x)
"""
DEEPER = """
from remuda.system.kernels import njit

@njit(inline="always")
def deepest(x):
    return x
"""
RUN = """
from kernel import outer
from parts import Pair, Pairs
print(outer(1.0, Pair(first=4.0, second=5.0), (Pairs(first=0.0, second=1.0),)))
print(sum(outer.stats.cache_hits.values()))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    # Bytecode is found by a file's size and second: an edit that changes neither would not count.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for name, text in {"kernel": KERNEL, "parts": PARTS, "deeper": DEEPER}.items():
        (tmp_path / f"{name}.py").write_text(text)

    def start(**environment):
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | environment,
        )
        assert done.returncode == 0, done.stderr
        value, hits = done.stdout.split()
        return float(value), int(hits)

    return start


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "value"),
    [
        ("deeper", "return x", "return x + 1", 21_234.0),
        ("parts", "return deepest(x)", "return deepest(x) * 3", 31_234.0),
        ("parts", "FIELD = 1", "FIELD = 7", 17_234.0),
        ("parts", "SCALE = 2", "SCALE = 8", 11_834.0),
        ("parts", "(3, 3)", "(9, 3)", 11_294.0),
        ("parts", "(0.0, 0.0)", "(0.5, 0.0)", 11_234.5),
        (
            "parts",
            "    first: float\n    second: float\n\nclass Pairs",
            "    second: float\n    first: float\n\nclass Pairs",
            1_011_234.0,
        ),
        (
            "parts",
            "    first: float\n    second: float\n\n@njit",
            "    second: float\n    first: float\n\n@njit",
            11_234.0,
        ),
    ],
    ids=["inlined", "called", "constant", "attribute", "table", "tuple", "made", "passed"],
)
def test_a_kernel_is_compiled_again_when_what_it_refers_to_changes(
    run, tmp_path, file, old, new, value
):
    assert run() == (11_234.0, 0)
    assert run() == (11_234.0, 1)
    path = tmp_path / f"{file}.py"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    assert run() == (value, 0)
    assert run() == (value, 1)


@pytest.mark.process
@pytest.mark.slow
def test_a_kernel_is_compiled_again_with_other_options(run, tmp_path):
    assert run()[1] == 0
    path = tmp_path / "parts.py"
    path.write_text(path.read_text().replace("OPTIONS = {}", "OPTIONS = {'fastmath': True}"))
    assert [run()[1], run()[1]] == [0, 1]


@pytest.mark.process
@pytest.mark.slow
def test_the_order_of_sets_makes_no_difference(run, tmp_path, monkeypatch):
    path = tmp_path / "parts.py"
    options = "OPTIONS = {'fastmath': {'reassoc', 'contract', 'nsz', 'arcp'}}"
    path.write_text(path.read_text().replace("OPTIONS = {}", options))
    hits = []
    for seed in range(4):
        monkeypatch.setenv("PYTHONHASHSEED", str(seed))
        hits.append(run()[1])
    assert hits == [0, 1, 1, 1]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("file", ["kernel", "parts", "deeper"])
def test_what_is_compiled_after_an_edit_is_kept_as_what_it_was_made_from(run, tmp_path, file):
    """A long run goes on with the functions that it imported, while the user edits their files."""
    path = tmp_path / f"{file}.py"
    old, new = {
        "kernel": ("inner(x) * 10_000", "inner(x) * 20_000"),
        "parts": ("return deepest(x)", "return deepest(x) * 2"),
        "deeper": ("return x", "return x + 1"),
    }[file]
    edit = f"import kernel\nopen({str(path)!r}, 'w').write({path.read_text().replace(old, new)!r})"
    done = subprocess.run(
        [sys.executable, "-c", edit + RUN], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(done.stdout.split()[0]) == 11_234.0
    assert run() == (21_234.0, 0)


@pytest.mark.slow
def test_a_damaged_file_is_compiled_again(run, tmp_path):
    run()
    for path in tmp_path.glob("__pycache__/kernel.outer*"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert run() == (11_234.0, 0)
    assert run() == (11_234.0, 1)


@pytest.mark.slow
def test_files_of_older_versions_are_removed(run, tmp_path):
    def files():
        return sorted(p.name for p in tmp_path.glob("__pycache__/kernel.outer*.nbc"))

    run()
    before = files()
    path = tmp_path / "parts.py"
    path.write_text(path.read_text().replace("FIELD = 1", "FIELD = 2"))
    run()
    after = files()
    assert len(before) == len(after) == 1
    assert before != after


@pytest.mark.slow
def test_many_processes_that_compile_at_once_spoil_nothing(run, tmp_path):
    command = [sys.executable, "-c", RUN]
    others = [
        subprocess.Popen(
            [*command[:2], RUN.replace("outer(1.0", f"outer({kind}")],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for kind in ("1", "1.0", "True", "1.0", "1")
    ]
    told = [process.communicate()[0].split() for process in others]
    assert [float(words[0]) for words in told] == [11_234.0] * 5
    for kind in ("1", "1.0", "True", "1.0"):
        done = subprocess.run(
            [*command[:2], RUN.replace("outer(1.0", f"outer({kind}")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert float(done.stdout.split()[0]) == 11_234.0


@pytest.mark.slow
def test_kernels_with_bounds_checks_are_kept_beside_those_without(run):
    """Red before: NUMBA_BOUNDSCHECK=1 loaded what had been compiled without checks."""
    checked = {"NUMBA_BOUNDSCHECK": "1"}
    assert [run(), run(**checked), run(), run(**checked)] == [
        (11_234.0, 0),
        (11_234.0, 0),
        (11_234.0, 1),
        (11_234.0, 1),
    ]


def test_each_kind_of_processor_keeps_files_of_its_own(tmp_path, monkeypatch):
    """Red before: on a shared installation two kinds removed each other's files."""
    from remuda.system import kernels

    def files_of(processor):
        kernels.machine.cache_clear()
        monkeypatch.setattr(kernels.numba.config, "CPU_NAME", processor)
        kernel = kernels.njit(cache=True)(lambda x: x + 1)
        files = kernels.KernelFiles(kernel, str(tmp_path), "module.function-1.py311")
        files._source_stamp = processor  # what was compiled for it differs
        return files

    for processor in ("one", "other"):
        files_of(processor).save("key", processor)
    assert [files_of(each).load("key") for each in ("one", "other")] == ["one", "other"]
    kernels.machine.cache_clear()
