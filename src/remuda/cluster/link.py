"""A link between the bridges of two nodes: one connection, frames in both directions.

The end that opens a link proves that it knows the run's secret and the current epoch (placement
number). A node that was given up is refused. The other end proves the same. Both use random bytes
that are drawn for this link. The secret itself is never sent. Nothing here waits: data that does
not fit into the connection's buffers stays queued. A frame is built only after the previous one is
sent, so a slow node gets fewer frames, but never outdated ones.

    frame:    byte length of the sections, checksums of the length and of the sections, sections
    section:  kind, key, count of numbers, count of bytes; then the numbers; then the bytes

Numbers are little-endian and have 64 bits, checksums 32. Sections are padded to a multiple of
8 bytes. No code is sent.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from remuda.cluster.words import Words
from remuda.errors import RemudaError
from remuda.types import Array, Integers

WORD = 8
HEADER = 4  # numbers before a section
HEAD = struct.Struct("<QII")
LARGEST = 1 << 34  # maximum bytes of a frame


class Kind(IntEnum):
    """The content of a section."""

    HOLDS_RING = 1  # report of a ring: its segments' sequence numbers, then committed steps
    HOLDS_WEIGHTS = 2  # report of the versions of weights
    RING = 3  # new data of a ring
    WEIGHTS = 4  # a snapshot
    FAST = 5  # changed words that are checked in every round
    SLOW = 6  # changed words that are checked a few times a second
    WAKE = 7  # numbers of the roles to wake
    TABLE = 9  # changed words of a population's table
    FROZEN = 10  # the weights of a frozen copy
    NEWBORN = 11  # the initial state of a new policy
    SHARD = 12  # match results of an actor
    IN_STEP = 8  # all earlier data has been sent


@dataclass(frozen=True)
class Section:
    """A part of a frame."""

    kind: int
    key: int
    numbers: Integers
    data: Array  # [bytes] uint8


@dataclass
class Frame:
    """A frame to send, as consecutive buffers."""

    buffers: list[memoryview] = field(default_factory=list)
    size: int = 0

    def add(
        self,
        kind: Kind,
        key: int = 0,
        numbers: Integers | Sequence[int] = (),
        data: Sequence[Array] = (),
    ) -> None:
        views = [_bytes(array) for array in data if array.size]
        size = sum(view.nbytes for view in views)
        fixed = np.array([kind, key, len(numbers), size], np.int64).tobytes()
        fixed += np.asarray(numbers, np.int64).tobytes()
        rest = -size % WORD
        self.buffers += [memoryview(fixed), *views]
        if rest:
            self.buffers.append(memoryview(bytes(rest)))
        self.size += len(fixed) + size + rest

    def add_words(self, kind: Kind, words: Words) -> None:
        """Add the words that were not sent yet, if any."""
        changed = words.changed()
        if changed.size:
            self.add(kind, numbers=changed)

    def finished(self) -> list[memoryview]:
        check = 0
        for buffer in self.buffers:
            check = zlib.crc32(buffer, check)
        return [memoryview(HEAD.pack(self.size, checked(self.size), check)), *self.buffers]


def checked(length: int) -> int:
    """Return the checksum of a frame's length, so a receiver never waits for a damaged length."""
    return zlib.crc32(length.to_bytes(WORD, "little"))


def sections(frame: Array) -> Iterator[Section]:
    """Yield the sections of a frame, [bytes] uint8 without its header, aligned to 8 bytes."""
    at = 0
    words = frame.view(np.int64)
    while at < len(words):
        if at + HEADER > len(words):
            raise RemudaError("the received frame is damaged")
        kind, key, numbers, size = words[at : at + HEADER].tolist()
        at += HEADER
        end = at + numbers + -(-size // WORD)
        if numbers < 0 or size < 0 or end > len(words):
            raise RemudaError("the received frame is damaged")
        begin = (at + numbers) * WORD
        yield Section(kind, key, words[at : at + numbers], frame[begin : begin + size])
        at = end


def _bytes(array: Array) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


MAGIC = b"remuda-1"
HELLO = struct.Struct("<8s32s32sqq")  # magic, random bytes, proof, epoch, number of the node
CALLS, ANSWERS = b"calls", b"answers"
GREETING = 10.0  # seconds within which a new connection must send its greeting
AT_ONCE = 64  # buffers passed to the kernel in one call


class LinkLostError(RemudaError):
    """The connection is lost, or its data is damaged."""


@dataclass(frozen=True)
class Identity:
    """The shared secret and epoch of a link, and the number of this node."""

    secret: bytes  # 32 random bytes of the run
    epoch: int  # number of placements so far
    number: int  # number of this node

    def hello(self, what: bytes, drawn: bytes, to: int) -> bytes:
        proof = self.proof(what, drawn, self.epoch, self.number, to)
        return HELLO.pack(MAGIC, drawn, proof, self.epoch, self.number)

    def proof(self, what: bytes, drawn: bytes, epoch: int, number: int, to: int) -> bytes:
        """Return a proof that this end knows the secret, valid only for this link."""
        message = drawn + struct.pack("<qqq", epoch, number, to) + what
        return hmac.digest(self.secret, message, "sha256")


class Link:
    """One connection to another node; `peer` is that node's number after the greeting."""

    def __init__(self, connection: socket.socket, me: Identity, peer: int | None = None) -> None:
        connection.setblocking(False)
        for name in ("SO_SNDBUF", "SO_RCVBUF"):
            connection.setsockopt(socket.SOL_SOCKET, getattr(socket, name), 4 << 20)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection, self._me = connection, me
        # the expected node; None for an incoming connection until the greeting
        self.peer = peer
        self.is_open = False  # True after the greeting
        self.began = self.heard = time.monotonic()  # times of creation and of last received data
        self.sent_bytes = self.received_bytes = self.frames = 0
        # The accepting end sends nothing before the other end has proved that it knows the secret.
        self._drawn = b"" if peer is None else os.urandom(32)
        self._pending: list[memoryview] = []
        if peer is not None:
            self._pending.append(memoryview(me.hello(CALLS, self._drawn, peer)))
        self._wanted = HELLO.size
        self._buffer: Array = np.empty(HELLO.size, np.uint8)
        self._filled, self._has_length, self._check = 0, True, 0

    def fileno(self) -> int:
        return self.connection.fileno()

    @property
    def is_free(self) -> bool:
        return not self._pending

    def send(self, frame: Frame) -> None:
        """Start to send a frame; the previous one must be sent completely."""
        assert self.is_free
        self.frames += 1
        self._pending = frame.finished()
        self.flush()

    def flush(self) -> None:
        while self._pending:
            try:
                sent = self.connection.sendmsg(self._pending[:AT_ONCE])
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
        """Yield received frames without their header: [bytes] uint8 each, owned by the reader."""
        while True:
            view = memoryview(self._buffer)[self._filled :]  # type: ignore[arg-type]
            try:
                count = self.connection.recv_into(view) if len(view) else 0
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
                    raise LinkLostError("the received frame is damaged")
                self._has_length = True
                self._buffer = np.empty(length, np.uint8)
                if not length:
                    self._expect_length()
            else:
                self._expect_length()
                if zlib.crc32(done) != self._check:  # type: ignore[arg-type]
                    raise LinkLostError("the received frame is damaged")
                yield done

    def close(self) -> None:
        self.connection.close()

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
            raise LinkLostError(f"the other end has epoch {epoch}, this one {self._me.epoch}")
        if self.peer is not None and number != self.peer:
            raise LinkLostError(f"node {number} answered in place of node {self.peer}")
        if self.peer is None:
            self._pending = [memoryview(self._me.hello(ANSWERS, drawn, number))]
            self.flush()
        self.peer, self.is_open = number, True
