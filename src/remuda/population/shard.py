"""What one follower tells of a population, in shared memory: results, and who sits in its matches.

Where several actors deal one population, the first of them, the *lead*, owns the table. Each other
actor, a *follower*, deals its own copies from what it reads there, and has a shard.

Who writes what: everything here belongs to the follower, except the word `TAKEN`, the lead's. If a
process dies at any instruction:

- results that a follower had not counted in `WRITTEN` never happened; those that it had are taken
  by the lead, whether the follower lives or not;
- who sits in the matches of a follower that died stays as it is until its successor deals: none of
  them loses its place before that;
- a ring that it was clearing is cleared again by its successor, which finds the request open.

The queue of results has a bound, and no follower waits for the lead: where that is away for so long
that the queue is full, results are lost and counted in `LOST`.
"""

from __future__ import annotations

import numpy as np

from remuda.memory.atomic import fence_release, load, store
from remuda.memory.shared import Arena, Fields, SharedArrays
from remuda.population.ledger import record_type
from remuda.types import Array, Floats, Integers

STRIDE = 8
WRITTEN, TAKEN, LOST, SEEN, PROPOSED, FINISHED = (i * STRIDE for i in range(6))
"""Words: results that were written, those that the lead has taken, those that were lost since there
was no room; the newest revision of the table that the follower deals by; matches that it proposed;
and whether all its turns are played. Each on its own cache line."""
MOST, MOST_BYTES, LEAST = 1 << 14, 16 * 2**20, 1 << 10
"""Results that a queue has room for: as many as these bytes hold, within these bounds."""
NO_MEMBER = -1
"""In `seated`: no match was dealt there yet."""


def room_for_results(seats: int, metrics: int = 0) -> int:
    """How many results a follower may be ahead of the lead, in a game of so many seats."""
    each = record_type(seats).itemsize + 16 * seats + 4 * metrics
    return max(min(MOST, MOST_BYTES // each), LEAST)


def shard_fields(copies: int, seats: int, policies: int, metrics: int = 0) -> Fields:
    """What is shared of a follower."""
    size = room_for_results(seats, metrics)
    return {
        "words": ((6 * STRIDE,), np.int64),
        "seated": ((copies, seats), np.int64),
        "cleared": ((policies,), np.int64),
        "records": ((size,), record_type(seats)),
        "places": ((size, seats), np.int64),
        "returns": ((size, seats), np.float64),
        "metrics": ((size, metrics), np.float32),
    }


class Shard:
    """One follower's part of what is shared of a population.

    What it guarantees:

    1. A result is taken whole, once, and after all of it was written.
    2. Who sits in a match that is dealt is seen before its result can be; so a lead that finds a
       member seated nowhere, and takes all results then, has all of that member's.
    """

    def __init__(
        self, copies: int, seats: int, policies: int, metrics: int = 0, arena: Arena | None = None
    ) -> None:
        """Allocate it; see `shard_fields`."""
        self._shared = SharedArrays(shard_fields(copies, seats, policies, metrics), arena)
        self.size = room_for_results(seats, metrics)
        """Results that it has room for."""
        self.seated[...] = NO_MEMBER

    @property
    def arrays(self) -> SharedArrays:
        """Those of `shard_fields`."""
        return self._shared

    @property
    def nbytes(self) -> int:
        """Bytes that are shared."""
        return self._shared.nbytes

    @property
    def seated(self) -> Integers:
        """[copies, seats]: the places of those who sit in the follower's matches."""
        seated: Integers = self._shared["seated"]
        return seated

    @property
    def cleared(self) -> Integers:
        """[policies]: the newest request to clear a ring that was carried out, by place."""
        cleared: Integers = self._shared["cleared"]
        return cleared

    def word(self, word: int) -> int:
        """How much there is of it."""
        return load(self._shared["words"], word)

    def set_word(self, word: int, value: int) -> None:
        """Count; for the process that writes the word."""
        store(self._shared["words"], word, value)

    # The follower's side.

    def add(self, records: Array, places: Integers, returns: Array, metrics: Floats) -> None:
        """Write results; those that there is no room for are lost, and counted."""
        begin = self.word(WRITTEN)
        room = min(self.size - (begin - self.word(TAKEN)), len(records))
        rows = np.arange(begin, begin + room) % self.size
        shared = self._shared
        shared["records"][rows], shared["places"][rows] = records[:room], places[:room]
        shared["returns"][rows], shared["metrics"][rows] = returns[:room], metrics[:room]
        self.set_word(WRITTEN, begin + room)
        if room < len(records):
            self.set_word(LOST, self.word(LOST) + len(records) - room)

    def seat(self, seated: Integers) -> None:
        """Show who sits in the matches from now on; the results of those before are written."""
        fence_release()  # who sees them sees the results of their predecessors
        self.seated[...] = seated

    def note_cleared(self, place: int, request: int) -> None:
        """Tell that a ring is clear, as it was requested."""
        store(self.cleared, place, request)

    # The lead's side.

    def results(self, begin: int, count: int) -> tuple[Array, Integers, Array, Floats]:
        """Copies of results that are written, from number `begin` on; as `add` takes them."""
        rows = np.arange(begin, begin + count) % self.size
        shared = self._shared
        places: Integers = shared["places"][rows]
        return shared["records"][rows], places, shared["returns"][rows], shared["metrics"][rows]
