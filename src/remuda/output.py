"""The standard streams of a process: what cannot be printed never ends the work.

`install` puts a `_Sink` behind `sys.stdout` and `sys.stderr`. Everything printed passes it, whether
Remuda or the user's code prints. Characters that the encoding lacks are replaced.

Inside `unfailing()`, the sink neither raises nor waits for a reader (a stopped terminal, a pipe
that is not read). A thread writes; text that finds the queue full is lost, and a line in its place
says so. Outside of `unfailing()`, printing blocks and raises as Python's own streams do.
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
from typing import TYPE_CHECKING, TextIO

from remuda.errors import RemudaError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ERRORS = "remuda.replace"
"""Name of the codec error handler of installed streams."""
IN_ASCII = {"±": "+/-", "–": "-", "—": "-", "…": "...", "•": "*", "×": "x", "→": "->"}
"""Replacements that still read well; every other character becomes a question mark."""
MOST = 256 * 1024
"""Bytes that wait for a reader at most."""
PIECE = 65_536
"""Bytes that are written by one call at most, so that a slow reader is seen to read."""
AT_ONCE = 0.05
"""Seconds that one write may wait, once per stall: an ordinary line is out when `print` returns."""
PATIENCE = 10.0
"""Seconds without progress after which `unfailing()` gives up what still waits at its end."""
GONE = (errno.EPIPE, errno.EIO, errno.EBADF, errno.ECONNRESET, errno.ENXIO, errno.ENOTCONN)
"""Errors after which an output never works again."""


class OutputError(RemudaError):
    """The output cannot be written."""


def _replaced(error: UnicodeError) -> tuple[bytes, int]:
    """Encode what an encoding lacks; bytes of odd file names stay as they were."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = bytearray()
    for character in error.object[error.start : error.end]:
        is_byte = 0xDC80 <= ord(character) <= 0xDCFF and error.encoding.startswith("utf")
        if is_byte:
            found.append(ord(character) - 0xDC00)
        else:
            found += IN_ASCII.get(character, "?").encode("ascii")
    return bytes(found), error.end


codecs.register_error(ERRORS, _replaced)


class _Sink(io.RawIOBase):
    """The bytes of one descriptor, which it does not own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._forget()

    def _forget(self) -> None:
        """Start with nothing queued and no thread, as a forked child does."""
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._size = self._lost = self._written = 0
        self._stalled = self._gone = False
        self._thread: threading.Thread | None = None

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def writable(self) -> bool:
        """Always."""
        return True

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._descriptor)

    def close(self) -> None:
        """Nothing: the descriptor belongs to the process, which may print to its very end."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all of it, or, inside `unfailing()`, queue it.

        Raises:
            OutputError: the disk is full; only outside of `unfailing()`.
            OSError: the reader is gone; likewise.
        """
        whole = bytes(data)
        if _open or self._size:
            self._hand_over(whole)
        else:
            self._write_now(whole)
        return len(whole)

    def _write_now(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # the descriptor does not wait by itself
                select.select([], [self._descriptor], [])
            except OSError as error:
                if error.errno in GONE:
                    raise
                raise OutputError(f"the output cannot be written: {error.strerror}") from None

    def _hand_over(self, data: bytes) -> None:
        with self._changed:
            if self._gone or not self._has_thread():
                return
            if self._size and self._size + len(data) > MOST:
                self._lost += data.count(b"\n")
                return
            self._queue.append(data)
            self._size += len(data)
            self._changed.notify_all()
            if not self._stalled:
                self._stalled = not self._changed.wait_for(lambda: not self._size, AT_ONCE)

    def _has_thread(self) -> bool:
        """Whether a thread writes what is queued; starts it if need be."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._drain, name="output", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system refuses one, or the interpreter ends
                return False
            self._thread = thread
        return True

    def _drain(self) -> None:
        """Write what is queued, for as long as the process lives."""
        changed = self._changed
        while True:
            with changed:
                changed.wait_for(lambda: self._size)
                data = self._queue.popleft()
            written = self._write_some(data)
            with changed:
                self._written += written
                self._size -= written
                if written < len(data) and not self._gone:
                    self._queue.appendleft(data[written:])
                if not self._size:
                    self._caught_up()
                changed.notify_all()

    def _caught_up(self) -> None:
        self._stalled, lost, self._lost = False, self._lost, 0
        if lost and not self._gone:
            words = f"[{lost} lines are missing here: the output was not read]\n".encode()
            self._queue.append(words)
            self._size += len(words)

    def _write_some(self, data: bytes) -> int:
        """Return how many bytes are done with; what a full disk refuses is lost."""
        try:
            return os.write(self._descriptor, data[:PIECE])
        except BlockingIOError:
            with suppress(OSError, ValueError):
                select.select([], [self._descriptor], [], 1.0)
            return 0
        except OSError as error:
            self._gone = error.errno in GONE
            return len(data) + (self._drop_all() if self._gone else 0)

    def _drop_all(self) -> int:
        with self._changed:
            dropped = sum(map(len, self._queue))
            self._queue.clear()
            return dropped

    def finish(self, patience: float) -> bool:
        """Wait until everything is written; False: nothing was for so many seconds."""
        with self._changed:
            before = -1
            while self._size and not self._gone and self._written != before:
                before = self._written
                self._changed.wait_for(lambda: not self._size or self._gone, patience)
            return not self._size or self._gone


_open: list[object] = []
"""One entry for each `unfailing()` that is open."""
_lock = threading.Lock()
_streams: dict[int, tuple[_Sink, TextIO]] = {}
"""By descriptor, its sink and the stream over it; kept, since a log handler may hold the stream."""


def _forget_all() -> None:
    for sink, _ in _streams.values():
        sink._forget()


os.register_at_fork(after_in_child=_forget_all)


def install() -> dict[str, tuple[TextIO, TextIO]]:
    """Put sinks behind `sys.stdout` and `sys.stderr`.

    A stream of another kind, as a notebook's or a test's, stays as it is.

    Log handlers that write to one of them follow.

    Returns:
        By name, the stream that was there before, and the one that is there now.
    """
    changed: dict[str, tuple[TextIO, TextIO]] = {}
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        descriptor = _descriptor_of(stream)
        if descriptor is None:
            continue
        with suppress(Exception):  # what it still holds comes first
            stream.flush()
        if descriptor not in _streams:
            _streams[descriptor] = _over(_Sink(descriptor), stream)
        changed[name] = stream, _streams[descriptor][1]
        setattr(sys, name, changed[name][1])
        _move_handlers(*changed[name])
    return changed


def _move_handlers(before: TextIO, now: TextIO) -> None:
    """Let the handlers of all loggers that write to one stream write to another.

    A script often sets up logging before it begins a run.
    """
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        for handler in getattr(logger, "handlers", ()):  # a placeholder has none
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(now)


def never_fail() -> None:
    """Let nothing that is printed raise or block, to the end of this process."""
    install()
    _open.append(never_fail)


def _descriptor_of(stream: object) -> int | None:
    """The descriptor of a stream that Python opened for a process; None: it is another kind."""
    if type(stream) is not io.TextIOWrapper:
        return None
    try:
        raw = getattr(stream.buffer, "raw", stream.buffer)
        return raw.fileno() if isinstance(raw, io.FileIO) else None
    except (OSError, ValueError):  # it is closed or detached
        return None


def _over(sink: _Sink, stream: io.TextIOWrapper) -> tuple[_Sink, TextIO]:
    """A text stream over a sink, with the encoding and the buffering of another."""
    text = io.TextIOWrapper(
        io.BufferedWriter(sink),
        encoding=stream.encoding,
        errors=ERRORS,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    text.mode = getattr(stream, "mode", "w")  # type: ignore[misc]  # as Python's own have it
    return sink, text


@contextmanager
def unfailing() -> Iterator[None]:
    """Inside the `with`, nothing that is printed raises or blocks for longer than a moment.

    For work that must not end, or wait, with its output: training, tournaments. At its end, what
    still waits is written, unless the reader takes nothing for `PATIENCE` seconds.
    """
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
    """Write what was printed so far, unless the reader takes nothing for so many seconds."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    for sink, _ in list(_streams.values()):
        if not sink.finish(patience):
            patience = 0.0  # the other output often has the same reader


def write_at_once(descriptor: int, data: bytes) -> None:
    """Write if that is possible without waiting; for signal handlers."""
    with suppress(OSError, ValueError):
        if select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, data)
