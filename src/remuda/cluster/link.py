"""A link between the bridges of two nodes: one connection, frames in both directions.

Whoever opens one shows that he knows the secret of the run and is in the same epoch; a node that
was given up is of an earlier one, and is turned away. Nothing here waits: what does not fit into
the connection's buffers stays until it does, and no frame is made before the last is gone, so a
slow node is sent less often, never late.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from remuda.cluster.messages import LARGEST, WORD, Frame
from remuda.errors import RemudaError
from remuda.types import Array

MAGIC = b"remuda-1"
HELLO = struct.Struct("<8s32sqq")
"""Magic, secret, epoch, number of the node."""
GREETING = 10.0
"""Seconds in which a new connection must have said hello."""
BUFFER = 4 << 20
"""Bytes that are asked for as the connection's own buffers."""
AT_ONCE = 64
"""Buffers handed to the kernel in one call."""


class LinkLostError(RemudaError):
    """The connection is gone, or what came over it is damaged."""


@dataclass(frozen=True)
class Identity:
    """What the two ends of a link must agree on, and who this end is."""

    secret: bytes
    """32 bytes, drawn for the run."""
    epoch: int
    """How often the roles were placed anew."""
    number: int
    """Of this node."""

    @property
    def hello(self) -> bytes:
        """What is said first."""
        return HELLO.pack(MAGIC, self.secret, self.epoch, self.number)


class Link:
    """One connection; `peer` is who is at its other end, once it said hello."""

    def __init__(self, connection: socket.socket, me: Identity, peer: int | None = None) -> None:
        connection.setblocking(False)
        for name in ("SO_SNDBUF", "SO_RCVBUF"):
            connection.setsockopt(socket.SOL_SOCKET, getattr(socket, name), BUFFER)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._me = connection, me
        self.peer = peer
        """Who it should be; of a connection that came in, who says so."""
        self.is_open = False
        """Whether the other end is known."""
        self.began = self.heard = time.monotonic()
        """When it was made, and when anything came last."""
        self.sent_bytes = self.received_bytes = self.frames = 0
        # Who is called says nothing before the caller has shown that he knows the secret.
        self._pending: list[memoryview] = [memoryview(me.hello)] if peer is not None else []
        self._wanted = HELLO.size
        self._buffer: Array = np.empty(HELLO.size, np.uint8)
        self._filled, self._has_length = 0, True

    def fileno(self) -> int:
        """Of the connection."""
        return self._connection.fileno()

    @property
    def is_free(self) -> bool:
        """Whether everything is sent that was to be."""
        return not self._pending

    def send(self, frame: Frame) -> None:
        """Begin to send a frame, where the last one is gone.

        Raises:
            LinkLostError: the connection is gone.
        """
        assert self.is_free
        self.frames += 1
        self._pending = frame.finished()
        self.flush()

    def flush(self) -> None:
        """Send as much as can be sent now.

        Raises:
            LinkLostError: the connection is gone.
        """
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
        """Frames that came, without their length: [bytes] uint8 each, the reader's own.

        Raises:
            LinkLostError: the connection is gone, or the other end may not be here.
        """
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
                length = int.from_bytes(bytes(done), "little")
                if not 0 <= length <= LARGEST or length % WORD:
                    raise LinkLostError("what came is damaged")
                self._has_length = True
                self._buffer = np.empty(length, np.uint8)
                if not length:
                    self._expect_length()
            else:
                self._expect_length()
                yield done

    def close(self) -> None:
        """End it."""
        self._connection.close()

    def _expect_length(self) -> None:
        self._has_length, self._buffer = False, np.empty(WORD, np.uint8)

    def _greet(self, hello: bytes) -> None:
        magic, secret, epoch, number = HELLO.unpack(hello)
        if magic != MAGIC or not hmac.compare_digest(secret, self._me.secret):
            raise LinkLostError("the other end does not belong to this run")
        if epoch != self._me.epoch:
            raise LinkLostError(f"the other end is of epoch {epoch}, this is {self._me.epoch}")
        if self.peer is not None and number != self.peer:
            raise LinkLostError(f"node {number} answered in place of node {self.peer}")
        if self.peer is None:
            self._pending = [memoryview(self._me.hello)]
            self.flush()
        self.peer, self.is_open = number, True
