"""What Ray's control service says of its nodes, asked in a thread of its own.

Where that service is gone the question does not return, and a minute later Ray ends the process
that asked. So nobody waits for an answer, and how long one is owed tells that the service is gone.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Entries = Sequence[Mapping[str, Any]]


class Looks:
    """Asks for Ray's entries of the nodes, one question at a time."""

    def __init__(self, ask: Callable[[], Entries]) -> None:
        """Ask for nothing yet.

        Args:
            ask: what returns the entries, or never returns; called in the thread.
        """
        self._ask = ask
        self._questions: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Entries | Exception] = queue.SimpleQueue()
        self._asked: float | None = None
        self._thread: threading.Thread | None = None

    def newest(self) -> Entries | None:
        """What was answered since this was asked last; None: nothing yet. Another question begins.

        Raises:
            Exception: what the question raised.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="looks", daemon=True)
            self._thread.start()
        if self._asked is None:
            self._asked = time.monotonic()
            self._questions.put(True)
        try:
            found = self._answers.get_nowait()
        except queue.Empty:
            return None
        self._asked = None
        if isinstance(found, Exception):
            raise found
        return found

    @property
    def waits(self) -> float:
        """Seconds for which an answer is owed; 0: none is."""
        return 0.0 if self._asked is None else time.monotonic() - self._asked

    def stop(self) -> None:
        """Ask no more. A question that does not return is left to itself."""
        self._questions.put(False)

    def _work(self) -> None:
        while self._questions.get():
            try:
                self._answers.put(self._ask())
            except Exception as error:
                self._answers.put(error)
