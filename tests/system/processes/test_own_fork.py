"""The server as a fork of the program: it has nothing of it but the libraries, and ends with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from remuda.system.processes.process import OwnFork
from system.processes.children import open_files, wait_for

pytestmark = pytest.mark.process

PROGRAM = """
import os, signal, sys, time
from numba.core import event
from remuda.system.processes import client, server as program
from remuda.system.memory.lifeline import Lifeline

program.MODULES = ("json.tool",)

def spin():
    while True:
        pass

def tell(path):
    with open(path, "w") as file:
        handler, listeners = signal.getsignal(signal.SIGINT), event._registered["numba:compile"]
        print(os.getppid(), "json.tool" in sys.modules, len(listeners), handler, file=file)

if __name__ == "__main__":
    import atexit
    extra = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(extra, True)
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b"interrupted\\n"))
    atexit.register(print, "the end")
    print("said once", end=" ")
    program.is_the_program()
    {before}
    program.load_and_begin(print)
    process = client.start(tell, (sys.argv[1],), name="tells")
    assert process.join(120) and process.exitcode == 0, process.failure
    spinning = client.start(spin, (), name="x")
    while not spinning.pid:
        time.sleep(0.01)
    print(client.server_pid(), spinning.pid, flush=True)
    {then}
"""


def run(tmp_path, before="pass", then="time.sleep(600)", **options):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(before=before, then=then))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""}
    return subprocess.Popen(
        [sys.executable, program, tmp_path / "told"],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
        **options,
    )


def read(program):
    *words, server, child = program.stdout.readline().split()
    assert words == ["said", "once"], "by the program, and no child of its"
    return int(server), int(child)


def test_it_is_a_fork_with_the_libraries_and_nothing_else(tmp_path):
    with run(tmp_path) as program:
        try:
            server, _ = read(program)
            told = (tmp_path / "told").read_text()
            parent, has_modules, listeners, handler = told.split(maxsplit=3)
            assert int(parent) == server
            assert has_modules == "True"
            assert listeners == "0", "what the program tells of its compiling is no child's to tell"
            assert int(handler) == signal.SIG_IGN
            of_program, of_server = psutil.Process(program.pid), psutil.Process(server)
            assert of_server.cmdline() == of_program.cmdline(), "it was forked"
            assert of_server.ppid() == program.pid
            held = open_files(server)
            assert held[0] == os.devnull
            assert "remuda-server" in held[1], "its output is kept apart"
            assert held[2] == held[1]
            others = [what for number, what in held.items() if number > 2]
            assert os.devnull not in others, "a file of the program's"
            pipes = [what for what in others if what.startswith("pipe")]
            assert len(set(pipes)) == 1, "its lifeline alone"
        finally:
            program.kill()


def test_kill_9_of_the_program_leaves_nobody(tmp_path):
    with run(tmp_path) as program:
        pids = read(program)
        program.kill()
    wait_for(lambda: not any(map(lives, pids)), 20.0)


def test_the_program_ends_and_everybody_with_it(tmp_path):
    with run(tmp_path, then="sys.exit(5)") as program:
        pids = read(program)
        assert program.stdout.read() == "the end\n", "once, by the program itself"
    assert program.returncode == 5
    wait_for(lambda: not any(map(lives, pids)), 20.0)


def test_ctrl_c_is_the_programs_alone(tmp_path):
    with run(tmp_path) as program:
        try:
            pids = read(program)
            for pid in (*pids, program.pid):
                os.kill(pid, signal.SIGINT)
            assert program.stdout.readline() == "interrupted\n"
            assert all(map(lives, pids))
        finally:
            program.kill()


REPLACED = """
    before = client.server_pid()
    os.kill(before, signal.SIGKILL)
    while (next := client.start(tell, (sys.argv[1],), name="next")).join(120) and next.was_lost:
        next.close()
    assert next.exitcode == 0
    print(before != client.server_pid(), spinning.exitcode)
    sys.exit(0)
"""


@pytest.mark.slow
def test_one_that_was_killed_is_replaced(tmp_path):
    with run(tmp_path, then=REPLACED.strip()) as program:
        read(program)
        assert program.stdout.readline() == "True None\n", "another; its children live on"


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    [
        "client.ProcessState.is_program = False",
        "sys.modules['torch'] = sys",  # whatever it may have done with it
        "import threading; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    ],
)
def test_a_process_that_is_not_fresh_is_not_forked(before, tmp_path):
    with run(tmp_path, before) as program:
        try:
            server, _ = read(program)
            assert "remuda.system.processes.server" in psutil.Process(server).cmdline()[-1]
        finally:
            program.kill()


def test_a_fork_is_asked_as_a_process_is():
    pid = os.fork()
    if not pid:
        signal.pause()
    child = OwnFork(pid)
    assert child.poll() is None
    child.kill()
    assert child.wait() == child.wait() == child.poll() == -signal.SIGKILL
    child.kill()
    assert not Path(f"/proc/{pid}").exists()


def lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_children_that_nobody_is_told_of_break_nothing(tmp_path):
    """SIGCHLD may be ignored by a game, or from the beginning."""
    before = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    then = "os.kill(client.server_pid(), 9); client.begin(); sys.exit(5)"
    with run(tmp_path, before, then, stderr=subprocess.PIPE) as program:
        pids = read(program)
        assert program.stdout.read() == "the end\n"
        assert program.stderr.read() == ""
    assert program.returncode == 5
    wait_for(lambda: not any(map(lives, pids)), 20.0)


@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("number", [0, 2])
def test_a_program_without_a_standard_file_has_a_server_all_the_same(number, tmp_path):
    with run(tmp_path, preexec_fn=lambda: os.close(number)) as program:
        try:
            server, _ = read(program)
            assert psutil.Process(server).cmdline() == psutil.Process(program.pid).cmdline()
        finally:
            program.kill()
