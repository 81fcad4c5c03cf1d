"""The newest records of a population, from the actor to the coordinator."""

from __future__ import annotations

import numpy as np

from remuda.memory.atomic import fence_acquire, load, store
from remuda.memory.shared import SharedArrays
from remuda.population.ledger import record_type
from remuda.population.table_layout import NO_POLICY, RECORDS, newest_of
from remuda.types import Array


class RecordBuffer:
    """A ring of records in shared memory with one writer and one reader that never wait.

    Records overwritten before they were read are lost; gaps in their numbers show it.
    """

    def __init__(self, shared: SharedArrays, seats: int) -> None:
        """Write into the arrays of `table_fields`, for so many seats."""
        self._shared = shared
        self.size = newest_of(seats)
        self._at_once = self.size // 4  # the most records written before they are counted
        self._empty = np.zeros(1, record_type(seats))
        for name in ("policy", "version"):
            self._empty[name] = NO_POLICY

    @property
    def written(self) -> int:
        """The number of records so far."""
        return load(self._shared["words"], RECORDS)

    @property
    def nbytes(self) -> int:
        """Their size in bytes."""
        return int(self._shared["records"].nbytes)

    def empty(self, count: int) -> Array:
        """Return so many empty records, to be filled and added."""
        return np.repeat(self._empty, count)

    def add(self, records: Array) -> None:
        """Write these records; for the actor."""
        kept = self._shared["records"]
        for start in range(0, len(records), self._at_once):
            part, begin = records[start : start + self._at_once], self.written
            first = begin % self.size
            here = min(len(part), self.size - first)
            kept[first : first + here], kept[: len(part) - here] = part[:here], part[here:]
            store(self._shared["words"], RECORDS, begin + len(part))

    def since(self, begin: int) -> tuple[Array, int]:
        """Return the records from number `begin` on, and the number of the next.

        If records came too fast, the oldest are lost and there are fewer than the numbers say.
        """
        end = self.written
        begin = max(begin, end - self.size)
        found = self._shared["records"][np.arange(begin, end) % self.size]
        fence_acquire()
        # Meanwhile the actor may have written more, and be writing beyond what it has counted.
        whole = self.written + self._at_once - self.size
        return found[max(whole - begin, 0) :], end
