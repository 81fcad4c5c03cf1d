"""The actors beside the one that owns a table: what each shares, and what the owner takes of it.

If several actors deal one population, the first, the *lead*, owns the table. Each other actor, a
*follower*, deals its own copies from what it reads there, and has a `Shard`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from remuda.memory.atomic import fence_acquire, fence_release, load, store
from remuda.memory.shared import Arena, Fields, SharedArrays
from remuda.population.births import BirthOrders
from remuda.population.ledger import record_type
from remuda.population.table_parts import MATCHES, REVISION, Occupants, RecordBuffer
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
    """A follower's shared memory, which it alone writes, but for the word `TAKEN` of the lead.

    Guarantees, also if a process dies at any instruction:

    1. A result is taken whole, once, and after all of it was written; one that was not counted in
       `WRITTEN` never happened.
    2. The seating of a match is visible before its result can be. So a lead that finds a member
       seated nowhere, and then takes all results, has all of that member's. The seating of a
       follower that died stays until its successor deals.
    3. A ring that it was clearing is cleared again by its successor: the request is still open.
    4. No follower waits: while the queue is full, results are lost and counted in `LOST`.
    """

    def __init__(
        self, copies: int, seats: int, policies: int, metrics: int = 0, arena: Arena | None = None
    ) -> None:
        self._shared = SharedArrays(shard_fields(copies, seats, policies, metrics), arena)
        self.size = room_for_results(seats, metrics)
        self.seated[...] = NO_MEMBER

    @property
    def arrays(self) -> SharedArrays:
        return self._shared

    @property
    def nbytes(self) -> int:
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
        return load(self._shared["words"], word)

    def set_word(self, word: int, value: int) -> None:
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
        store(self.cleared, place, request)

    # The lead's side.

    def results(self, begin: int, count: int) -> tuple[Array, Integers, Array, Floats]:
        """Return copies of results from number `begin` on, as `add` takes them."""
        rows = np.arange(begin, begin + count) % self.size
        shared = self._shared
        places: Integers = shared["places"][rows]
        return shared["records"][rows], places, shared["returns"][rows], shared["metrics"][rows]


BATCH = 256
Count = Callable[[Integers, "np.ndarray", Floats], None]
"""Adds up results: places [M, seats], returns [M, seats], episode metrics [metrics, M]."""


class Followers:
    """The lead's requests to the other actors, and what it takes from them; for the lead alone.

    Membership changes by *revisions*: `REVISION` is odd while the lead changes something. A
    follower copies the members under one even revision, deals by it, and reports it. A place is
    emptied once every follower deals by a revision without its member, none has it in a match, and
    all its results are taken. Then every follower clears its ring of that place; only after that
    may another policy be born there, so no experience of the previous one reaches its learner.

    The batch of results being taken is written down first (`TAKING`), so that the successor of a
    lead that dies knows whether the ledger has it: each result is in the ledger once. In the batch
    that was being counted, sums and ratings may lack up to `BATCH` results.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        shared: SharedArrays,
        records: RecordBuffer,
        occupants: Occupants,
        births: BirthOrders,
    ) -> None:
        self.shards = tuple(shards)
        self._shared, self._records = shared, records
        self._occupants, self._births = occupants, births
        self._left_at: dict[int, int] = {}
        """The first revision without a leaving member, by its place."""
        self._seen: list[tuple[int, Integers]] = []
        """The revision of each follower and the members in its matches, at the last poll."""

    def __bool__(self) -> bool:
        return bool(self.shards)

    # Membership.

    def begin_change(self) -> None:
        """Announce that members change; followers do not read until `end_change`."""
        if not self:
            return
        revision = self._word(REVISION)
        if revision % 2 == 0:
            self._set_word(REVISION, revision + 1)
            fence_release()  # who sees anything of the change sees that it has begun

    def end_change(self) -> None:
        """Announce that members are complete, if anything was changed."""
        revision = self._word(REVISION) if self else 0
        if revision % 2 == 1:
            self._set_word(REVISION, revision + 1)

    def leave(self, place: int) -> None:
        if self:
            self._left_at[place] = self._word(REVISION) + 1

    def look(self) -> None:
        """Poll who sits where. Take results after this, and empty places after that."""
        if self._left_at:
            self._seen = [(shard.word(SEEN), shard.seated.copy()) for shard in self.shards]
            fence_acquire()

    def have_left(self, place: int) -> bool:
        """Return whether no follower deals, or has in a match, the member leaving this place."""
        if not self:
            return True
        at = self._left_at[place]
        return bool(self._seen) and not any(
            seen < at or (seated == place).any() for seen, seated in self._seen
        )

    def empty(self, place: int) -> None:
        """Request that rings of an emptied place are cleared."""
        self._left_at.pop(place, None)
        if self and place < len(self.requests):
            store(self.requests, place, load(self.requests, place) + 1)

    @property
    def clearing(self) -> list[int]:
        """The places of live policies whose rings are not all clear yet."""
        if not self:
            return []
        open_ones = np.array([shard.cleared != self.requests for shard in self.shards]).any(0)
        fence_acquire()  # a learner that begins now sees these rings clear
        return np.flatnonzero(open_ones).tolist()

    @property
    def is_waited_for(self) -> bool:
        """Return whether a place waits for followers to leave it, or to clear a ring."""
        return bool(self._left_at) or bool(self.clearing)

    # Results.

    @property
    def have_results(self) -> bool:
        return any(shard.word(WRITTEN) != shard.word(TAKEN) for shard in self.shards)

    @property
    def have_finished(self) -> bool:
        """Return whether all their turns are played and all results taken."""
        finished = all(shard.word(FINISHED) for shard in self.shards)  # before a last look
        return finished and not self.have_results

    def take(self, count: Count) -> None:
        """Pass all their results to the ledger, and add them up."""
        for number, shard in enumerate(self.shards):
            end = shard.word(WRITTEN)
            while (begin := shard.word(TAKEN)) < end:
                size = min(end - begin, BATCH)
                records, places, returns, metrics = shard.results(begin, size)
                taking, matches = self._taking, self._word(MATCHES)
                taking[1:5] = begin, size, self._records.written, matches
                store(taking, 0, number + 1)
                self._records.add(records)
                self._finish_taking()
                count(places, returns, np.ascontiguousarray(metrics.T))

    def hand_over(self) -> None:
        """Pass the remaining results to the ledger, after all actors have ended; add up no more."""
        self._finish_taking()
        self.take(lambda *_: None)

    def repair(self) -> None:
        """Complete what a lead that died had begun; for its successor.

        Changes become visible under a new revision. All rings of empty places are cleared again.
        """
        if not self:
            return
        self._finish_taking()
        revision = self._word(REVISION)
        revision += revision % 2
        occupants, births = self._occupants, self._births
        for place in range(len(self.requests)):
            if not occupants.is_there(place) and not births.is_expected(place):
                self.empty(place)
        self._left_at = dict.fromkeys(occupants.leaving, revision + 2)
        self._set_word(REVISION, revision + 2)

    def _finish_taking(self) -> None:
        """Adjust the counts to the records of a batch that was being taken."""
        taking = self._taking
        number = load(taking, 0)
        if not number:
            return
        begin, size, written, matches = taking[1:5].tolist()
        if self._records.written >= written + size:
            self.shards[number - 1].set_word(TAKEN, begin + size)
            self._set_word(MATCHES, matches + size)
        store(taking, 0, 0)

    def _word(self, word: int) -> int:
        return load(self._shared["words"], word)

    def _set_word(self, word: int, value: int) -> None:
        store(self._shared["words"], word, value)

    @property
    def requests(self) -> Integers:
        """[policies]: how often the rings of a place were to be cleared; written by the lead."""
        return self._shared["clear"]

    @property
    def _taking(self) -> Integers:
        """Return the batch being taken.

        Its shard, from 1 on (0: none), its first result, its size, and the number of records and
        matches before it.
        """
        return self._shared["taking"]
