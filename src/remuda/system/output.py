"""Standard streams that never fail: a broken or stalled output does not end a run.

`install` puts a `Sink` behind `sys.stdout` and `sys.stderr`, for Remuda and the user's code.

1. Characters that the encoding lacks are replaced.
2. Inside `unfailing()`, printing neither raises nor waits for a reader (a stopped terminal, an
   unread pipe). A thread writes; while its queue is full, text is dropped, and a line reports it.
3. Outside of `unfailing()`, printing blocks and raises as with Python's own streams.
"""

from __future__ import annotations

import codecs
import errno
import io
import logging
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from remuda.errors import RemudaError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ERRORS = "remuda.replace"  # name of the codec error handler of installed streams
IN_ASCII = {"±": "+/-", "–": "-", "—": "-", "…": "...", "•": "*", "×": "x", "→": "->"}
"""Readable replacements; every other character becomes a question mark."""
MOST = 256 * 1024  # maximum bytes that wait for a reader
PIECE = 65_536  # maximum bytes of one write, so that a slow reader makes visible progress
AT_ONCE = 0.05
"""Maximum seconds that `print` waits for its text to be written; after a stall it does not wait."""
PATIENCE = 10.0  # seconds without progress after which the end of `unfailing()` drops waiting text
GONE = (errno.EPIPE, errno.EIO, errno.EBADF, errno.ECONNRESET, errno.ENXIO, errno.ENOTCONN)
"""Errors after which an output never works again."""


class OutputError(RemudaError):
    """An output that cannot be written."""


def _replaced(error: UnicodeError) -> tuple[bytes, int]:
    """Replace characters that an encoding lacks; UTF keeps undecodable bytes of file names."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    encoded = bytearray()
    for character in error.object[error.start : error.end]:
        if 0xDC80 <= ord(character) <= 0xDCFF and error.encoding.startswith("utf"):
            encoded.append(ord(character) - 0xDC00)
        else:
            encoded += IN_ASCII.get(character, "?").encode("ascii")
    return bytes(encoded), error.end


codecs.register_error(ERRORS, _replaced)


class Sink(io.FileIO):
    """A raw stream over a descriptor that it never closes."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._descriptor = descriptor
        self._forget()

    def _forget(self) -> None:
        """Start with an empty queue and no thread; called again in a forked child."""
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self.size = self._lost = self._written = 0
        self._stalled = self._gone = False
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Do nothing: the process may print until it ends."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all data, or raise an error; inside `unfailing()` queue it."""
        whole = bytes(data)
        if _open or self.size:
            self._enqueue(whole)
        else:
            self._write_now(whole)
        return len(whole)

    def _write_now(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # a non-blocking descriptor
                select.select([], [self._descriptor], [])
            except OSError as error:
                if error.errno in GONE:
                    raise
                raise OutputError(f"the output cannot be written: {error.strerror}") from None

    def _enqueue(self, data: bytes) -> None:
        with self._changed:
            if self._gone or not self._has_thread():
                return
            if self.size and self.size + len(data) > MOST:
                self._lost += data.count(b"\n")
                return
            self._queue.append(data)
            self.size += len(data)
            self._changed.notify_all()
            if not self._stalled:
                self._stalled = not self._changed.wait_for(lambda: not self.size, AT_ONCE)

    def _has_thread(self) -> bool:
        """Start the thread if needed; return False if that is impossible."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._drain, name="output", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system refuses a new thread, or the interpreter ends
                return False
            self._thread = thread
        return True

    def _drain(self) -> None:
        """Write the queue, in the thread, as long as the process lives."""
        changed = self._changed
        while True:
            with changed:
                changed.wait_for(lambda: self.size)
                data = self._queue.popleft()
            written = self._write_some(data)
            with changed:
                self._written += written
                self.size -= written
                if written < len(data) and not self._gone:
                    self._queue.appendleft(data[written:])
                if not self.size:
                    self._caught_up()
                changed.notify_all()

    def _caught_up(self) -> None:
        self._stalled, lost, self._lost = False, self._lost, 0
        if lost and not self._gone:
            message = f"[{lost} lines are missing here: the output was not read]\n".encode()
            self._queue.append(message)
            self.size += len(message)

    def _write_some(self, data: bytes) -> int:
        """Write a piece; return how many bytes were written, or dropped after an error."""
        try:
            return os.write(self._descriptor, data[:PIECE])
        except BlockingIOError:
            with suppress(OSError, ValueError):
                select.select([], [self._descriptor], [], 1.0)
            return 0
        except OSError as error:
            if error.errno not in GONE:
                return len(data)
            with self._changed:
                self._gone = True
                self._queue.clear()
                return self.size

    def finish(self, patience: float) -> bool:
        """Wait until all is written; return False if nothing is written for `patience` seconds."""
        with self._changed:
            before = -1
            while self.size and not self._gone and self._written != before:
                before = self._written
                self._changed.wait_for(lambda: not self.size or self._gone, patience)
            return not self.size or self._gone


_open: list[object] = []  # an entry for each open `unfailing()`
_lock = threading.Lock()
streams: dict[int, tuple[Sink, TextIO]] = {}
"""The sink and stream of each descriptor; kept, since a log handler may hold the stream."""


def _forget_all() -> None:
    for sink, _ in streams.values():
        sink._forget()


os.register_at_fork(after_in_child=_forget_all)


def install() -> dict[str, tuple[TextIO, TextIO]]:
    """Put sinks behind `sys.stdout` and `sys.stderr`, and move log handlers to them.

    A stream of another kind, such as a notebook's or a test's, is left alone. Return the old and
    the new stream for each changed name in `sys`.
    """
    changed: dict[str, tuple[TextIO, TextIO]] = {}
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        descriptor = _descriptor_of(stream)
        if descriptor is None:
            continue
        with suppress(Exception):  # first write the text in its buffer
            stream.flush()
        if descriptor not in streams:
            streams[descriptor] = _sink_like(stream, descriptor)
        changed[name] = stream, streams[descriptor][1]
        setattr(sys, name, changed[name][1])
        _move_handlers(*changed[name])
    return changed


def _move_handlers(before: TextIO, now: TextIO) -> None:
    """Move log handlers of one stream to another: a script may have set up logging before."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        for handler in getattr(logger, "handlers", ()):  # a placeholder has none
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(now)


def never_fail() -> None:
    """Enter `unfailing()` until the end of this process."""
    install()
    _open.append(never_fail)


def _descriptor_of(stream: object) -> int | None:
    """Return the descriptor of a stream that Python opened at start; None for other streams."""
    if type(stream) is not io.TextIOWrapper:
        return None
    try:
        raw = getattr(stream.buffer, "raw", stream.buffer)
        if type(raw) is not io.FileIO:
            return None
        os.fstat(raw.fileno())  # raises if only the descriptor was closed
        return raw.fileno()
    except (OSError, ValueError):  # it is closed or detached
        return None


def _sink_like(stream: io.TextIOWrapper, descriptor: int) -> tuple[Sink, TextIO]:
    """Make a sink and a text stream over it, with the encoding and buffering of a stream."""
    sink = Sink(descriptor)
    # With `python -u` there is no buffer below the text: `write_through` would only fill it.
    below: Any = sink if stream.write_through else io.BufferedWriter(sink)
    text = io.TextIOWrapper(
        below,
        encoding=stream.encoding,
        errors=ERRORS,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    text.mode = getattr(stream, "mode", "w")  # type: ignore[misc]  # Python's streams have it too
    return sink, text


@contextmanager
def unfailing() -> Iterator[None]:
    """Inside the `with`, printing neither raises nor blocks; the end calls `finish`."""
    with _lock:
        changed = install()
        _open.append(changed)
    try:
        yield
    finally:
        try:
            if len(_open) == 1:
                finish()
        finally:
            with _lock:
                for before, now in changed.values():
                    _move_handlers(now, before)
                _open.remove(changed)
                for name, (before, now) in changed.items():
                    if getattr(sys, name) is now:
                        setattr(sys, name, before)


def finish(patience: float = PATIENCE) -> None:
    """Write all queued text, unless the reader reads nothing for `patience` seconds."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    for sink, _ in list(streams.values()):
        if not sink.finish(patience):
            patience = 0.0  # the other output often has the same reader


def write_at_once(descriptor: int, data: bytes) -> None:
    """Write unless that would block; for signal handlers."""
    with suppress(OSError, ValueError):
        if select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, data)
