"""Children of the fork server: as good as fresh processes, and nobody waits for them."""

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import weakref
from multiprocessing.util import Finalize

import numpy as np
import psutil
import pytest

from remuda.system.memory.lifeline import Lifeline
from remuda.system.memory.shared import SharedArrays
from remuda.system.memory.waiting import Wakeup
from remuda.system.processes import client as forkserver
from remuda.system.processes.child import EXCEPTION
from remuda.system.processes.process import ForkedProcess, is_ready
from remuda.system.processes.recipe import FAILED, tell
from system.processes.children import ended, wait_for


def look_around(path):
    lines = [
        os.environ.get("SET_LATER"),
        os.getcwd(),
        sys.path[0],
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        sorted(os.sched_getaffinity(0)),
        [signal.getsignal(n) == signal.SIG_IGN for n in (signal.SIGINT, signal.SIGTERM)],
        signal.pthread_sigmask(signal.SIG_BLOCK, []),
    ]
    path.write_text("\n".join(map(str, lines)))
    import game_of_mine

    assert game_of_mine.ANSWER == 42
    print("to the log")
    sys.exit(5)


@pytest.mark.process
@pytest.mark.slow_cases("forked")
def test_it_has_the_surroundings_of_the_moment(way, tmp_path, monkeypatch):
    forkserver.begin()  # before anything of this is so
    monkeypatch.setenv("SET_LATER", "yes")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "game_of_mine.py").write_text("ANSWER = 42\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    cores = os.sched_getaffinity(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    os.sched_setaffinity(0, {min(cores)})
    try:
        log, seen = tmp_path / "log", tmp_path / "seen"
        process = forkserver.start(look_around, (seen,), name="looks", log=str(log))
        assert ended(process) == 5
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.sched_setaffinity(0, cores)
    assert seen.read_text().splitlines() == [
        "yes",
        str(tmp_path),
        str(tmp_path),
        str(soft - 1),
        str([min(cores)]),
        "[True, True]",
        "set()",
    ]
    assert log.read_text() == "to the log\n"


def count_up(shared, wakeup):
    shared["values"][0] += 1
    wakeup.ring()


@pytest.mark.process
@pytest.mark.slow_cases("forked")
def test_shared_memory_crosses(way):
    shared, wakeup = SharedArrays({"values": ((3,), np.int64)}), Wakeup()
    process = forkserver.start(count_up, (shared, wakeup), name="counts")
    assert wakeup.wait(lambda: shared["values"][0] == 1, 120)
    assert ended(process) == 0


def ring_all(wakeups):
    for wakeup in wakeups:
        wakeup.ring()


@pytest.mark.process
@pytest.mark.slow_cases("forked")
def test_there_may_be_more_descriptors_than_a_message_holds(way):
    wakeups = [Wakeup() for _ in range(600)]
    process = forkserver.start(ring_all, (wakeups,), name="rings")
    assert ended(process) == 0
    assert all(wakeup.wait(lambda: True, 0) for wakeup in wakeups)


def draw(shared, row):
    shared["drawn"][row] = np.random.rand()
    shared["product"][row] = float((np.ones((300, 300)) @ np.ones((300, 300))).sum())
    import torch

    torch.set_num_threads(2)
    shared["product"][row] += float((torch.ones(300, 300) @ torch.ones(300, 300)).sum())


@pytest.mark.process
def test_children_draw_other_numbers_and_compute_with_threads():
    shared = SharedArrays({"drawn": ((2,), np.float64), "product": ((2,), np.float64)})
    processes = [forkserver.start(draw, (shared, row), name="draws") for row in range(2)]
    assert [ended(process) for process in processes] == [0, 0]
    assert shared["drawn"][0] != shared["drawn"][1]
    assert (shared["product"] == 2 * 300**3).all()


class Bomb:
    """Does something to the process that unpickles it."""

    def __init__(self, what):
        self.what = what

    def __reduce__(self):
        return self.what


def nothing(*_):
    pass


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def stop_self():
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.process
def test_a_child_that_dies_before_it_has_read_its_recipe_holds_up_nobody(way):
    """More than any pipe holds: who wrote it into one would wait for ever."""
    process = forkserver.start(nothing, (Bomb((kill_self, ())), bytes(2**23)), name="dies")
    assert ended(process) == -signal.SIGKILL


@pytest.mark.process
def test_a_child_that_stops_before_it_has_read_its_recipe_can_be_killed(way):
    process = forkserver.start(nothing, (Bomb((stop_self, ())), bytes(2**23)), name="stops")
    wait_for(lambda: process.pid is not None)
    wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    process.kill()
    assert ended(process) == -signal.SIGKILL


@pytest.mark.process
def test_one_that_is_killed_before_it_has_begun_never_begins(tmp_path):
    """The server is stopped, so nothing is forked yet; what was asked for is given up."""
    forkserver.begin()
    server = psutil.Process(forkserver.server_pid())
    server.suspend()
    try:
        process = forkserver.start((tmp_path / "begun").touch, (), name="late")
        assert process.pid is None
        process.kill()
        assert process.exitcode == -signal.SIGKILL
        assert process.was_lost
        process.close()
    finally:
        server.resume()
    assert ended(forkserver.start(nothing, (), name="next")) == 0
    assert not (tmp_path / "begun").exists()


@pytest.mark.process
def test_an_exception_is_told_in_the_log(way, tmp_path):
    log = tmp_path / "log"
    process = forkserver.start(nothing, (Bomb((int, ("x",))),), name="fails", log=str(log))
    assert ended(process) == EXCEPTION
    assert "ValueError: invalid literal" in log.read_text()


def leave_somebody_behind():
    import multiprocessing

    context = multiprocessing.get_context("fork")
    context.Process(target=time.sleep, args=(600,), daemon=True).start()


@pytest.mark.process
def test_processes_of_a_games_own_do_not_hold_up_its_end(way):
    """They ignore SIGTERM as their parent does, so who asks them to end waits for ever."""
    assert ended(forkserver.start(leave_somebody_behind, (), name="parent")) == 0


@pytest.mark.slow
def test_a_server_that_was_killed_is_replaced():
    forkserver.begin()
    wakeup = Wakeup()
    living = forkserver.start(wait_for_ever, (wakeup,), name="lives")
    assert wakeup.wait(lambda: living.pid is not None, 120)
    before = forkserver.server_pid()
    os.kill(before, signal.SIGKILL)
    lost = 0
    while (following := forkserver.start(nothing, (), name="next")).join(60):
        if not following.was_lost:
            break
        lost += 1  # it was asked for in the moment of the server's death
        following.close()
    assert lost <= 1, forkserver.ProcessState.why_not
    assert ended(following) == 0
    assert not forkserver.ProcessState.why_not
    assert forkserver.server_pid() not in (None, before)
    assert living.exitcode is None, "its children live on"
    living.kill()
    assert living.join(60)
    assert living.exitcode != 0
    living.close()


def wait_for_ever(wakeup):
    wakeup.ring()
    signal.pause()


OWNER = """
import os, signal, sys, time
from remuda.system.processes import client
from remuda.system.memory.lifeline import Lifeline

def spin():
    while True:
        pass

def stop():
    os.kill(os.getpid(), signal.SIGSTOP)

if __name__ == "__main__":
    own = Lifeline()
    calls = ((spin, None), (stop, None), (spin, own), (stop, own))
    processes = [client.start(f, (), name="x", lifeline=lifeline) for f, lifeline in calls]
    while not all(process.pid for process in processes):
        time.sleep(0.01)
    time.sleep(0.5)
    print(client.server_pid(), *(process.pid for process in processes), flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_kill_9_of_the_owner_leaves_nobody(tmp_path):
    program = tmp_path / "owner.py"
    program.write_text(OWNER)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, env=environment
    ) as owner:
        pids = [int(word) for word in owner.stdout.readline().split()]
        owner.kill()
    assert len(pids) == 5
    wait_for(lambda: not any(map(lives, pids)), 10.0)


def lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_other_threads_of_libraries_want_another_server(monkeypatch):
    forkserver.begin()
    before = forkserver.server_pid()
    monkeypatch.setenv("OMP_NUM_THREADS", "2" if os.environ.get("OMP_NUM_THREADS") == "1" else "1")
    forkserver.begin()
    assert forkserver.server_pid() not in (None, before)
    wait_for(lambda: not lives(before), 10.0)
    monkeypatch.undo()
    forkserver.begin()


@pytest.mark.slow
def test_a_lifeline_that_is_cut_already_ends_a_child_at_once():
    lifeline = Lifeline()
    forkserver.begin()
    server = psutil.Process(forkserver.server_pid())
    server.suspend()  # so that the child begins after the cut
    try:
        process = forkserver.start(signal.pause, (), name="late", lifeline=lifeline)
        lifeline.close()
    finally:
        server.resume()
    assert ended(process) == -signal.SIGKILL


class NoServer:
    served = False

    def child_ended(self):
        pass


def test_what_was_said_is_heard_though_descriptors_lie_unread():
    """The kernel reports the reset before the messages that were queued before it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    socket.send_fds(ours, [b"D"], [0])
    tell(theirs, FAILED, errno.EAGAIN)
    theirs.close()
    process = ForkedProcess(NoServer(), ours)
    assert process.join(60)
    assert process.failure == os.strerror(errno.EAGAIN)
    assert not process.was_lost
    process.close()


NO_FORKS = """
import errno, os, sys

def fork():
    raise OSError(errno.EAGAIN, "no")

if "-c" in sys.orig_argv and "remuda.system.processes.server" in sys.orig_argv[-1]:
    os.fork = fork
"""


@pytest.mark.process
@pytest.mark.slow
def test_a_server_that_cannot_fork_says_so_of_a_child_with_descriptors(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(NO_FORKS)
    paths = (str(tmp_path), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    process = forkserver.start(ring_all, ([Wakeup()],), name="never")
    assert process.join(120)
    assert process.failure == os.strerror(errno.EAGAIN)
    process.close()
    monkeypatch.undo()
    forkserver.begin()


def say_hello():
    print("hello")


@pytest.mark.process
@pytest.mark.slow_cases("forked")
def test_a_relative_log_belongs_to_the_directory_of_the_moment(way, tmp_path, monkeypatch):
    forkserver.begin()  # in another directory
    monkeypatch.chdir(tmp_path)
    assert ended(forkserver.start(say_hello, (), name="says", log="log")) == 0
    assert (tmp_path / "log").read_text() == "hello\n"


class FullServer:
    served = is_alive = True
    asked = False

    def send(self, parts):
        raise BlockingIOError(errno.EAGAIN, "full")

    def wait_for_end(self):
        self.asked = True


@pytest.mark.process
def test_a_server_that_takes_no_requests_now_is_not_waited_for(monkeypatch):
    server = FullServer()
    monkeypatch.setattr(forkserver, "begin", lambda: None)
    monkeypatch.setattr(forkserver.ProcessState, "server", server)
    assert ended(forkserver.start(nothing, (), name="next")) == 0
    assert not server.asked


def finalize_later(path):
    weakref.finalize(finalize_later, path.touch)
    Finalize(None, path.with_suffix(".too").touch, exitpriority=1)


@pytest.mark.process
@pytest.mark.slow_cases("forked")
def test_finalizers_of_children_run(way, tmp_path):
    assert ended(forkserver.start(finalize_later, (tmp_path / "run",), name="ends")) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.too"]


@pytest.mark.slow
def test_a_server_has_descriptors_for_as_many_children_as_the_hard_limit_allows():
    forkserver.end()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
    try:
        forkserver.begin()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    processes = [forkserver.start(signal.pause, (), name="lives") for _ in range(30)]
    wait_for(lambda: all(p.pid is not None or p.exitcode is not None for p in processes))
    assert not any(process.was_lost for process in processes)
    for process in processes:
        process.kill()
        assert ended(process) == -signal.SIGKILL


@pytest.mark.process
@pytest.mark.slow_cases("100000000.0", "1e+300")
@pytest.mark.parametrize("seconds", [1e8, 1e300, float("inf")])
def test_a_process_is_waited_for_however_long(seconds):
    with_nothing = forkserver.start(nothing, (), name="brief")
    assert with_nothing.join(seconds)
    with_nothing.close()


def test_what_is_waited_for_longer_than_the_system_counts_is_looked_at_again(monkeypatch):
    monkeypatch.setattr("remuda.system.processes.process.AT_ONCE", 0.01)
    read, write = os.pipe()
    assert not is_ready(read, float("inf"))
    os.close(write)
    assert is_ready(read, float("inf"))
    os.close(read)
