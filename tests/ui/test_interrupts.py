"""Ctrl-C in the program, sent at moments that a test can hold."""

import subprocess
import sys

import pytest

STUBBORN = """
import signal

def swallow():
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:  # as native libraries, callbacks and finalizers do
        pass
    print("went on")
"""

WHILE_TRAINING_IS_IMPORTED = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            stubborn.swallow()
sys.meta_path.insert(0, Finder())
"""

WHILE_THE_GAME_IS_MADE = """
from remuda.envs.treasure_hunt import TreasureHunt
TreasureHunt.__init__ = lambda *_, **__: stubborn.swallow()
"""

WHILE_THE_RUN_IS_SET_UP = """
from remuda.assembly import Assembly
Assembly.__init__ = lambda *_, **__: stubborn.swallow()
"""

BEFORE_THE_REPORT = """
from remuda.ui import report
report.write_report = lambda *_: stubborn.swallow()
"""


def start(tmp_path, script):
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    # As in a terminal, whatever started the tests.
    begin = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"{begin}\nsys.path.insert(0, {str(tmp_path)!r})\nimport stubborn\n{script}"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )


@pytest.mark.parametrize(
    "moment",
    [WHILE_TRAINING_IS_IMPORTED, WHILE_THE_GAME_IS_MADE, WHILE_THE_RUN_IS_SET_UP],
    ids=["libraries", "game", "setup"],
)
def test_ctrl_c_ends_the_process_whatever_swallows_exceptions(moment, tmp_path):
    script = f"""
{moment}
from remuda.__main__ import main
sys.argv[1:] = ["train", "--schedule", "sequential", "--run.turns", "1"]
main()
"""
    done = start(tmp_path, script)
    assert (done.returncode, done.stderr) == (130, "remuda: interrupted\n")
    assert "went on" not in done.stdout


def test_after_a_run_it_ends_at_once_again_and_the_run_is_whole(tmp_path):
    script = f"""
{BEFORE_THE_REPORT}
from remuda.__main__ import main
sys.argv[1:] = ["train", "--schedule", "sequential", "--run.turns", "1", "--run.directory", "run"]
main()
"""
    done = start(tmp_path, script)
    again = "its report can be made by: remuda report run"
    assert (done.returncode, done.stderr) == (130, f"remuda: interrupted; {again}\n")
    assert "greedy return" in done.stdout
    assert (tmp_path / "run" / "summary.json").exists()


def test_what_must_end_in_order_is_told_by_an_exception(tmp_path):
    script = """
from remuda.ui.interrupts import end_at_once, ends_in_order
end_at_once()
try:
    with ends_in_order():
        signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("put right")
signal.raise_signal(signal.SIGINT)
print("went on")
"""
    done = start(tmp_path, script)
    assert (done.returncode, done.stdout, done.stderr) == (
        130,
        "put right\n",
        "remuda: interrupted\n",
    )


def test_it_ends_in_the_middle_of_a_write_too(tmp_path):
    script = """
from remuda.ui.interrupts import end_at_once
end_at_once()
class Busy:
    def flush(self):
        raise RuntimeError("reentrant call inside <_io.BufferedWriter>")
sys.stdout = Busy()
signal.raise_signal(signal.SIGINT)
"""
    done = start(tmp_path, script)
    assert (done.returncode, done.stderr) == (130, "remuda: interrupted\n")


def test_where_it_is_ignored_it_stays_ignored(tmp_path):
    script = """
from remuda.ui.interrupts import end_at_once
signal.signal(signal.SIGINT, signal.SIG_IGN)
end_at_once()
signal.raise_signal(signal.SIGINT)
print("went on")
"""
    done = start(tmp_path, script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")
