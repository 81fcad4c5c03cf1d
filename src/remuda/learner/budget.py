"""Batch sizes that keep updates inside a time budget."""

from __future__ import annotations

LEAST = 8  # least samples of a batch
ROOM = 2.2  # a batch is doubled if this times its duration is inside the budget
MEMORY = 0.8  # weight of past updates in the running mean


class BatchBudget:
    """The size of the next batch.

    It is halved while an update takes longer than the budget, and doubled again, up to the largest,
    while there is time. Durations are a running mean over updates of that size.
    """

    def __init__(self, largest: int, seconds: float | None) -> None:
        self.size = largest
        self._largest, self._seconds = largest, seconds
        self._mean: float | None = None

    def spent(self, seconds: float) -> None:
        """Count an update of the present size that took so long."""
        if self._seconds is None:
            return
        before = self._mean
        self._mean = seconds if before is None else MEMORY * before + (1.0 - MEMORY) * seconds
        size = self.size
        if self._mean > self._seconds:
            size = max(size // 2, min(LEAST, self._largest))
        elif self._mean * ROOM < self._seconds:
            size = min(size * 2, self._largest)
        if size != self.size:
            self.size, self._mean = size, None
