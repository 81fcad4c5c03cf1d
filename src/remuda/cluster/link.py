"""A link between the bridges of two nodes: one connection, frames in both directions.

The end that opens one shows that it knows the secret of the run, which itself never crosses, and is
in the same epoch; a node that was given up is of an earlier one, and is turned away. The end that
answers shows it too, by what was drawn for this link. So a process that comes to have the port of a
node that is gone is told nothing. Nothing here waits: what does not fit into the connection's
buffers stays until it does, and no frame is made before the last is gone, so a slow node is sent
less often, never late.
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
HELLO = struct.Struct("<8s32s32sqq")
"""Magic, what was drawn for this link, the proof, epoch, number of the node."""
DRAWN = 32
"""Bytes that are drawn for a link."""
CALLS, ANSWERS = b"calls", b"answers"
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

    def hello(self, what: bytes, drawn: bytes, to: int) -> bytes:
        """What is said first, to a node: `what`, `CALLS` or `ANSWERS`, over a link."""
        proof = self.proof(what, drawn, self.epoch, self.number, to)
        return HELLO.pack(MAGIC, drawn, proof, self.epoch, self.number)

    def proof(self, what: bytes, drawn: bytes, epoch: int, number: int, to: int) -> bytes:
        """What only who knows the secret can say, and of use for this link alone."""
        told = drawn + struct.pack("<qqq", epoch, number, to) + what
        return hmac.digest(self.secret, told, "sha256")


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
        self._drawn = b"" if peer is None else os.urandom(DRAWN)
        self._pending: list[memoryview] = []
        if peer is not None:
            self._pending.append(memoryview(me.hello(CALLS, self._drawn, peer)))
        self._wanted = HELLO.size
        self._buffer: Array = np.empty(HELLO.size, np.uint8)
        self._filled, self._has_length, self._check = 0, True, 0

    def fileno(self) -> int:
        """Of the connection."""
        return self._connection.fileno()

    @property
    def is_free(self) -> bool:
        """Whether everything is sent that was to be."""
        return not self._pending

    def send(self, frame: Frame) -> None:
        """Begin to send a frame, where the last one is gone."""
        assert self.is_free
        self.frames += 1
        self._pending = frame.finished()
        self.flush()

    def flush(self) -> None:
        """Send as much as can be sent now."""
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
        """Frames that came, without their length: [bytes] uint8 each, the reader's own."""
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
        """End it."""
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
