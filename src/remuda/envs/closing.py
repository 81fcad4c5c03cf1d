"""Close environments that may raise or hang in `close`; that costs a run a note at most."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from remuda.user_code import where_raised

LIMIT = 5.0  # seconds for environments that are closed together
log = logging.getLogger(__name__)


_listener: Callable[[str], None] | None = None
_heard: list[str] = []


class _TooLong(BaseException):
    """Ends a `close` that hangs; no environment catches it by `except Exception`."""


@contextmanager
def listening(say: Callable[[str], None]) -> Iterator[None]:
    """Call `say` once for each fault of closing in this process, and let `faults` list them."""
    global _listener, _heard
    before = _listener, _heard
    _listener, _heard = say, []
    try:
        yield
    finally:
        _listener, _heard = before


def faults() -> tuple[str, ...]:
    """Return the faults of closing since `listening`."""
    return tuple(_heard)


def close_all(copies: Sequence[Any]) -> None:
    """Close environments one after another, within `LIMIT` seconds together."""
    end = time.monotonic() + LIMIT
    for number, copy in enumerate(copies):
        left = end - time.monotonic()
        if left <= 0.0:
            note(f"{len(copies) - number} of {len(copies)} environments were not closed")
            return
        close(copy.close, copy, left)


def close(call: Callable[[], object], whose: object, limit: float | None = None) -> None:
    """Call a `close`; report one that raises or hangs, and leave it behind.

    In the main thread a signal ends it, so that it runs in the thread that made the environment.
    Native code that never returns to Python cannot be ended, but is reported.
    """
    name = f"close() of {type(whose).__name__}"
    try:
        with _ended_after(LIMIT if limit is None else limit):
            call()
    except _TooLong:
        note(f"{name} did not end within {LIMIT:g} s, and is not waited for any longer")
    except (Exception, SystemExit) as error:  # `pygame.quit(); sys.exit()` is common
        note(f"{name} raised {where_raised(error) or f'{type(error).__name__}: {error}'}")


@contextmanager
def _ended_after(limit: float) -> Iterator[None]:
    """Raise `_TooLong` after `limit` seconds, unless the signal is in use."""
    done, lock = threading.Event(), threading.Lock()
    main = threading.main_thread()
    is_free = signal.getsignal(signal.SIGURG) in (signal.SIG_DFL, signal.SIG_IGN)
    can_end = threading.current_thread() is main and is_free

    def watch() -> None:
        if done.wait(limit):
            return
        with lock:
            if can_end and not done.is_set():
                # Ignored by default, and seldom used by others.
                signal.pthread_kill(main.ident or 0, signal.SIGURG)
        if not done.wait(1.0):
            note(f"an environment is being closed for more than {limit:g} s")

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


def note(words: str) -> None:
    """Report something about an environment to this process's user, once."""
    if words not in _heard:
        _heard.append(words)
        (_listener or log.warning)(words)
