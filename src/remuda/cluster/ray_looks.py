"""What Ray's control service says of its nodes, asked in a thread of its own.

Where that service is gone the question does not return. So nobody waits for an answer, and how long
one is owed tells that the service is gone.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.cluster.member import GAP

LOG = logging.getLogger(__name__)
AGAIN = 1.0
"""Seconds after a question that failed until it is asked again."""
END = 1.0
"""Seconds that a question under way has at the end."""


@dataclass(frozen=True)
class Told:
    """What Ray tells of its nodes."""

    entries: Sequence[Mapping[str, Any]]
    """Those that are there, this machine's first."""
    free: Mapping[str, Mapping[str, float]]
    """What is not reserved of them, by Ray's number of the node."""


class Looks:
    """Asks what there is of nodes, one question at a time."""

    def __init__(self, ask: Callable[[], Told]) -> None:
        """Ask for nothing yet."""
        self._ask = ask
        self._questions: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Told] = queue.SimpleQueue()
        self._asked: float | None = None
        self._looked = time.monotonic()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure = ""
        """What the question under way has raised, in words."""

    def newest(self) -> Told | None:
        """An answer that came, once; None: nothing yet, and a question is under way."""
        now = time.monotonic()
        if self._asked is not None and now > self._looked + GAP:
            # This process itself was stopped: an answer may have come, and is heard of later.
            self._asked += now - self._looked
        self._looked = now
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="looks", daemon=True)
            self._thread.start()
        if self._asked is None:
            self._asked = now
            self._questions.put(None)
        try:
            found = self._answers.get_nowait()
        except queue.Empty:
            return None
        self._asked = None
        return found

    @property
    def waits(self) -> float:
        """Seconds for which an answer was owed when this was looked at last; 0: none was."""
        return 0.0 if self._asked is None else self._looked - self._asked

    def stop(self) -> None:
        """Ask no more; a question that does not return is left to itself."""
        self._stopped.set()
        self._questions.put(None)
        if self._thread is not None:
            self._thread.join(END)

    def _work(self) -> None:
        while True:
            self._questions.get()
            while not self._stopped.is_set():
                try:
                    found = self._ask()
                except Exception as error:
                    self.failure = f"{type(error).__name__}: {error}"
                    LOG.info("Ray does not say which nodes there are: %s", self.failure)
                    self._stopped.wait(AGAIN)
                else:
                    self.failure = ""
                    self._answers.put(found)
                    break
            if self._stopped.is_set():
                return
