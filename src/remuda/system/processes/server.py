"""The fork server: it loads the libraries and forks children, nothing else.

It is a fresh process that imports the libraries (`main`), or a fork of the main program, which has
imported them (`fork`). It never plays, trains, or touches a GPU, and starts no thread, so a fork of
it is as clean as a fresh process with the same imports. Each process that it forks has a separate
socket to the server, which blocks only in `poll`.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Sequence
from multiprocessing import util
from typing import NoReturn

from remuda.system.memory.lifeline import die_with_parent
from remuda.system.processes import child
from remuda.system.processes.client import MODULES, ProcessState, begin, inherit
from remuda.system.processes.process import OwnFork
from remuda.system.processes.recipe import EXITED, FAILED, HELLO, NUMBER, receive_descriptors, tell

# descriptors in a request: socket of the process, recipe, stdout, stderr, maybe a lifeline
PARTS = 5


def main(requests: int, lifeline: int, modules: Sequence[str]) -> None:
    """Import modules, and serve until the parent process ends."""
    child.ignore_held_signals()
    for descriptor in (requests, lifeline):  # libraries may start programs while they load
        os.set_inheritable(descriptor, False)
    own = die_with_parent(lifeline, thread=False)
    os.close(os.pidfd_open(os.getpid()))  # a system without pidfds fails here: children are spawned
    load(modules)
    _serve(requests, lifeline, own)


def load(modules: Sequence[str]) -> None:
    """Import modules for children, and exclude them from garbage collection."""
    from remuda.system.memory.atomic import warm_up

    was_enabled = gc.isenabled()
    gc.disable()  # collections cost a tenth of the time
    try:
        for module in modules:
            importlib.import_module(module)
        warm_up()  # Numba loads its type tables with the first function
        # A collection first would cost a tenth of a second; libraries leave little garbage.
        gc.freeze()  # so a collection in a fork does not touch, and so copy, these pages
    finally:
        if was_enabled:
            gc.enable()


def fork(requests: int, lifeline: int, output: int) -> int:
    """Fork a server from this process, which has loaded the libraries; return its process id.

    The process must have done nothing else. Its only other threads are sleeping threads of
    libraries that support forking. The caller blocks signals (`held_signals`).
    """
    os.close(os.pidfd_open(os.getpid()))  # as in `main`
    for stream in (sys.stdout, sys.stderr):  # else both processes would write the buffered output
        with contextlib.suppress(Exception):
            stream.flush()
    pid = _fork_now()
    if pid:
        return pid
    try:
        child.ignore_held_signals()
        # Numbers above the standard streams; the originals are closed or replaced next.
        requests, lifeline, output = (
            number if number > 2 else fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
            for number in (requests, lifeline, output)
        )
        for name in os.listdir("/proc/self/fd"):
            if (number := int(name)) > 2 and number not in (requests, lifeline, output):
                with contextlib.suppress(OSError):  # the descriptor of this listing
                    os.close(number)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, number in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, number)
        for descriptor in (nothing, output):
            os.close(descriptor)
        _serve(requests, lifeline, die_with_parent(lifeline, thread=False))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(child.EXCEPTION)


def _fork_now() -> int:
    """Fork without Python's warning about threads: only libraries' sleeping threads exist."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _serve(requests: int, lifeline: int, own: int | None) -> NoReturn:
    from remuda.system.memory.descriptors import raise_limit

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, `waitpid` reports no exit code
    raise_limit()  # each child needs three descriptors; its limit comes with its recipe
    _Server(socket.socket(fileno=requests), lifeline, own).serve()


class _Server:
    """The loop that forks children and reports their exit codes.

    It is single-threaded. If it dies, children keep running: they hold all that they need, and
    their parents see their deaths by the children's pidfds.
    """

    def __init__(self, requests: socket.socket, lifeline: int, own: int | None) -> None:
        self._lifeline, self._own = lifeline, own
        # Closed while a request is answered: this frees one descriptor, for the socket that reports
        # a lack of descriptors.
        self._spare = os.dup(lifeline)
        self._clients = {requests.fileno(): requests}
        self._owner = requests
        # pid and socket of each child, by its pidfd
        self._children: dict[int, tuple[int, socket.socket]] = {}
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)
        self._poll.register(lifeline, select.POLLIN)

    def serve(self) -> NoReturn:
        """Fork and report until the owner ends."""
        while True:
            for number, _ in self._poll.poll():
                if number in self._clients:
                    self._answer(self._clients[number])
                elif number in self._children:
                    self._reap(number)
                elif number == self._lifeline:
                    os._exit(0)

    def _answer(self, client: socket.socket) -> None:
        os.close(self._spare)
        try:
            message, parts, is_cut = receive_descriptors(client, PARTS)
        except OSError:
            message, parts, is_cut = b"", [], False
        if not message:
            self._forget(client)
        elif parts:
            reply, rest = socket.socket(fileno=parts[0]), parts[1:]
            try:
                if is_cut:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                self._fork(reply, rest)
            except OSError as error:
                tell(reply, FAILED, error.errno or 0)
                reply.close()
            for part in rest:
                os.close(part)
        self._spare = os.dup(self._lifeline)  # the closed parts freed a descriptor

    def _fork(self, reply: socket.socket, parts: Sequence[int]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = _fork_now()
            if pid == 0:
                self._become(reply, parts, ours, theirs)
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:  # the server cannot watch it, so it must not run
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._children[descriptor] = pid, reply
        self._clients[ours.fileno()] = ours
        self._poll.register(descriptor, select.POLLIN)
        self._poll.register(ours, select.POLLIN)

    def _reap(self, descriptor: int) -> None:
        pid, reply = self._children.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        tell(reply, EXITED, os.waitstatus_to_exitcode(status))
        reply.close()

    def _forget(self, client: socket.socket) -> None:
        """Remove a dead client; the server ends with its owner."""
        if client is self._owner:
            os._exit(0)
        self._poll.unregister(client)
        del self._clients[client.fileno()]
        client.close()

    def _become(
        self, reply: socket.socket, parts: Sequence[int], ours: socket.socket, theirs: socket.socket
    ) -> NoReturn:
        """Become the child: close the server's descriptors, say hello, and execute the recipe."""
        code = child.EXCEPTION
        try:
            recipe, out, err, *rest = parts
            for descriptor, (_, other) in self._children.items():
                os.close(descriptor)
                other.close()
            for client in (*self._clients.values(), ours):
                client.close()
            os.close(self._lifeline)
            if self._own is not None:
                os.close(self._own)
            os.dup2(out, 1)
            os.dup2(err, 2)
            for descriptor in (out, err):
                os.close(descriptor)
            gc.unfreeze()
            _hello(reply)
            _begin(theirs)
            child.main(recipe, rest[0] if rest else None, reply)
        finally:
            os._exit(code)


def _hello(reply: socket.socket) -> None:
    """Send this process's id to the parent; if the parent has closed the socket, end at once."""
    try:
        descriptor, hello = os.pidfd_open(os.getpid()), HELLO + NUMBER.pack(os.getpid())
        try:
            socket.send_fds(reply, [hello], [descriptor])
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                raise
            reply.send(hello)  # too many descriptors in flight: the parent watches the socket
        os.close(descriptor)
    except OSError as error:
        tell(reply, FAILED, error.errno or 0)
        os._exit(0)


def _begin(requests: socket.socket) -> None:
    """Drop all state of the server except its libraries."""
    # The server's exit functions must not run in the child, and the child's must. Both modules
    # register themselves only once.
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    util._finalizer_registry.clear()  # type: ignore[attr-defined]
    atexit.register(util._exit_function)  # type: ignore[attr-defined]
    inherit(requests)


def is_the_program() -> None:
    """Mark this process as the main program, which has run only Remuda's start so far."""
    ProcessState.is_program = True


def load_libraries(say: Callable[[str], None]) -> bool:
    """Load the libraries of a run without collecting garbage, if this is a fresh main program.

    Returns False in any other process, which has done nothing then.
    """
    if not ProcessState.is_program or "torch" in sys.modules:
        return False
    from remuda.system.compiling import reporting_compiling

    with reporting_compiling(say):  # only in this process, so fork afterwards
        load(MODULES)
    return True


def load_and_begin(say: Callable[[str], None]) -> None:
    """Load the libraries that children need, and fork the server from this process.

    So the main program and the server load the libraries only once. In any process but a fresh main
    program, this only calls `begin`.
    """
    can_fork = threading.active_count() == 1 and sys.platform == "linux"
    if can_fork and ProcessState.server is None and load_libraries(say):
        begin(lambda *descriptors: OwnFork(fork(*descriptors)))
    begin()
