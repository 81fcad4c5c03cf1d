"""Open files: children have those that they need, and it is told where there are too few."""

import errno
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from remuda.system.memory.lifeline import Lifeline
from remuda.system.memory.waiting import Wakeup
from remuda.system.processes import client as forkserver
from remuda.system.processes.process import UNKNOWN, ForkedProcess
from system.processes.children import ended, open_files, room_for, server_with, wait_for

pytestmark = pytest.mark.process

TOO_MANY = os.strerror(errno.EMFILE)


def nothing(*_):
    pass


CROWD = """
import ctypes, errno, os, resource, signal, socket
from remuda.system.processes import client
from remuda.system.memory.waiting import Wakeup

client.MODULES = ()

def ring(wakeups, mine):
    wakeups[mine].ring()

if __name__ == "__main__":
    # Whoever may administer the system is not counted.
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)())
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    wakeups = [Wakeup() for _ in range(40)]
    client.begin()
    os.kill(client.server_pid(), signal.SIGSTOP)  # so that it has begun nothing before the last
    processes = [client.start(ring, (wakeups, i), name="x") for i in range(4)]
    others = socket.socketpair()  # another program of this user's fills up what is left
    try:
        socket.send_fds(others[0], [b"x"], [0] * 200)
    except OSError as error:  # one has filled it up already
        assert error.errno == errno.ETOOMANYREFS
    os.kill(client.server_pid(), signal.SIGCONT)
    for process in processes:
        assert process.join(120)
    print(*sorted({type(process).__name__ for process in processes}))
    print(*{process.exitcode for process in processes}, *{p.failure for p in processes})
    print(all(wakeup.wait(lambda: True, 0) for wakeup in wakeups[:4]))
"""


def test_those_whose_descriptors_the_kernel_does_not_keep_are_spawned(tmp_path):
    """What lies in sockets is counted too: 160 are on the way, where 100 may be.

    Children that are forked then say hello without a descriptor of their own.
    """
    program = tmp_path / "crowd.py"
    program.write_text(CROWD)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    ways, *others = done.stdout.splitlines()
    assert "SpawnedProcess" in ways, done.stderr
    assert others == ["0 ", "True"], done.stderr


def tell_descriptors(path, *_):
    found = [
        f"{number} {to} {os.get_inheritable(number)}"
        for number, to in open_files().items()
        if number > 2 and "/proc/" not in to
    ]
    path.write_text("\n".join(found))


@pytest.mark.slow_cases("forked")
def test_programs_that_a_child_starts_have_none_of_its_descriptors(way, tmp_path):
    path, lifeline = tmp_path / "descriptors", Lifeline()
    process = forkserver.start(tell_descriptors, (path, Wakeup()), name="x", lifeline=lifeline)
    wait_for(lambda: process.pid is not None)
    assert not os.get_inheritable(process.sentinel)
    assert ended(process) == 0
    lines = path.read_text().splitlines()
    assert any("eventfd" in line for line in lines)
    assert [line for line in lines if line.endswith("True")] == []


def test_programs_that_the_server_starts_have_none_of_its_descriptors(tmp_path, monkeypatch):
    with server_with("", tmp_path, monkeypatch):
        assert ended(forkserver.start(nothing, (), name="x")) == 0  # it has begun to serve
        server = forkserver.server_pid()
        for number in set(open_files(server)) - {0, 1, 2}:
            with suppress(FileNotFoundError):  # of the child that has just ended
                flags = Path(f"/proc/{server}/fdinfo/{number}").read_text().split()[3]
                assert int(flags, 8) & os.O_CLOEXEC, number


def test_a_forked_child_holds_nothing_of_its_servers(tmp_path, monkeypatch):
    """But for the libraries: two ends of its lifeline, its socket, that of its own requests."""
    path, lifeline = tmp_path / "descriptors", Lifeline()
    mine = os.readlink(f"/proc/self/fd/{lifeline.descriptor}")
    with server_with("", tmp_path, monkeypatch):
        assert ended(forkserver.start(nothing, (), name="first")) == 0
        living = forkserver.start(signal.pause, (), name="another")
        wait_for(lambda: living.pid is not None)
        process = forkserver.start(tell_descriptors, (path,), name="x", lifeline=lifeline)
        # One that is spawned holds the pipe that tells of its end, besides.
        assert isinstance(process, ForkedProcess), forkserver.ProcessState.why_not
        assert ended(process) == 0
        living.kill()
        ended(living)
    links = [line.split()[1] for line in path.read_text().splitlines()]
    assert sorted(link for link in links if "socket" not in link and "/" not in link) == [mine] * 2
    assert sum("socket" in link for link in links) == 2
    assert not any("remuda-recipe" in link or "pidfd" in link for link in links)


@pytest.mark.slow_cases(
    "forked-0",
    "forked-1",
    "forked-10",
    "forked-11",
    "forked-2",
    "forked-3",
    "forked-4",
    "forked-5",
    "forked-6",
    "forked-7",
    "forked-8",
    "forked-9",
    "spawned-0",
    "spawned-10",
    "spawned-11",
    "spawned-2",
    "spawned-3",
    "spawned-4",
    "spawned-5",
    "spawned-6",
    "spawned-7",
    "spawned-8",
    "spawned-9",
)
@pytest.mark.parametrize("room", range(12))
def test_a_start_that_finds_no_room_leaves_nothing_open(way, room):
    assert ended(forkserver.start(nothing, (), name="first")) == 0  # all is imported
    before = open_files()
    process = error = None
    with room_for(room):
        try:
            process = forkserver.start(nothing, (), name="x")
        except OSError as found:
            error = found.errno
    if process is None:
        assert error == errno.EMFILE
        assert room < 10
    else:
        assert ended(process) == 0
    assert open_files() == before


@pytest.mark.slow
@pytest.mark.parametrize("room", range(0, 10, 3))
def test_a_server_that_finds_no_room_leaves_nothing_open_and_is_tried_again(room, monkeypatch):
    monkeypatch.setattr(forkserver, "MODULES", ())
    monkeypatch.setattr(forkserver.ProcessState, "why_not", "")
    forkserver.end()
    before = open_files()
    with room_for(room):
        forkserver.begin()
    if forkserver.server_pid() is None:
        assert open_files() == before
    forkserver.begin()
    assert forkserver.server_pid() is not None
    assert ended(forkserver.start(nothing, (), name="x")) == 0
    forkserver.end()
    assert open_files() == before


def set_room(pid, count):
    """Let another process open files with so many numbers more; None: as many as it may."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    limit = hard if count is None else max(open_files(pid)) + 1 + count
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))


FILL = "top = 100 + max(map(int, os.listdir('/proc/self/fd')))\nwhile os.dup(0) < top: pass"
"""From then on the numbers of open files have no gaps, but for those of this test's child.

Some of a server's numbers are those of the test's process, which may have many files open.
"""


def test_a_server_without_room_says_so_and_serves_the_next(tmp_path, monkeypatch):
    """Whatever it is that finds no room: its end of a socket, a pair, or the child's descriptor."""
    with server_with(FILL, tmp_path, monkeypatch):
        server = forkserver.server_pid()

        def is_idle():
            return sum("socket" in to for to in open_files(server).values()) == 1

        assert ended(forkserver.start(nothing, (), name="first")) == 0
        wait_for(is_idle)
        before = sorted(open_files(server).values())
        said = []
        for room in range(12):
            set_room(server, room)
            process = forkserver.start(nothing, (Wakeup(),), name="x")
            assert process.join(120)
            assert not process.was_lost, room
            said.append(process.failure)
            assert process.failure or process.exitcode == 0
            process.close()
            set_room(server, None)
            assert forkserver.server_pid() == server, "it died of it"
            wait_for(lambda: sorted(open_files(server).values()) == before)
        assert said[0] == TOO_MANY
        assert set(said) == {TOO_MANY, ""}
        assert said[-1] == ""


def touch_and_stay(path):
    path.touch()
    signal.pause()


@pytest.mark.slow_cases("os.getpid() != server")
@pytest.mark.parametrize("who", ["os.getpid() == server", "os.getpid() != server"])
def test_a_child_that_cannot_be_watched_does_not_run(who, tmp_path, monkeypatch):
    """Be it that the server gets no descriptor of it, or that it gets none of itself."""
    code = f"""
pidfd_open, server = os.pidfd_open, os.getpid()
def refuse(pid):
    if pid != server and {who}:
        raise OSError(errno.EMFILE, "no")
    return pidfd_open(pid)
os.pidfd_open = refuse
"""
    with server_with(code, tmp_path, monkeypatch):
        process = forkserver.start(touch_and_stay, (tmp_path / "x",), name="x")
        assert process.join(120)
        assert process.failure == TOO_MANY
        process.close()
        server = psutil.Process(forkserver.server_pid())
        wait_for(lambda: server.children() == [])
        assert not (tmp_path / "x").exists() or who == "os.getpid() == server"


@pytest.mark.slow_cases("False")
@pytest.mark.parametrize("is_killed", [False, True])
def test_this_process_needs_no_room_to_watch_a_child(is_killed, tmp_path, monkeypatch):
    """It was an IndexError of who asked: the child's own descriptor did not arrive."""
    with server_with("", tmp_path, monkeypatch):
        process = forkserver.start(signal.pause if is_killed else nothing, (), name="x")
        with room_for(0):
            wait_for(lambda: process.pid is not None)
        if is_killed:
            assert process.exitcode is None
            process.kill()
            assert ended(process) == -signal.SIGKILL
        else:
            assert ended(process) == 0


def test_one_without_room_is_not_lost_from_sight_where_it_is_killed_at_once(tmp_path, monkeypatch):
    with server_with("", tmp_path, monkeypatch):
        process = forkserver.start(signal.pause, (), name="x")
        (child,) = wait_for_children(forkserver.server_pid())
        wait_for(lambda: ready(process.sentinel))  # its hello lies there unread
        with room_for(0):
            process.kill()
        assert ended(process) in (-signal.SIGKILL, UNKNOWN)
        wait_for(lambda: not child.is_running())


def wait_for_children(pid):
    wait_for(lambda: psutil.Process(pid).children())
    return psutil.Process(pid).children()


def ready(descriptor):
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def test_a_child_without_room_for_what_it_is_sent_says_so(tmp_path, monkeypatch):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with server_with("", tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(resource, "getrlimit", lambda _: (20, hard))
            process = forkserver.start(nothing, ([Wakeup() for _ in range(30)],), name="x")
        assert isinstance(process, ForkedProcess), forkserver.ProcessState.why_not
        assert process.join(120)
        assert process.failure == TOO_MANY
        process.close()
