"""Start child processes through the fork server, or by spawning if there is none."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from remuda.system.memory.descriptors import nameless_file
from remuda.system.memory.lifeline import Lifeline
from remuda.system.processes.child import STOPPING_SIGNALS
from remuda.system.processes.logs import last_line
from remuda.system.processes.process import (
    ForkedProcess,
    OwnFork,
    Process,
    ServerProcess,
    SpawnedProcess,
    interpreter,
    interpreter_flags,
)
from remuda.system.processes.recipe import Recipe

# all modules that an actor or a learner needs, except user code and the environment
MODULES = (
    *("torch", "numba", "remuda.runtime.host"),
    *("remuda.actor.actor", "remuda.actor.match_seats", "remuda.actor.fixed_seats"),
    *("remuda.actor.role", "remuda.actor.make_seats", "remuda.experience.priorities"),
    *("remuda.experience.segments", "remuda.experience.sequence_replay"),
    *("remuda.learner.group", "remuda.learner.warm_up", "remuda.learner.replay"),
    *("remuda.learner.role", "remuda.learner.rollouts"),
    *("remuda.policies.acting", "remuda.policies.selectors", "remuda.policies.algorithms.dqn"),
    *("remuda.policies.algorithms.kernels.ppo", "remuda.policies.algorithms.iqn"),
    *("remuda.population.births.inheritance", "remuda.population.dealing.lead"),
    *("remuda.population.dealing.follower", "remuda.population.setup"),
    *("remuda.envs.games.array_game", "remuda.envs.workers.pool"),
)
# Prefixes of environment variables that libraries read while they load: another value needs another
# server. Children read the variables of GPUs later.
READ_EARLY = (
    *("PYTHON", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMBA_", "TORCH"),
    *("PYTORCH", "ATEN_", "LD_", "MALLOC_", "GLIBC_", "REMUDA_"),
)
GONE = (errno.EPIPE, errno.ECONNRESET, errno.ECONNREFUSED, errno.ENOTCONN)
PASSING = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)  # a start may succeed later
DYING = 1.0  # seconds for a server to die after it has closed its socket


class Server:
    """The fork server of this process.

    1. This process never waits for the server: requests queue in a socket, and answers come later.
    2. The server ends with this process, whatever ends this process.
    3. If the server cannot start, or died before it served a child, children are spawned.
    """

    def __init__(self, start: Callable[[int, int, int], ServerProcess]) -> None:
        """Start the server by `start`, with three descriptors; may raise OSError."""
        self.surroundings = _surroundings()
        self.served = False  # True once one of its children has started
        self._owner = os.getpid()
        self._users = 0
        self._retired = self._ended = False
        with contextlib.ExitStack() as held:
            self._output = nameless_file("remuda-server")
            held.callback(os.close, self._output)
            self._lifeline = Lifeline()
            held.callback(self._lifeline.close)
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            held.callback(self._requests.close)
            self._requests.setblocking(False)
            with theirs, held_signals():
                self.process = start(theirs.fileno(), self._lifeline.descriptor, self._output)
            self._held = held.pop_all()
        atexit.register(self.end)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait_for_end(self) -> None:
        """Wait up to `DYING` seconds for the end of a server that has closed its socket."""
        limit = time.monotonic() + DYING
        while self.is_alive and time.monotonic() < limit:
            time.sleep(0.002)

    def last_words(self) -> str:
        """Return the last line of the server's output."""
        with contextlib.suppress(OSError):
            return last_line(self._output) or "nothing"
        return "nothing"

    def send(self, parts: list[int]) -> None:
        """Request a child; raise an OSError if the server is dead or its queue is full."""
        socket.send_fds(self._requests, [b"fork"], parts, socket.MSG_NOSIGNAL)
        self._users += 1

    def child_ended(self) -> None:
        self._users -= 1
        if self._retired and not self._users:
            self.end()

    def retire(self) -> None:
        """End the server as soon as its last child has ended."""
        self._retired = True
        if not self._users:
            self.end()

    def end(self) -> None:
        """Kill the server; its children continue."""
        if os.getpid() != self._owner or self._ended:
            return  # a fork of this process does not own the server
        self._ended = True
        atexit.unregister(self.end)
        self.process.kill()
        self.process.wait()
        self._held.close()


class InheritedServer:
    """The server that forked this process."""

    served = True

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        requests.setblocking(False)

    def send(self, parts: list[int]) -> None:
        socket.send_fds(self._requests, [b"fork"], parts, socket.MSG_NOSIGNAL)

    def child_ended(self) -> None:
        """Do nothing: another process ends the server."""


def _execute(requests: int, lifeline: int, output: int) -> ServerProcess:
    """Start a server as a fresh process that imports the libraries."""
    return subprocess.Popen(
        interpreter(
            "from remuda.system.processes.server import main; "
            f"main({requests}, {lifeline}, {MODULES!r})"
        ),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(requests, lifeline),
    )


class ProcessState:
    """The state from which this process starts children; only for its main thread."""

    server: Server | InheritedServer | None = None
    why_not: str = ""  # why children are spawned; empty if they are forked
    is_program: bool = False  # True in the main program if it has run nothing else before
    # for children without another lifeline; this process never closes it
    lifeline: Lifeline | None = None


def begin(start: Callable[[int, int, int], ServerProcess] = _execute) -> None:
    """Start the server of this process by `start` if there is none, without waiting for it."""
    state = ProcessState
    if state.lifeline is None:
        state.lifeline = Lifeline()
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        state.why_not = "this system has no process descriptors (pidfd)"
    if state.why_not or isinstance(state.server, InheritedServer):
        return
    server = state.server
    if server is not None and not server.is_alive:
        if not server.served:
            state.why_not = f"the fork server died; its last output: {server.last_words()}"
        server.end()
        state.server = None
    elif server is not None and server.surroundings != _surroundings():
        server.retire()
        state.server = None
    if state.server is None and not state.why_not:
        try:
            state.server = Server(start)
        except OSError as error:
            if error.errno not in PASSING:
                state.why_not = f"the fork server could not be started: {error.strerror}"


def end() -> None:
    """Let the server end after its last child."""
    if isinstance(ProcessState.server, Server):
        ProcessState.server.retire()
        ProcessState.server = None


def give_up() -> None:
    """Stop using a server that does not answer."""
    if isinstance(ProcessState.server, Server):
        ProcessState.server.end()
    ProcessState.server, ProcessState.why_not = None, "the fork server did not answer"


def inherit(requests: socket.socket) -> None:
    """Let a child of the server request children too."""
    state = ProcessState
    state.server, state.why_not, state.lifeline = InheritedServer(requests), "", None


def server_pid() -> int | None:
    """Return the process id of this process's server, if it runs."""
    server = ProcessState.server
    return server.process.pid if isinstance(server, Server) and server.is_alive else None


def is_own_fork() -> bool:
    """Return whether the server is a fork of this process."""
    server = ProcessState.server
    return isinstance(server, Server) and isinstance(server.process, OwnFork)


def start(
    target: Callable[..., object],
    args: tuple[Any, ...],
    *,
    name: str,
    lifeline: Lifeline | None = None,
    log: str = "",
) -> Process:
    """Start a process that calls `target(*args)`, both picklable, without waiting for it."""
    recipe = Recipe(target, args, name, log)
    for _ in range(2):  # the second attempt finds another server if the first was dying
        begin()
        server = ProcessState.server
        if server is not None:
            try:
                return _request(server, recipe, lifeline or ProcessState.lifeline)
            except OSError as error:
                if error.errno not in GONE:
                    break  # it is alive but its queue is full: spawn instead of waiting
            if isinstance(server, Server):
                server.wait_for_end()
    with held_signals():
        return SpawnedProcess(recipe, lifeline or ProcessState.lifeline)


def _request(
    server: Server | InheritedServer, recipe: Recipe, lifeline: Lifeline | None
) -> ForkedProcess:
    """Request a child; raise an OSError if the server is dead or its queue is full."""
    with contextlib.ExitStack() as if_it_fails, contextlib.ExitStack() as always:
        file = recipe.write(sent=True)
        always.callback(os.close, file)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if_it_fails.callback(ours.close)
        always.callback(theirs.close)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        always.callback(os.close, nowhere)
        parts = [theirs.fileno(), file, *(n if _is_open(n) else nowhere for n in (1, 2))]
        if lifeline is not None:
            parts.append(lifeline.descriptor)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        ours.setblocking(False)
        recipe.send(ours)
        server.send(parts)
        if_it_fails.pop_all()
    return ForkedProcess(server, ours)


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Block the stopping signals until a new child ignores them."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _surroundings() -> tuple[object, ...]:
    """Return the interpreter and environment that a server depends on."""
    return interpreter_flags(), {k: v for k, v in os.environ.items() if k.startswith(READ_EARLY)}
