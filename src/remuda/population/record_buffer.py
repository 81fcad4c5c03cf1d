"""The newest records of a population, from the actor that writes them to the coordinator."""

from __future__ import annotations

import numpy as np

from remuda.memory.atomic import fence_acquire, load, store
from remuda.memory.shared import SharedArrays
from remuda.population.ledger import record_type
from remuda.population.table_layout import NO_POLICY, RECORDS, newest_of
from remuda.types import Array


class RecordBuffer:
    """A ring of records in shared memory: one process adds, one reads, and neither waits.

    What is written over before it was read is lost, and shows in the numbers of the records.
    """

    def __init__(self, shared: SharedArrays, seats: int) -> None:
        """Write into the arrays of `table_fields`, for a game of so many seats."""
        self._shared = shared
        self.size = newest_of(seats)
        """Records that are kept."""
        self._at_once = self.size // 4
        """The most that are written before they are counted."""
        self._empty = np.zeros(1, record_type(seats))
        for name in ("policy", "version"):
            self._empty[name] = NO_POLICY

    @property
    def written(self) -> int:
        """How many there were in all."""
        return load(self._shared["words"], RECORDS)

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return int(self._shared["records"].nbytes)

    def empty(self, count: int) -> Array:
        """So many records with nothing in them, to be filled and added."""
        return np.repeat(self._empty, count)

    def add(self, records: Array) -> None:
        """Write these; for the actor."""
        kept = self._shared["records"]
        for start in range(0, len(records), self._at_once):
            part, begin = records[start : start + self._at_once], self.written
            first = begin % self.size
            here = min(len(part), self.size - first)
            kept[first : first + here], kept[: len(part) - here] = part[:here], part[here:]
            store(self._shared["words"], RECORDS, begin + len(part))

    def since(self, begin: int) -> tuple[Array, int]:
        """The records from number `begin` on, and the number of the next to come.

        Of those that came too fast to be fetched, the older ones are lost: there are fewer records
        then than there are numbers from `begin` to the next.
        """
        end = self.written
        begin = max(begin, end - self.size)
        found = self._shared["records"][np.arange(begin, end) % self.size]
        fence_acquire()
        # Meanwhile the actor may have written more, and be writing beyond what it has counted.
        whole = self.written + self._at_once - self.size
        return found[max(whole - begin, 0) :], end
