"""Polling of Ray's control service for its nodes, in a separate thread.

If that service is gone the query does not return: so nothing waits, and a late answer shows it.
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
AGAIN = 1.0  # seconds after which a failed query is repeated
END = 1.0  # seconds that a running query has at the end


@dataclass(frozen=True)
class NodeSnapshot:
    """Ray's list of nodes."""

    entries: Sequence[Mapping[str, Any]]  # entries of the living nodes, this machine's first
    free: Mapping[str, Mapping[str, float]]  # free resources of each node, by Ray's node id


class NodePoller:
    """Queries the nodes, one query at a time."""

    def __init__(self, ask: Callable[[], NodeSnapshot]) -> None:
        self._ask = ask
        self._questions: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[NodeSnapshot] = queue.SimpleQueue()
        self._asked: float | None = None
        self._looked = time.monotonic()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure = ""  # the exception of the running query, in words

    def newest(self) -> NodeSnapshot | None:
        """Return a new answer once, if there is one; start a query if none is running."""
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
        return 0.0 if self._asked is None else self._looked - self._asked

    def stop(self) -> None:
        """Stop; a query that does not return is left alone."""
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
