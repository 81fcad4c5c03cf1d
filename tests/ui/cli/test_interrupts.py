"""Ctrl-C and SIGTERM in the program, sent at moments that a test can hold."""

import os
import pty
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

STUBBORN = """
import signal

def swallow(number=signal.SIGINT):
    try:
        signal.raise_signal(number)
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
from remuda.envs.games.treasure_hunt import TreasureHunt
TreasureHunt.__init__ = lambda *_, **__: stubborn.swallow()
"""

WHILE_THE_RUN_IS_SET_UP = """
from remuda.assembly.assembly import Assembly
Assembly.__init__ = lambda *_, **__: stubborn.swallow()
"""

BEFORE_THE_REPORT = """
from remuda.ui.reports import report
report.write_report = lambda *_: stubborn.swallow(signal.{})
"""

TOLD = {"SIGINT": (130, "remuda: interrupted"), "SIGTERM": (143, "remuda: stopped by SIGTERM")}
"""By signal, the exit code and what is said."""


def start(tmp_path, script):
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    # As in a terminal, whatever started the tests.
    begin = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"{begin}\nsys.path.insert(0, {str(tmp_path)!r})\nimport stubborn\n{script}"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )


@pytest.mark.slow_cases("game", "setup")
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


@pytest.mark.slow_cases("SIGTERM")
@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.slow)])
def test_after_a_run_it_ends_at_once_again_and_the_run_is_whole(name, tmp_path):
    """SIGTERM ended it without a word."""
    script = f"""
{BEFORE_THE_REPORT.format(name)}
from remuda.__main__ import main
sys.argv[1:] = ["train", "--schedule", "sequential", "--run.turns", "1", "--run.directory", "run"]
main()
"""
    done, (code, told) = start(tmp_path, script), TOLD[name]
    again = f"to write its report: remuda report {tmp_path / 'run'}"
    assert (done.returncode, done.stderr) == (code, f"{told}; {again}\n")
    assert "greedy return" in done.stdout
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow
def test_a_second_one_in_greedy_play_tells_how_the_policies_can_be_measured(tmp_path):
    script = """
from remuda.training import finish
finish.evaluate = lambda *_, **__: (stubborn.swallow(), stubborn.swallow())
from remuda.__main__ import main
sys.argv[1:] = ["train", "--schedule", "sequential", "--run.turns", "1", "--run.directory", "run"]
main()
"""
    done = start(tmp_path, script)
    again = f"the policies are saved; to evaluate them: remuda evaluate {tmp_path / 'run'}"
    assert (done.returncode, done.stderr) == (130, f"remuda: interrupted; {again}\n")
    assert done.stdout.count("went on") == 1, "the first one only ends greedy play"
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow_cases("SIGINT-SIGTERM", "SIGTERM-SIGINT", "SIGTERM-SIGTERM")
@pytest.mark.parametrize("second", TOLD)
@pytest.mark.parametrize("first", TOLD)
def test_a_second_signal_ends_a_run_at_once_and_says_so(first, second, tmp_path):
    """The process died without a word, and the terminal was left as the picture had made it."""
    script = f"""
from remuda.coordinator.coordinator import Signals
from remuda.ui.cli.program import end_at_once
end_at_once()
signals = Signals()
with signals.watching():
    signal.raise_signal(signal.{first})
    print("goes to its end", signals.stopped())
    signal.raise_signal(signal.{second})
    print("went on")
"""
    done, (code, told) = start(tmp_path, script), TOLD[second]
    expected = (code, "goes to its end True\n", f"{told}\n")
    assert (done.returncode, done.stdout, done.stderr) == expected


def test_a_second_signal_ends_a_process_that_is_no_program_too(tmp_path):
    script = """
from remuda.coordinator.coordinator import Signals
with Signals().watching():
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    print("went on")
"""
    done = start(tmp_path, script)
    assert (done.returncode, done.stdout, done.stderr) == (-2, "", "")


def test_the_terminal_gets_its_cursor_back(tmp_path):
    script = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from rich.live import Live
from remuda.ui.cli.program import end_at_once
end_at_once()
Live("a picture", auto_refresh=False).start(refresh=True)
signal.raise_signal(signal.SIGINT)
"""
    ours, its = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdout=its, stderr=its, env=environment, cwd=tmp_path) as process:
        os.close(its)
        shown = b""
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # no process writes any more
                break
            if not data:
                break
            shown += data
        assert process.wait(120) == 130
    os.close(ours)
    assert b"\x1b[?25l" in shown, "it was never hidden"
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")


def test_what_must_end_in_order_is_told_by_an_exception(tmp_path):
    script = """
from remuda.ui.cli.program import end_at_once, ends_in_order
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
from remuda.ui.cli.program import end_at_once
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
from remuda.ui.cli.program import end_at_once
signal.signal(signal.SIGINT, signal.SIG_IGN)
end_at_once()
signal.raise_signal(signal.SIGINT)
print("went on")
"""
    done = start(tmp_path, script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")
