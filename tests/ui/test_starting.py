"""Ctrl-C while libraries load."""

import subprocess
import sys

STUBBORN = """
import signal

try:
    signal.raise_signal(signal.SIGINT)
except BaseException:  # as some native libraries do
    pass
print("went on")
"""


def start(tmp_path, script):
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    # As in a terminal, whatever started the tests.
    begin = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"{begin}\nsys.path.insert(0, {str(tmp_path)!r})\n{script}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_it_ends_the_process_whatever_the_library_does(tmp_path):
    done = start(tmp_path, "from remuda.ui.starting import load; load('json', 'stubborn')")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "remuda: interrupted\n")


def test_afterwards_it_is_an_exception_again(tmp_path):
    script = """
import signal
from remuda.ui.starting import load
load("json")
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("caught")
"""
    assert start(tmp_path, script).stdout == "caught\n"


def test_it_holds_while_training_is_imported(tmp_path):
    script = """
import sys
from remuda.ui import cli
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            import stubborn
sys.meta_path.insert(0, Finder())
cli.main(["train", "--run.turns", "1"])
"""
    done = start(tmp_path, script)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "remuda: interrupted\n")
