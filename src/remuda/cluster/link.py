"""A link between the bridges of two nodes: one connection, frames in both directions.

The end that opens a link proves that it knows the run's secret, which never crosses itself, and is
in the same epoch: a node that was given up is refused. The other end proves it too, for the random
bytes of this link. Nothing here waits: data that does not fit into the connection's buffers stays
until it does, and no frame is made before the last is sent, so a slow node is sent less often,
never late.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from remuda.cluster.messages import HEAD, LARGEST, WORD, Frame, checked
from remuda.errors import RemudaError
from remuda.types import Array

MAGIC = b"remuda-1"
HELLO = struct.Struct("<8s32s32sqq")  # magic, random bytes, proof, epoch, number of the node
DRAWN = 32  # random bytes of a link
CALLS, ANSWERS = b"calls", b"answers"
GREETING = 10.0  # seconds within which a new connection must send its greeting
BUFFER = 4 << 20  # requested bytes of the connection's own buffers
AT_ONCE = 64  # buffers passed to the kernel in one call


class LinkLostError(RemudaError):
    """The connection is lost, or its data is damaged."""


@dataclass(frozen=True)
class Identity:
    """The common secret and epoch of a link, and the number of this end."""

    secret: bytes  # 32 random bytes of the run
    epoch: int  # how often the roles were placed
    number: int  # number of this node

    def hello(self, what: bytes, drawn: bytes, to: int) -> bytes:
        """Return the greeting for a node; `what` is `CALLS` or `ANSWERS`."""
        proof = self.proof(what, drawn, self.epoch, self.number, to)
        return HELLO.pack(MAGIC, drawn, proof, self.epoch, self.number)

    def proof(self, what: bytes, drawn: bytes, epoch: int, number: int, to: int) -> bytes:
        """Return a proof of knowing the secret, valid for this link only."""
        message = drawn + struct.pack("<qqq", epoch, number, to) + what
        return hmac.digest(self.secret, message, "sha256")


class Link:
    """One connection; `peer` is the node at its other end after the greeting."""

    def __init__(self, connection: socket.socket, me: Identity, peer: int | None = None) -> None:
        connection.setblocking(False)
        for name in ("SO_SNDBUF", "SO_RCVBUF"):
            connection.setsockopt(socket.SOL_SOCKET, getattr(socket, name), BUFFER)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._me = connection, me
        # the expected node; of an incoming connection, the one that it claims to be
        self.peer = peer
        self.is_open = False  # True once the other end is known
        self.began = self.heard = time.monotonic()  # of its creation, and of the last received data
        self.sent_bytes = self.received_bytes = self.frames = 0
        # The called end sends nothing before the caller has proved that it knows the secret.
        self._drawn = b"" if peer is None else os.urandom(DRAWN)
        self._pending: list[memoryview] = []
        if peer is not None:
            self._pending.append(memoryview(me.hello(CALLS, self._drawn, peer)))
        self._wanted = HELLO.size
        self._buffer: Array = np.empty(HELLO.size, np.uint8)
        self._filled, self._has_length, self._check = 0, True, 0

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def is_free(self) -> bool:
        return not self._pending

    def send(self, frame: Frame) -> None:
        """Begin to send a frame; the last one must be sent."""
        assert self.is_free
        self.frames += 1
        self._pending = frame.finished()
        self.flush()

    def flush(self) -> None:
        while self._pending:
            try:
                sent = self._connection.sendmsg(self._pending[:AT_ONCE])
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise LinkLostError(error.strerror or str(error)) from None
            self.sent_bytes += sent
            while self._pending and sent >= self._pending[0].nbytes:
                sent -= self._pending.pop(0).nbytes
            if sent:
                self._pending[0] = self._pending[0][sent:]

    def frames_in(self) -> Iterator[Array]:
        """Yield received frames without their length: [bytes] uint8 each, owned by the reader."""
        while True:
            view = memoryview(self._buffer)[self._filled :]  # type: ignore[arg-type]
            try:
                count = self._connection.recv_into(view) if len(view) else 0
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise LinkLostError(error.strerror or str(error)) from None
            if not count and len(view):
                raise LinkLostError("the other end closed it")
            self._filled += count
            self.received_bytes += count
            self.heard = time.monotonic()
            if self._filled < len(self._buffer):
                continue
            done, self._filled = self._buffer, 0
            if not self.is_open:
                self._greet(bytes(done))
                self._expect_length()
            elif not self._has_length:
                length, of_length, self._check = HEAD.unpack(bytes(done))
                if of_length != checked(length) or length > LARGEST or length % WORD:
                    raise LinkLostError("what came is damaged")
                self._has_length = True
                self._buffer = np.empty(length, np.uint8)
                if not length:
                    self._expect_length()
            else:
                self._expect_length()
                if zlib.crc32(done) != self._check:  # type: ignore[arg-type]
                    raise LinkLostError("what came is damaged")
                yield done

    def close(self) -> None:
        self._connection.close()

    def _expect_length(self) -> None:
        self._has_length, self._buffer = False, np.empty(HEAD.size, np.uint8)

    def _greet(self, hello: bytes) -> None:
        magic, drawn, proof, epoch, number = HELLO.unpack(hello)
        what = CALLS if self.peer is None else ANSWERS
        is_known = hmac.compare_digest(
            proof, self._me.proof(what, drawn, epoch, number, self._me.number)
        )
        if magic != MAGIC or not is_known or (self.peer is not None and drawn != self._drawn):
            raise LinkLostError("the other end does not belong to this run")
        if epoch != self._me.epoch:
            raise LinkLostError(f"the other end is of epoch {epoch}, this is {self._me.epoch}")
        if self.peer is not None and number != self.peer:
            raise LinkLostError(f"node {number} answered in place of node {self.peer}")
        if self.peer is None:
            self._pending = [memoryview(self._me.hello(ANSWERS, drawn, number))]
            self.flush()
        self.peer, self.is_open = number, True
