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
TELLING = 1.0  # seconds for the server to report the exit code of a process that has ended


class Process(Protocol):
    """A child process."""

    @property
    def pid(self) -> int | None:
        """Return its process id; None until it has started."""

    @property
    def sentinel(self) -> int:
        """Return a descriptor that is readable when its state changes; read it before each wait."""

    @property
    def exitcode(self) -> int | None:
        """Its exit code, or minus the signal that killed it; None while it starts or runs."""

    @property
    def failure(self) -> str:
        """Return why the system could not start it; empty if it has started or still may."""

    @property
    def was_lost(self) -> bool:
        """Return whether it died before it started, so that the caller should start it again."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def join(self, timeout: float) -> bool:
        """Wait for its end, at most `timeout` seconds; return whether it has ended."""

    def close(self) -> None:
        """Release the handle of a process that has ended."""


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
        self._failure = ""

    @property
    def pid(self) -> int | None:
        self._listen()
        return self._pid

    @property
    def sentinel(self) -> int:
        return self._reply.fileno() if self._descriptor is None else self._descriptor

    @property
    def failure(self) -> str:
        return self._failure

    @property
    def was_lost(self) -> bool:
        return self._code is not None and self._pid is None and not self._failure

    @property
    def exitcode(self) -> int | None:
        self._listen()
        if self._code is None and self._descriptor is not None and _is_ready(self._descriptor, 0.0):
            limit = time.monotonic() + TELLING
            while self._code is None and (left := limit - time.monotonic()) > 0.0:
                if not _is_ready(self._reply.fileno(), left):
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
        limit = time.monotonic() + timeout
        while self.exitcode is None:
            left = limit - time.monotonic()
            if left <= 0.0:
                return False
            _is_ready(self.sentinel, left)
        return True

    def close(self) -> None:
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
                if self._descriptor is None or _is_ready(self._descriptor, 0.0):
                    self._code = UNKNOWN
                return
            what, (number,) = message[:1], NUMBER.unpack(message[1:])
            if what == HELLO:
                self._pid, self._server.served = number, True
                self._descriptor = descriptors[0] if descriptors else None
            elif what == EXITED:
                self._code = number
            elif what == FAILED:
                self._code, self._failure = UNKNOWN, os.strerror(number or errno.EAGAIN)


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
            code = f"import sys; sys.path[:] = {sys.path!r}; "
            code += "from remuda.system.processes.child import main_of_spawned; "
            code += f"main_of_spawned({file}, {alive}, {own})"
            self._process = subprocess.Popen(
                [sys.executable, *util._args_from_interpreter_flags(), "-c", code],  # type: ignore[attr-defined]
                stdin=subprocess.DEVNULL,
                pass_fds=[*own, *recipe.descriptors],
            )
            if_it_fails.pop_all()
        self._sentinel = ours
        self.pid: int | None = self._process.pid

    @property
    def sentinel(self) -> int:
        return self._sentinel

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
        os.close(self._sentinel)


def _is_ready(descriptor: int, timeout: float) -> bool:
    """Return whether a descriptor becomes readable, or its other end closes, before `timeout`."""
    poll, limit = select.poll(), time.monotonic() + timeout
    poll.register(descriptor, select.POLLIN)
    while True:
        left = max(limit - time.monotonic(), 0.0)
        if poll.poll(min(left, AT_ONCE) * 1000.0):
            return True
        if left <= AT_ONCE:
            return False


PAUSE = 0.002  # seconds between two checks for an exit


class ServerProcess(Protocol):
    """The part of `subprocess.Popen` that a server's process needs."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return its exit code, or minus the signal that killed it; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code, or raise `subprocess.TimeoutExpired`."""

    def kill(self) -> None: ...


class OwnFork:
    """A child that this process forked."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._code: int | None = None

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        return self._look(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        if timeout is not None:
            limit = time.monotonic() + timeout
            while self.poll() is None:
                if time.monotonic() > limit:
                    raise subprocess.TimeoutExpired("a fork of this process", timeout)
                time.sleep(PAUSE)
        code = self._look(0)
        assert code is not None
        return code

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _look(self, options: int) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self._pid, options)
            except ChildProcessError:  # an environment waited for all children, or ignores SIGCHLD
                self._code = UNKNOWN
            else:
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
        return self._code
