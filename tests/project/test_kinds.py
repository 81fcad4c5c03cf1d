"""A test of another kind than its marker says is found."""

import os
import subprocess
import sys

import pytest

import kinds

pytestmark = pytest.mark.process


def started(action):
    found = []
    with pytest.MonkeyPatch.context() as patch:
        kinds.watch(patch, found.append)
        action()
    return found


def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def test_what_starts_a_process_is_found():
    program = started(lambda: subprocess.run([sys.executable, "-c", ""], check=True))
    assert program == [f"the program {os.path.basename(sys.executable)}"]
    assert started(fork) == ["a fork of itself"]


def test_programs_of_libraries_do_not_count():
    assert started(lambda: subprocess.run(["true"], check=True)) == []


def test_afterwards_nothing_is_watched():
    before = os.fork, subprocess.Popen.__init__
    started(lambda: None)
    assert before == (os.fork, subprocess.Popen.__init__)
