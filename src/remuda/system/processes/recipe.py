"""The recipe of a child process, and the messages about its start and end.

A recipe is a pickled call with its environment. It is in an anonymous file, which cannot fill up
like a pipe, so its writer never waits; the child reads it when it is ready. Messages and
descriptors go through sockets that keep message boundaries (SOCK_SEQPACKET).
"""

from __future__ import annotations

import array
import errno
import io
import os
import pickle
import resource
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import context, reduction, spawn
from typing import Any

from remuda.system.memory.descriptors import nameless_file
from remuda.system.processes.logs import level_of_child

# Messages on a child's socket, each with a number. The child sends HELLO with its pid and pidfd.
# The server sends EXITED with the exit code. If a start fails, one of them sends FAILED with errno.
HELLO, EXITED, FAILED = b"H", b"X", b"E"
NUMBER = struct.Struct("q")
CHUNK = 250  # descriptors in a message; the kernel allows 253
CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def tell(reply: socket.socket, what: bytes, number: int = 0) -> None:
    """Send a message on the socket of a child without waiting."""
    try:
        reply.send(what + NUMBER.pack(number), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        return  # the receiver is dead


def receive_descriptors(
    source: socket.socket, max_descriptors: int
) -> tuple[bytes, list[int], bool]:
    """Return a message, its descriptors, and whether descriptors were lost.

    The message is empty if the other end has closed. The descriptors are closed on exec;
    `socket.recv_fds` ignores that flag in Python 3.11.
    """
    descriptors = array.array("i")
    size = max_descriptors * descriptors.itemsize
    message, ancillary, flags, _ = source.recvmsg(32, socket.CMSG_LEN(size), CLOSE_ON_EXEC)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return message, list(descriptors), bool(flags & socket.MSG_CTRUNC)


@dataclass(frozen=True)
class Passed:
    """A descriptor for a child: sent to a forked child, inherited by a spawned one."""

    number: int  # in the parent
    index: int  # among those that are sent; -1 if it is inherited

    def detach(self) -> int:
        if self.index >= 0:
            return _received[self.index]
        os.set_inheritable(self.number, False)
        return self.number


_received: list[int] = []  # in a child: the descriptors that it received


@dataclass
class Recipe:
    """A call for a child process, with the environment that it needs."""

    target: Callable[..., object]
    args: tuple[Any, ...]
    name: str
    log: str  # the file for all output of the child; if empty, its parent's output
    # the parent's descriptors that the child needs; filled by `write`
    descriptors: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the log's path absolute: a fork server may run in another directory."""
        if self.log:
            self.log = os.path.abspath(self.log)

    def write(self, sent: bool) -> int:
        """Write the recipe into an anonymous file, and return a descriptor at its start."""
        header: dict[str, Any] = {
            "log": self.log,
            "log_level": level_of_child(bool(self.log)),
            "environment": dict(os.environ),
            "affinity": os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
            "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        }
        self.descriptors.clear()  # an earlier attempt may have failed
        buffer = io.BytesIO()
        descriptors: Any = _Descriptors(self.descriptors, sent)
        context.set_spawning_popen(descriptors)
        try:
            # The same data as for multiprocessing's children: path, directory, main module.
            preparation = spawn.get_preparation_data(self.name)
            if not os.path.exists(preparation.get("init_main_from_path", "/")):
                del preparation["init_main_from_path"]  # an interactive session has no script
            reduction.dump(preparation, buffer)
            reduction.dump((self.target, self.args), buffer)
        finally:
            context.set_spawning_popen(None)
        header["descriptors"] = len(self.descriptors) if sent else 0
        descriptor = nameless_file("remuda-recipe")
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                pickle.dump(header, file)
                file.write(buffer.getbuffer())
            os.lseek(descriptor, 0, os.SEEK_SET)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def send(self, child: socket.socket) -> None:
        """Send the descriptors without waiting; this process may then close its copies."""
        for first in range(0, len(self.descriptors), CHUNK):
            socket.send_fds(child, [b"D"], self.descriptors[first : first + CHUNK])


def receive(parent: socket.socket, count: int) -> None:
    """Receive a child's descriptors, or raise an OSError if they exceed its limit."""
    while len(_received) < count:
        _, descriptors, is_cut = receive_descriptors(parent, CHUNK)
        if is_cut or not descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        _received.extend(descriptors)


class _Descriptors:
    """The interface of `multiprocessing.reduction.DupFd` while a recipe is written."""

    def __init__(self, numbers: list[int], sent: bool) -> None:
        self._numbers, self._sent = numbers, sent

    def duplicate_for_child(self, descriptor: int) -> int:
        """Note a descriptor that the child needs, and return its index."""
        self._numbers.append(descriptor)
        return len(self._numbers) - 1

    def DupFd(self, index: int) -> Passed:  # noqa: N802
        """Return the descriptor as the child receives it."""
        return Passed(self._numbers[index], index if self._sent else -1)
