"""Keeping updates inside a time budget, by the size of their batches."""

from __future__ import annotations

LEAST = 8
"""Samples that a batch always has, however little time there is."""
ROOM = 2.2
"""A batch is doubled where so many times the time it takes would still be inside the budget."""
MEMORY = 0.8
"""The share of the mean time that is kept when another update is counted in."""


class BatchBudget:
    """The size of the next batch.

    It is halved while an update takes longer than the budget, and doubled again, up to the largest,
    while there is time; what an update takes is a running mean over those of that size.
    """

    def __init__(self, largest: int, seconds: float | None) -> None:
        """Begin with the largest batch; without `seconds` it stays."""
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
