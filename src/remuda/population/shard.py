"""A follower's part of a population in shared memory: its results and current seating.

If several actors deal one population, the first, the *lead*, owns the table. Each other actor, a
*follower*, deals its own copies from what it reads there, and has a shard.

The follower writes everything here except the word `TAKEN`, which the lead writes. If a process
dies at any instruction:

- results that a follower had not counted in `WRITTEN` never happened; the lead takes the others,
  whether the follower lives or not;
- the seating of a follower that died stays until its successor deals, so no member loses its place
  before that;
- a ring that it was clearing is cleared again by its successor, which finds the request open.

The queue of results is bounded, and no follower waits for the lead: while the queue is full,
results are lost and counted in `LOST`.
"""

from __future__ import annotations

import numpy as np

from remuda.memory.atomic import fence_release, load, store
from remuda.memory.shared import Arena, Fields, SharedArrays
from remuda.population.ledger import record_type
from remuda.types import Array, Floats, Integers

STRIDE = 8
WRITTEN, TAKEN, LOST, SEEN, PROPOSED, FINISHED = (i * STRIDE for i in range(6))
"""Words, each on its own cache line: results written; results taken by the lead; results lost
because the queue was full; the newest table revision that the follower deals by; matches proposed;
whether all turns are played."""
MOST, MOST_BYTES, LEAST = 1 << 14, 16 * 2**20, 1 << 10
"""Results in a queue: as many as these bytes hold, within these bounds."""
NO_MEMBER = -1  # in `seated`: no match was dealt there yet


def room_for_results(seats: int, metrics: int = 0) -> int:
    """Return how many results a follower may be ahead of the lead."""
    each = record_type(seats).itemsize + 16 * seats + 4 * metrics
    return max(min(MOST, MOST_BYTES // each), LEAST)


def shard_fields(copies: int, seats: int, policies: int, metrics: int = 0) -> Fields:
    """Return the shared arrays of a follower."""
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
    """A follower's shared memory.

    Guarantees:

    1. A result is taken whole, once, and after all of it was written.
    2. The seating of a match is visible before its result can be. So a lead that finds a member
       seated nowhere, and then takes all results, has all of that member's.
    """

    def __init__(
        self, copies: int, seats: int, policies: int, metrics: int = 0, arena: Arena | None = None
    ) -> None:
        """Allocate it; see `shard_fields`."""
        self._shared = SharedArrays(shard_fields(copies, seats, policies, metrics), arena)
        self.size = room_for_results(seats, metrics)
        self.seated[...] = NO_MEMBER

    @property
    def arrays(self) -> SharedArrays:
        """The arrays of `shard_fields`."""
        return self._shared

    @property
    def nbytes(self) -> int:
        """Shared bytes."""
        return self._shared.nbytes

    @property
    def seated(self) -> Integers:
        """[copies, seats]: the places of the members in the follower's matches."""
        return self._shared["seated"]

    @property
    def cleared(self) -> Integers:
        """[policies]: the newest request to clear a ring that was carried out, by place."""
        return self._shared["cleared"]

    def word(self, word: int) -> int:
        """Return a word."""
        return load(self._shared["words"], word)

    def set_word(self, word: int, value: int) -> None:
        """Set a word; for the process that writes it."""
        store(self._shared["words"], word, value)

    # The follower's side.

    def add(self, records: Array, places: Integers, returns: Array, metrics: Floats) -> None:
        """Write results; those without room are lost, and counted."""
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
        """Show the current seating; results of the matches before are written."""
        fence_release()  # who sees them sees the results of their predecessors
        self.seated[...] = seated

    def note_cleared(self, place: int, request: int) -> None:
        """Report that a ring is clear, as requested."""
        store(self.cleared, place, request)

    # The lead's side.

    def results(self, begin: int, count: int) -> tuple[Array, Integers, Array, Floats]:
        """Return copies of results from number `begin` on, as `add` takes them."""
        rows = np.arange(begin, begin + count) % self.size
        shared = self._shared
        places: Integers = shared["places"][rows]
        return shared["records"][rows], places, shared["returns"][rows], shared["metrics"][rows]
