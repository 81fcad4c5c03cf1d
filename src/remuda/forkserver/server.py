"""The server that children are forked from: it has the libraries loaded, and does nothing else.

It never plays, trains, or touches a GPU, and runs no thread of its own, so that a fork of it is as
good as a fresh process that has just imported the same. Whoever it forks for it serves by one
socket each; all that may block is its own `poll`.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import select
import socket
import struct
import sys
from collections.abc import Sequence
from typing import NoReturn

from remuda.forkserver import child
from remuda.memory.lifeline import die_with_parent

HELLO, EXITED, FAILED = b"H", b"X", b"E"
"""What is said on the socket of a process, with a number each. By the child: its pid, with a
descriptor of it; by the server: its exit code; that it could not be forked, and the error."""
NUMBER = struct.Struct("q")
PARTS = 5
"""Descriptors in a request: the process's socket, recipe, stdout, stderr, and a lifeline or not."""


def main(requests: int, lifeline: int, modules: Sequence[str]) -> None:
    """Import, and serve until the process that started this one is gone.

    Args:
        requests: the socket that it asks by.
        lifeline: the read end of its lifeline.
        modules: what to import.
    """
    child.ignore_held_signals()
    die_with_parent(lifeline, thread=False)
    from remuda.memory.atomic import warm_up
    from remuda.memory.descriptors import raise_limit

    raise_limit()  # each child costs three; its own limit comes with its recipe
    os.close(os.pidfd_open(os.getpid()))  # without it there is no server: children are spawned
    for module in modules:
        importlib.import_module(module)
    warm_up()  # Numba loads what it knows of its types with the first function; no thread is begun
    gc.collect()
    gc.freeze()  # so that a child's collections do not copy all that is shared
    _Server(socket.socket(fileno=requests), lifeline).serve()


class _Server:
    """Forks children, and tells those who asked for them how they ended.

    Everything here belongs to the server's one thread. If it dies, children live on: they hold what
    they need, and those who asked see their deaths by the children's own descriptors.
    """

    def __init__(self, requests: socket.socket, lifeline: int) -> None:
        self._lifeline = lifeline
        self._clients = {requests.fileno(): requests}
        self._owner = requests
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """By descriptor of the process: its pid and its socket."""
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)
        self._poll.register(lifeline, select.POLLIN)

    def serve(self) -> NoReturn:
        """Fork and tell, until the owner is gone."""
        while True:
            for number, _ in self._poll.poll():
                if number in self._clients:
                    self._answer(self._clients[number])
                elif number in self._children:
                    self._reap(number)
                elif number == self._lifeline:
                    os._exit(0)

    def _answer(self, client: socket.socket) -> None:
        try:
            message, parts, flags, _ = socket.recv_fds(client, 16, PARTS)
        except OSError:
            message, parts, flags = b"", [], 0
        if not message:
            self._forget(client)
            return
        if not parts:
            return  # this process may not have them: who asked sees the other end closed
        reply = socket.socket(fileno=parts[0])
        pair: tuple[socket.socket, ...] = ()
        try:
            if flags & socket.MSG_CTRUNC:  # some of the descriptors did not arrive
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            ours, theirs = pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = os.fork()
        except OSError as error:
            _tell(reply, FAILED, error.errno or 0)
            for each in (reply, *pair):
                each.close()
        else:
            if pid == 0:
                self._become(reply, parts[1:], ours, theirs)
            theirs.close()
            descriptor = os.pidfd_open(pid)
            self._children[descriptor] = pid, reply
            self._clients[ours.fileno()] = ours
            self._poll.register(descriptor, select.POLLIN)
            self._poll.register(ours, select.POLLIN)
        for part in parts[1:]:
            os.close(part)

    def _reap(self, descriptor: int) -> None:
        pid, reply = self._children.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        _tell(reply, EXITED, os.waitstatus_to_exitcode(status))
        reply.close()

    def _forget(self, client: socket.socket) -> None:
        """A client is gone; the server goes with its owner."""
        if client is self._owner:
            os._exit(0)
        self._poll.unregister(client)
        del self._clients[client.fileno()]
        client.close()

    def _become(
        self,
        reply: socket.socket,
        parts: Sequence[int],
        ours: socket.socket,
        theirs: socket.socket,
    ) -> NoReturn:
        """Be the child: leave the server behind, say hello, and do what the recipe says."""
        code = child.EXCEPTION
        try:
            recipe, out, err, *rest = parts
            for descriptor, (_, other) in self._children.items():
                os.close(descriptor)
                other.close()
            for client in (*self._clients.values(), ours):
                client.close()
            os.close(self._lifeline)
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
    """Tell who one is; if nobody wants to know any more, end before anything is touched."""
    descriptor = os.pidfd_open(os.getpid())
    try:
        socket.send_fds(reply, [HELLO + NUMBER.pack(os.getpid())], [descriptor])
    except OSError:
        os._exit(0)
    os.close(descriptor)


def _begin(requests: socket.socket) -> None:
    """Have nothing of the server's but its libraries."""
    import atexit
    import weakref
    from multiprocessing import util

    from remuda.forkserver import client

    # What the server registered is not the child's to do; what the child registers is, and both
    # modules register themselves only once.
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    util._finalizer_registry.clear()  # type: ignore[attr-defined]
    atexit.register(util._exit_function)  # type: ignore[attr-defined]
    client.inherit(requests)
    if "numpy" in sys.modules:  # else every child would draw the same numbers
        sys.modules["numpy"].random.seed()


def _tell(reply: socket.socket, what: bytes, number: int) -> None:
    try:
        reply.send(what + NUMBER.pack(number), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        return  # who asked is gone, or does not want to know
