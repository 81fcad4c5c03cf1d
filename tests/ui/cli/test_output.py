"""What cannot be printed neither ends a run nor delays it; SIGHUP stops it in order."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from remuda.system.checkpoint.store import Checkpoints
from remuda.system.output import MOST

WORDS = (
    *("train", "treasure_hunt", "--schedule", "sequential", "--env.num_envs", "2"),
    *("--policy.network.hidden", "8", "--policy.iqn.quantiles", "4"),
    *("--run.evaluate_episodes", "2", "--checkpoint.evaluate_episodes", "0"),
    *("--run.log_every", "0.05"),
)
TURNS = ("--run.turns", "300")
LIMIT = 300


def program(directory, *words):
    return [sys.executable, "-m", "remuda", *WORDS, "--run.directory", str(directory), *words]


def assert_whole(directory, ended="all turns were played"):
    assert json.loads((directory / "summary.json").read_text())["ended"] == ended
    store = Checkpoints(directory / "checkpoints")
    store.verify(store.numbers()[-1])
    assert (directory / "report.html").exists()
    assert list((directory / "weights").glob("*.safetensors"))


@pytest.mark.slow
def test_a_full_disk_behind_the_output_costs_only_the_lines(tmp_path):
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            program(tmp_path / "run", *TURNS), stdout=full, stderr=full, cwd=tmp_path, timeout=LIMIT
        )
    assert ended.returncode == 0
    assert_whole(tmp_path / "run")


@pytest.mark.slow
def test_a_reader_that_is_gone_costs_only_the_lines(tmp_path):
    process = subprocess.Popen(
        program(tmp_path / "run", *TURNS),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    process.stdout.readline()
    process.stdout.close()
    _, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, errors) == (0, b"")
    assert_whole(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C"}],
    ids=str,
)
def test_characters_that_the_encoding_lacks_are_replaced(environment, tmp_path):
    ended = subprocess.run(
        program(tmp_path / "run", *TURNS),
        capture_output=True,
        cwd=tmp_path,
        timeout=LIMIT,
        env=os.environ | environment,
    )
    assert ended.returncode == 0
    assert ended.stderr == b""
    assert b"report.html" in ended.stdout
    if environment.get("PYTHONIOENCODING") == "ascii":
        assert b"+/-" in ended.stdout
        ended.stdout.decode("ascii")
    assert_whole(tmp_path / "run")


@pytest.mark.process
@pytest.mark.slow
def test_a_pipe_that_is_never_read_stalls_neither_play_nor_a_stop(tmp_path):
    """The pipe is full before the run begins; a signal ends it in order all the same."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    process = subprocess.Popen(
        program(tmp_path / "run", "--checkpoint.every", "0.2"),
        stdout=write,
        stderr=write,
        cwd=tmp_path,
    )
    store = Checkpoints(tmp_path / "run" / "checkpoints")
    await_that(lambda: (store.numbers() or [0])[-1] >= 3, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 128 + signal.SIGTERM
    assert_whole(tmp_path / "run", "stopped by SIGTERM")
    os.close(read)


@pytest.mark.slow
@pytest.mark.parametrize("live", ["true", "false"])
@pytest.mark.parametrize("stopped", [True, False])
def test_a_terminal_that_closes_stops_the_run_in_order(live, stopped, tmp_path):
    """Stopped before by Ctrl-S, so that nothing more can be written to it, or not."""
    ours, theirs = os.openpty()
    words = program(tmp_path / "run", "--checkpoint.every", "0.2", "--run.live", live)
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, *words[1:]],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        start_new_session=True,
    )
    os.close(theirs)
    if stopped:
        os.read(ours, 1)
        os.write(ours, b"\x13")
    store = Checkpoints(tmp_path / "run" / "checkpoints")
    await_that(lambda: (store.numbers() or [0])[-1] >= 3, process)
    os.close(ours)
    assert process.wait(LIMIT) == 128 + signal.SIGHUP
    assert_whole(tmp_path / "run", "stopped by SIGHUP")


IN_A_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored, and stay so
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.environ["TERM"] = "xterm"
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def await_that(condition, process):
    limit = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, "it ended"
        assert time.monotonic() < limit, "it never came"
        time.sleep(0.02)


PRINTING = f"""
import logging, sys
import numpy as np
import remuda

class Prints:
    def on_metrics(self, run, row):
        print("\\u00b1" * {MOST} * 2, flush=True)
        print("\\u00b1", file=sys.stderr)
        logging.getLogger("mine").warning("\\u00b1")

class Fails:
    def start(self, goal): raise RuntimeError("no screen")
    show = log = say = start
    def close(self): pass

if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr)
    for number, view in enumerate((None, Fails())):
        result = remuda.train(
            "treasure_hunt", schedule="sequential", env={{"num_envs": 2}}, callbacks=[Prints()],
            view=view, checkpoint={{"evaluate_episodes": 0}},
            run={{"directory": sys.argv[1] + str(number), "turns": 300, "evaluate_episodes": 0}},
        )
        with open(f"ended{{number}}", "w") as file:
            file.write("\\n".join([result.ended, *result.notes]))
    sys.stdout.reconfigure(errors="replace")
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("output", ["full", "closed", "never read"])
def test_callbacks_and_views_that_print_do_not_end_a_run_in_python(output, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PRINTING)
    read, write = os.pipe()
    if output == "full":
        os.close(write)
        write = os.open("/dev/full", os.O_WRONLY)
    if output != "never read":
        os.close(read)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "run")],
        stdout=write,
        stderr=write,
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    process.wait(LIMIT)
    for number in range(2):
        ended, *notes = (tmp_path / f"ended{number}").read_text().splitlines()
        assert ended == "all turns were played"
        assert len(notes) == number
    assert "no screen" in notes[0]


@pytest.mark.slow
def test_under_nohup_a_terminal_that_closes_stops_nothing(tmp_path):
    process = subprocess.Popen(
        program(tmp_path / "run", "--checkpoint.every", "0.2"),
        stdout=subprocess.DEVNULL,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    store = Checkpoints(tmp_path / "run" / "checkpoints")
    await_that(lambda: store.numbers(), process)
    process.send_signal(signal.SIGHUP)
    before = store.numbers()[-1]
    await_that(lambda: store.numbers()[-1] > before + 1, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 128 + signal.SIGTERM


@pytest.mark.process
@pytest.mark.slow_cases("words0", "words2")
@pytest.mark.parametrize("words", [["games"], ["train", "--help"], ["runs", "."]])
def test_a_command_whose_output_cannot_be_written_says_so_in_one_line(words, tmp_path):
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "remuda", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            timeout=LIMIT,
        )
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert b"cannot be written" in ended.stderr
