"""Close environments; a `close` that raises or hangs is reported, not raised."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from remuda.system.user_errors import where_raised

LIMIT = 5.0  # seconds in total for environments that are closed together
log = logging.getLogger(__name__)


_listener: Callable[[str], None] | None = None
_heard: list[str] = []


class _TooLong(BaseException):
    """An exception that ends a hanging `close`; `except Exception` does not catch it."""


@contextmanager
def listening(say: Callable[[str], None]) -> Iterator[None]:
    """Call `say` once for each fault while closing environments; `faults` lists them."""
    global _listener, _heard
    before = _listener, _heard
    _listener, _heard = say, []
    try:
        yield
    finally:
        _listener, _heard = before


def faults() -> tuple[str, ...]:
    """Return the faults while closing environments since `listening`."""
    return tuple(_heard)


def close_all(copies: Sequence[Any]) -> None:
    """Close environments one after another, within `LIMIT` seconds in total."""
    end = time.monotonic() + LIMIT
    for number, copy in enumerate(copies):
        remaining = end - time.monotonic()
        if remaining <= 0.0:
            note(f"{len(copies) - number} of {len(copies)} environments were not closed")
            return
        close(copy.close, copy, remaining)


def close(call: Callable[[], object], owner: object, limit: float | None = None) -> None:
    """Call a `close`; if it raises or hangs, report that and continue.

    `call` runs in the calling thread. If that is the main thread, a signal interrupts a `call` that
    hangs. Native code that never returns to Python cannot be interrupted, and is only reported.
    """
    name = f"close() of {type(owner).__name__}"
    try:
        with _ended_after(LIMIT if limit is None else limit):
            call()
    except _TooLong:
        note(f"{name} did not end within its time limit, and was interrupted")
    except (Exception, SystemExit) as error:  # `pygame.quit(); sys.exit()` is common
        note(f"{name} raised {where_raised(error) or f'{type(error).__name__}: {error}'}")


@contextmanager
def _ended_after(limit: float) -> Iterator[None]:
    """Raise `_TooLong` after `limit` seconds, unless the signal is already in use."""
    done, lock = threading.Event(), threading.Lock()
    main = threading.main_thread()
    is_free = signal.getsignal(signal.SIGURG) in (signal.SIG_DFL, signal.SIG_IGN)
    can_end = threading.current_thread() is main and is_free

    def watch() -> None:
        if done.wait(limit):
            return
        with lock:
            if can_end and not done.is_set():
                # SIGURG is ignored by default, and seldom used.
                signal.pthread_kill(main.ident or 0, signal.SIGURG)
        if not done.wait(1.0):
            note(f"closing an environment has taken more than {limit:g} s")

    def ring(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if not done.is_set():
            raise _TooLong

    before = signal.signal(signal.SIGURG, ring) if can_end else None
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        with lock:
            done.set()
        if can_end:
            signal.signal(signal.SIGURG, before)


def note(message: str) -> None:
    """Report a message about an environment to the user, once per process."""
    if message not in _heard:
        _heard.append(message)
        (_listener or log.warning)(message)
