"""The program's process: standard streams, signals, and a fast exit."""

from __future__ import annotations

import _io
import atexit
import gc
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from remuda.system import output
from remuda.system.processes.child import STOPPING_SIGNALS


def leave(code: str | int | None) -> NoReturn:
    """Exit as `sys.exit(code)` does, without freeing the memory of libraries."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    failed = _flush_outputs()
    _end_files()
    if _flush_outputs() or failed:  # the output was closed, or the disk is full
        code = code or 120  # the interpreter's exit code in this case
    os._exit((code or 0) & 0xFF)


def output_is_gone() -> bool:
    """Return whether the reader of standard output has closed it."""
    output = select.poll()
    output.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def _flush_outputs() -> bool:
    failed = False
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception:  # a game may have replaced the stream
            failed = True
    return failed


def _end_files() -> None:
    # The concrete base class of all files. A check against the abstract `io.IOBase` takes 0.1 ms
    # per type.
    kinds: tuple[type, ...] = (_io._IOBase,)
    if "tempfile" in sys.modules:
        from tempfile import _TemporaryFileCloser, _TemporaryFileWrapper  # type: ignore[attr-defined]

        kinds += (_TemporaryFileCloser, _TemporaryFileWrapper)
    if "zipfile" in sys.modules:
        from zipfile import ZipFile

        kinds += (ZipFile,)
    gc.unfreeze()  # `get_objects` does not list frozen objects
    objects = gc.get_objects()
    # Check each type once: there are thousands of types and a million objects.
    file_types = {each for each in set(map(type, objects)) if issubclass(each, kinds)}
    files = [each for each in objects if type(each) in file_types]
    for file in _inwards(files, kinds):
        # `__del__` closes the file, as the interpreter would. Plain files are only flushed: other
        # files may write into them when they close.
        closes = type(file).__module__ != "_io" and hasattr(file, "__del__")
        with suppress(BaseException):
            file.__del__() if closes else file.flush()


def _inwards(files: Sequence[Any], kinds: tuple[type, ...]) -> list[Any]:
    """Return these files and the files they write to, writers first."""
    ordered: list[Any] = []
    visited: set[int] = set()

    def visit(file: Any) -> None:
        visited.add(id(file))
        for target in gc.get_referents(file, getattr(file, "__dict__", None)):
            if issubclass(type(target), kinds) and id(target) not in visited:
                visit(target)
        ordered.append(file)

    for file in files:
        if id(file) not in visited:
            with suppress(Exception):
                visit(file)
    return ordered[::-1]


def open_standard_streams() -> None:
    """Open /dev/null for closed standard streams, so that no later file gets their descriptors."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # The system picks the lowest free descriptor, which is `number`: lower ones are open.
            os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            stream = open(  # noqa: SIM115
                number, mode, encoding="utf-8", errors="backslashreplace", closefd=False
            )
            setattr(sys, name, stream)


# Exit codes.
INTERRUPTED = 130
HALTED = 3  # a policy stopped learning: too many updates were not finite

_hints: list[str] = []  # printed when a signal ends the process
before_end: list[Callable[[], None]] = []  # called before a signal ends the process


def end_at_once() -> None:
    """Make Ctrl-C, SIGTERM and SIGHUP print one line and end the process (codes 130, 143, 129).

    An exception would pass through half-loaded native libraries, callbacks or finalizers, which may
    abort, swallow the exception, or break. A sudden exit is safe: a run's files survive `kill -9`.
    A run (`Signals`) and a game shown in the terminal (`ends_in_order`) handle signals themselves.
    Call this function in the main thread. Ignored signals, such as SIGINT of a shell's background
    process, stay ignored.
    """
    for number in STOPPING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def set_exit_hints(*words: str) -> None:
    """Set the hints that `exit_message` adds when a signal ends the process."""
    _hints[:] = words


def exit_message(number: int = signal.SIGINT) -> str:
    """Return the line printed when a signal ends the process."""
    what = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    return "; ".join([f"remuda: {what}", *_hints])


@contextmanager
def ends_in_order() -> Iterator[None]:
    """Make Ctrl-C a `KeyboardInterrupt` inside the `with`, so that cleanup runs first."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    for restore in before_end:
        with suppress(Exception):  # the process must end
            restore()
    # The signal may have interrupted a write, or the outputs may be closed.
    output.never_fail()
    with suppress(RuntimeError, OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError):
        if os.isatty(1):
            # Show the cursor, and move below the live view.
            output.write_at_once(1, b"\x1b[?25h\r\n")
    output.write_at_once(2, f"{exit_message(number)}\n".encode())
    os._exit(128 + number)
