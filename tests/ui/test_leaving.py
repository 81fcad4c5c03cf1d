"""The program's end: quick, and nothing is left undone."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, threading, time
from remuda.ui.leaving import leave

class Slow:
    def __del__(self):
        print("taken apart")

def later():
    time.sleep(0.2)
    print("thread")

held = Slow()
atexit.register(print, "registered")
threading.Thread(target=later).start()
print("told", end=" ")
{code}
"""


def run(code, **options):
    words = [sys.executable, "-c", PROGRAM.format(code=code)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    environment = os.environ | {"PYTHONUNBUFFERED": ""}
    return subprocess.run(words, text=True, env=environment, **options)


@pytest.mark.parametrize(
    ("code", "expected"), [("None", 0), ("0", 0), ("3", 3), ("True", 1), ("'no such game'", 1)]
)
def test_it_ends_with_the_code_and_what_was_registered(code, expected):
    ended = run(f"leave({code})")
    assert ended.returncode == expected
    assert ended.stdout == "told thread\nregistered\n", "and nothing is taken apart"
    assert ended.stderr == ("no such game\n" if "game" in code else "")


def test_output_that_nobody_takes_is_a_failure():
    with open("/dev/full", "w") as full:
        assert run("leave(0)", stdout=full).returncode == 120


@pytest.mark.parametrize("before", ["pass", "import gc; gc.freeze()"])
def test_what_a_game_wrote_to_a_file_that_it_holds_open_is_there(before, tmp_path):
    file = tmp_path / "moves.txt"
    assert (
        run(f"moves = open({str(file)!r}, 'w'); moves.write('up'); {before}; leave(0)").stderr == ""
    )
    assert file.read_text() == "up"


def test_a_program_without_an_output_ends_well():
    words = [sys.executable, "-m", "remuda", "--version"]
    assert subprocess.run(words, preexec_fn=lambda: os.close(1)).returncode == 0
