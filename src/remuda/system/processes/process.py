"""Handles to child processes: watch, kill and join them without blocking."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import time
from multiprocessing import util
from typing import Protocol

from remuda.system.memory.lifeline import Lifeline
from remuda.system.processes.recipe import (
    EXITED,
    FAILED,
    HELLO,
    NUMBER,
    Recipe,
    receive_descriptors,
)

UNKNOWN = 255  # exit code if neither the server nor `waitpid` reported one
AT_ONCE = 3600.0  # the longest single wait in seconds: `poll` counts milliseconds in 32 bits


class Server(Protocol):
    """The interface of the fork server that its children need."""

    served: bool  # True once one of its children has started

    def child_ended(self) -> None: ...


class ForkedProcess:
    """A child of the fork server.

    Until the child sends HELLO it has changed nothing. If this object is closed first, the child
    ends without running its target. After HELLO, the child's pidfd (a process descriptor) reports
    its end and takes signals; the server is needed only for the exit code. If this process cannot
    receive the pidfd, it watches the socket instead: the child holds the other end until it exits.
    """

    def __init__(self, server: Server, reply: socket.socket) -> None:
        self._server, self._reply = server, reply
        self._is_held = True
        self._pid: int | None = None
        self._descriptor: int | None = None
        self._code: int | None = None
        self.failure = ""  # why the system could not start it

    @property
    def pid(self) -> int | None:
        """Its process id; None until it has started."""
        self._listen()
        return self._pid

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable when its state changes; read it before each wait."""
        return self._reply.fileno() if self._descriptor is None else self._descriptor

    @property
    def was_lost(self) -> bool:
        """True if it died before it started, so that the caller should start it again."""
        return self._code is not None and self._pid is None and not self.failure

    @property
    def exitcode(self) -> int | None:
        """Its exit code, or minus the signal that killed it; None while it starts or runs."""
        self._listen()
        if self._code is None and self._descriptor is not None and is_ready(self._descriptor, 0.0):
            limit = time.monotonic() + 1.0  # for the server to report the exit code
            while self._code is None and (remaining := limit - time.monotonic()) > 0.0:
                if not is_ready(self._reply.fileno(), remaining):
                    break
                self._listen()
            if self._code is None:
                self._code = UNKNOWN
        return self._code

    def kill(self) -> None:
        """Kill it; if it has not started, it never will."""
        if self._code is not None:
            return
        self._listen()
        if self._pid is None:
            # From here on HELLO fails, and the child ends; earlier messages are still read.
            with contextlib.suppress(OSError):
                self._reply.shutdown(socket.SHUT_RD)
            self._listen()
        if self._pid is None:
            if self._code in (None, UNKNOWN):
                self._code = -signal.SIGKILL
            return
        with contextlib.suppress(ProcessLookupError):
            if self._descriptor is not None:
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
            elif self._code in (None, UNKNOWN):  # no exit was reported: the pid is not reused yet
                os.kill(self._pid, signal.SIGKILL)

    def join(self, timeout: float) -> bool:
        """Wait for its end, at most `timeout` seconds; return whether it has ended."""
        limit = time.monotonic() + timeout
        while self.exitcode is None:
            remaining = limit - time.monotonic()
            if remaining <= 0.0:
                return False
            is_ready(self.sentinel, remaining)
        return True

    def close(self) -> None:
        """Release the handle of a process that has ended."""
        self._reply.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._is_held:
            self._is_held = False
            self._server.child_ended()

    def _listen(self) -> None:
        while self._code is None:
            try:
                message, descriptors, _ = receive_descriptors(self._reply, 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                # The other end was closed with unread messages. The kernel reports this once,
                # before the messages that are queued here: read them all.
                continue
            except OSError:
                message, descriptors = b"", []
            if not message:  # neither the server nor the child holds the other end
                if self._descriptor is None or is_ready(self._descriptor, 0.0):
                    self._code = UNKNOWN
                return
            what, (number,) = message[:1], NUMBER.unpack(message[1:])
            if what == HELLO:
                self._pid, self._server.served = number, True
                self._descriptor = descriptors[0] if descriptors else None
            elif what == EXITED:
                self._code = number
            elif what == FAILED:
                self._code, self.failure = UNKNOWN, os.strerror(number or errno.EAGAIN)


class SpawnedProcess:
    """A child that starts as a fresh interpreter: slow, but possible on every system."""

    was_lost = False
    failure = ""

    def __init__(self, recipe: Recipe, lifeline: Lifeline | None) -> None:
        """Start it, or raise an OSError if the system lacks resources for it."""
        alive = lifeline.descriptor if lifeline is not None else None
        with contextlib.ExitStack() as if_it_fails, contextlib.ExitStack() as always:
            file = recipe.write(sent=False)
            always.callback(os.close, file)
            ours, theirs = os.pipe()
            if_it_fails.callback(os.close, ours)
            always.callback(os.close, theirs)
            own = [file, theirs] if alive is None else [file, theirs, alive]
            self._process = subprocess.Popen(
                interpreter(
                    "from remuda.system.processes.child import main_of_spawned; "
                    f"main_of_spawned({file}, {alive}, {own})"
                ),
                stdin=subprocess.DEVNULL,
                pass_fds=[*own, *recipe.descriptors],
            )
            if_it_fails.pop_all()
        self.sentinel = ours
        self.pid: int | None = self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    def join(self, timeout: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        return self._process.returncode is not None

    def close(self) -> None:
        os.close(self.sentinel)


Process = ForkedProcess | SpawnedProcess


def interpreter_flags() -> list[str]:
    """Return this interpreter and its flags, as `multiprocessing` passes them to children."""
    return [sys.executable, *util._args_from_interpreter_flags()]  # type: ignore[attr-defined]


def interpreter(code: str) -> list[str]:
    """Return the command that runs code in a fresh interpreter with this process's search path."""
    return [*interpreter_flags(), "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"]


def is_ready(descriptor: int, timeout: float) -> bool:
    """Return whether a descriptor is readable, or its other end closed, within `timeout`.

    A wait ends after `AT_ONCE` seconds at the latest; the caller repeats it.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(min(timeout, AT_ONCE) * 1000.0))


class OwnFork:
    """A child that this process forked, used like a `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        return self._wait(0)

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _wait(self, options: int) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # an environment waited for all children, or ignores SIGCHLD
                self._code = UNKNOWN
            else:
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
        return self._code


ServerProcess = subprocess.Popen[bytes] | OwnFork
