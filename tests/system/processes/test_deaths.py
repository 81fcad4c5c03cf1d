"""Whatever dies at any instant of a start: who asked goes on, and the child runs or is lost."""

import select
import time

import psutil
import pytest

from remuda.system.memory.lifeline import Lifeline
from remuda.system.memory.waiting import Wakeup
from remuda.system.processes import client as forkserver
from remuda.system.processes.process import UNKNOWN
from system.processes.children import ended, server_with, wait_for

pytestmark = pytest.mark.process

AT_THE_SECOND = """
fork, count = os.fork, []
def die(pid=0):
    os.kill(pid or os.getpid(), signal.SIGKILL)
def instead():
    count.append(1)
    return at_the_second() if len(count) == 2 else fork()
os.fork = instead
def at_the_second():
    server = os.getpid()
"""
"""The first child of the server is forked as usual."""
INSTANTS = {
    "the server dies before it forks": "die()",
    "the server dies as it has forked": """
pid = fork()
if pid:
    die()
return pid
""",
    "the server dies after fork, and its child says hello later": """
pid = fork()
if pid:
    die()
while os.getppid() == server:
    time.sleep(0.001)
return 0
""",
    "the child dies before its hello": "return fork() or die()",
    "both die before the hello": """
pid = fork()
if pid:
    die(pid)
    die()
time.sleep(600)
""",
}
LOST = (
    "the server dies before it forks",
    "the child dies before its hello",
    "both die before the hello",
)


def ring(wakeups, _):
    for wakeup in wakeups:
        wakeup.ring()


@pytest.mark.slow_cases(
    "both die before the hello",
    "the server dies after fork, and its child says hello later",
    "the server dies as it has forked",
    "the server dies before it forks",
)
@pytest.mark.parametrize("instant", INSTANTS)
def test_a_child_runs_once_or_is_lost_and_begun_again(instant, tmp_path, monkeypatch):
    body = "\n".join(f"    {line}" for line in INSTANTS[instant].strip().splitlines())
    with server_with(AT_THE_SECOND + body, tmp_path, monkeypatch):
        assert ended(forkserver.start(ring, ((), ()), name="first")) == 0
        wakeups = [Wakeup() for _ in range(5)]
        lost = 0
        while (process := forkserver.start(ring, (wakeups, ()), name="x")).join(60):
            if not process.was_lost:
                break
            lost += 1
            process.close()
        assert lost == (instant in LOST)
        assert ended(process) in (0, UNKNOWN)
        assert all(wakeup.wait(lambda: True, 0) for wakeup in wakeups)
        assert not forkserver.ProcessState.why_not


def is_readable(descriptor):
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def test_the_server_may_die_after_the_hello_of_a_child(tmp_path, monkeypatch):
    """Nobody has heard the hello yet."""
    with server_with("", tmp_path, monkeypatch):
        server, wakeup = psutil.Process(forkserver.server_pid()), Wakeup()
        process = forkserver.start(ring, ([wakeup], ()), name="x")
        wait_for(lambda: is_readable(process.sentinel))
        server.kill()
        server.wait(60)
        assert ended(process) in (0, UNKNOWN)
        assert wakeup.wait(lambda: True, 0)


def dies(server):
    server.kill()  # and perhaps is not even dead when the start begins


def is_gone(server):
    server.kill()
    server.wait(60)


@pytest.mark.slow_cases("dies", "suspend")
@pytest.mark.parametrize("what", [dies, is_gone, psutil.Process.suspend])
def test_no_start_waits_for_the_server(what, tmp_path, monkeypatch):
    """The best of some attempts: what else the machine does may make any of them slow."""
    best, limit = 1.0, time.monotonic() + 100.0
    with server_with("", tmp_path, monkeypatch):
        while best > 0.05:
            assert time.monotonic() < limit, f"it took {best} s at best"
            forkserver.begin()
            assert ended(forkserver.start(ring, ((), ()), name="first")) == 0
            lifeline, wakeups = Lifeline(), [Wakeup() for _ in range(20)]
            server = psutil.Process(forkserver.server_pid())
            what(server)
            began = time.perf_counter()
            processes = [
                forkserver.start(ring, (wakeups, ()), name="x", lifeline=lifeline) for _ in range(3)
            ]
            best = min(best, (time.perf_counter() - began) / 3)
            forkserver.give_up()
            forkserver.ProcessState.why_not = ""  # `server_with` puts back what it found
            for process in processes:
                process.kill()
                assert process.join(60)
                process.close()
