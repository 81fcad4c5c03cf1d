"""Nodes of a Ray cluster on this machine, and the process that ends them with the run.

That process, the *keeper*, starts the nodes and reads a pipe from the run. When the pipe closes,
because the run ended or died, the keeper kills every process of every node and removes Ray's
directory. If the keeper itself is killed, the first process of each node does the same for its
node. Ray by itself would leave some processes behind. All processes of a node are one POSIX
session, so they can be killed or stopped together.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from remuda.errors import RemudaError
from remuda.system.memory.lifeline import Lifeline
from remuda.system.processes.process import AT_ONCE, interpreter

LOOPBACK = "127.0.0.1"
# must be set before Ray is imported, in the keeper and in the run
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keeps Ray on loopback, on Linux too
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
OBJECT_STORE = 80_000_000  # bytes per node: nearly Ray's minimum, because it stays almost empty
# how soon Ray detects a dead node
SYSTEM = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 3,
}


class LocalNodes:
    """A Ray cluster on this machine, which ends with `stop` or with this process."""

    def __init__(self, count: int, cores: int, memory: int) -> None:
        settings = {"count": count, "cores": cores, "memory": memory}
        code = "from remuda.cluster.ray_local import keep; keep(sys.argv[1])"
        search = os.pathsep.join(path for path in sys.path if path)
        self._keeper = subprocess.Popen(
            [*interpreter(code), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": search},
            start_new_session=True,  # Ctrl-C goes only to the run, which ends its nodes cleanly
        )
        self._buffer = b""
        self.directory: Path | None = None
        self.address = ""  # address of the head; empty before it is known
        self.sessions: dict[int, int] = {}  # POSIX session of each node

    def wait(self, count: int, seconds: float) -> None:
        """Wait until `count` nodes have been started."""
        assert self._keeper.stdout is not None
        end = time.monotonic() + seconds
        while len(self.sessions) < count:
            remaining = max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self._keeper.stdout], [], [], min(remaining, AT_ONCE))
            if not ready and remaining > AT_ONCE:
                continue
            data = os.read(self._keeper.stdout.fileno(), 65536) if ready else b""
            if not data:
                self.stop()
                why = "ended" if ready else f"did not start within {seconds:g} s"
                raise RemudaError(
                    f"cluster.local: Ray's nodes on this machine {why}; raise cluster.start_limit, "
                    "or start fewer nodes"
                )
            self._buffer += data
            *lines, self._buffer = self._buffer.split(b"\n")
            for line in lines:
                self._hear(json.loads(line))

    def _hear(self, news: Mapping[str, Any]) -> None:
        if "directory" in news:
            self.directory = Path(news["directory"])
        if "fault" in news:
            self.stop()
            raise RemudaError(f"cluster.local: Ray could not start a node here: {news['fault']}")
        if "node" in news:
            self.address = news["address"]
            self.sessions[news["node"]] = news["session"]

    def add(self) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(b"node\n")
        self._keeper.stdin.flush()

    def stop(self) -> None:
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        with suppress(OSError):
            self._keeper.stdin.close()
        try:
            self._keeper.wait(15.0)  # it ends all nodes first
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        self._keeper.stdout.close()
        if self.directory is not None and self.directory.exists():  # the keeper was killed
            for session in self.sessions.values():
                kill_session(session)
            shutil.rmtree(self.directory, ignore_errors=True)


def members(session: int) -> list[int]:
    """Return the living processes of a session."""
    processes = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    processes.append(int(entry))
    return processes


def kill_session(session: int, seconds: float = 5.0) -> None:
    """Kill all processes of a session except this one, including new ones."""
    end = time.monotonic() + seconds
    while (processes := set(members(session)) - {os.getpid()}) and time.monotonic() < end:
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def keep(settings_text: str) -> NoReturn:
    """Run the keeper: start nodes, and end them when standard input closes."""
    settings = json.loads(settings_text)
    if sys.platform == "linux":  # become the parent of orphans, so none stays as a zombie
        set_child_subreaper = 36
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)
    usual = tempfile.gettempdir()
    base = usual if len(usual) < 20 else "/tmp"  # paths of sockets may have 107 characters
    directory = tempfile.mkdtemp(prefix="remuda-ray-", dir=base)
    sessions: list[int] = []
    try:
        _tell({"directory": directory})
        _start_nodes(settings, directory, sessions)
    except Exception as error:
        with suppress(OSError):
            _tell({"fault": " ".join(str(error).split())[:300] or type(error).__name__})
    finally:
        for session in sessions:
            kill_session(session)
        _reap()
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(0)


def _start_nodes(settings: Mapping[str, Any], directory: str, sessions: list[int]) -> None:
    """Start nodes, and one more for each line of standard input, until it closes."""
    import ray  # noqa: F401 - imported once, before forks

    lifeline = Lifeline()  # ends the nodes' first processes with this one
    address, wanted, closed = "", settings["count"], False
    while not closed:
        while len(sessions) < wanted:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(read)
                _be_node(len(sessions), address, directory, settings, lifeline, write)
            sessions.append(child)
            os.close(write)
            with os.fdopen(read) as pipe:
                more = _line_of(pipe)
            if more is None:
                return
            _tell(more)
            address = more["address"]
        ready, _, _ = select.select([0], [], [], 0.25)
        for child in _reap():
            kill_session(child)  # the rest of a node whose first process died
        if ready:
            data = os.read(0, 4096)
            closed = not data
            wanted += data.count(b"\n")


def _line_of(pipe: IO[str]) -> dict[str, Any] | None:
    """Read the report of a started node; None if the run ends first."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.register(0, 0)  # only to detect that standard input closes; lines are read later
    ready = {descriptor for descriptor, _ in poll.poll()}
    if pipe.fileno() not in ready:
        return None
    line = pipe.readline()
    news: dict[str, Any] = json.loads(line) if line else {"fault": "it ended while starting"}
    if "fault" in news:
        raise ConnectionError(news["fault"])
    return news


def _be_node(
    number: int,
    address: str,
    directory: str,
    settings: Mapping[str, Any],
    lifeline: Lifeline,
    write: int,
) -> NoReturn:
    """Run the first process of a node, and end the node when Ray or the keeper ends."""
    os.setsid()
    read = os.dup(lifeline.descriptor)
    lifeline.close()  # only the keeper may hold the other end
    log = os.open(f"{directory}/node-{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nowhere, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ["TMPDIR"] = directory  # files of a killed agent are removed with Ray's files
    try:
        node = _ray_node(number, address, directory, settings)
        news = {"node": number, "address": node.gcs_address, "session": os.getpid()}
        os.write(write, json.dumps(news).encode() + b"\n")
        os.close(write)
        # A node whose raylet died is useless.
        while not (select.select([read], [], [], 0.25)[0] or node.dead_processes()):
            pass
    except BaseException as error:
        text = " ".join(str(error).split())[:300] or type(error).__name__
        with suppress(OSError):
            os.write(write, json.dumps({"fault": text}).encode() + b"\n")
    finally:
        kill_session(os.getpid())
        if select.select([read], [], [], 0)[0]:  # otherwise the keeper removes the directory
            shutil.rmtree(directory, ignore_errors=True)
        os._exit(1)


def _ray_node(number: int, address: str, directory: str, settings: Mapping[str, Any]) -> Any:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    options: dict[str, Any] = (
        {"_system_config": SYSTEM} if number == 0 else {"gcs_address": address}
    )
    options["include_log_monitor"] = False
    params = RayParams(
        **options,
        num_cpus=settings["cores"],
        num_gpus=0,
        memory=settings["memory"],
        object_store_memory=OBJECT_STORE,
        node_ip_address=LOOPBACK,
        node_name=f"local-{number}",
        min_worker_port=0,
        max_worker_port=0,
        include_dashboard=False,
        no_monitor=True,
        temp_dir=directory,
        dashboard_agent_listen_port=0,
    )
    return Node(params, head=number == 0, shutdown_at_exit=False, spawn_reaper=True)


def _tell(news: Mapping[str, Any]) -> None:
    os.write(1, json.dumps(news).encode() + b"\n")


def _reap() -> list[int]:
    ended = []
    with suppress(ChildProcessError):
        while child := os.waitpid(-1, os.WNOHANG)[0]:
            ended.append(child)
    return ended
