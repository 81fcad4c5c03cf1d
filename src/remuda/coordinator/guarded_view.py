"""A wrapper for views whose exceptions do not end the run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from remuda.errors import UsageError
from remuda.runs.metrics import Goal, Record, View

log = logging.getLogger(__name__)

METHODS = ("start", "show", "log", "say", "close")


class GuardedView:
    """A wrapper that passes everything to a view; exceptions are logged, and the run continues.

    After the first exception only `close` is called. Messages also go to the log.
    """

    def __init__(self, view: View) -> None:
        if not all(callable(getattr(view, name, None)) for name in METHODS):
            raise UsageError(
                f"view needs the methods {', '.join(METHODS[:-1])} and {METHODS[-1]}, and "
                f"{view!r} lacks some; leave `view` out to have the default view"
            )
        self._view = view
        self.failed = ""  # a message about the failure; empty if there is none
        # A view may replace its methods later.
        self.start: Callable[[Goal], None] = lambda goal: self._call(view.start, goal)
        self.show: Callable[[Record], None] = lambda record: self._call(view.show, record)
        self.log: Callable[[Record], None] = lambda record: self._call(view.log, record)

    def say(self, message: str) -> None:
        if logging.getLogger("remuda").handlers:  # the run's log file is open
            log.info("%s", message)
        self._call(self._view.say, message)

    def close(self) -> None:
        """Close the view, also after a failure: it may have to restore the terminal."""
        failed, self.failed = self.failed, ""
        self._call(self._view.close)
        self.failed = failed or self.failed

    def _call(self, method: Callable[..., None], *details: Any) -> None:
        if self.failed:
            return
        try:
            method(*details)
        except Exception as error:
            name = f"{type(self._view).__qualname__}.{method.__name__}"
            words = " ".join(f"{type(error).__name__}: {error}".split())
            self.failed = f"the view failed and was turned off: {name}: {words}"
            log.exception("%s", self.failed)
