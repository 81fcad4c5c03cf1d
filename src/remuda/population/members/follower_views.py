"""Coordination of several actors that play matches of one population.

The first actor, the *lead*, owns the table of members in shared memory; a slot is a row of it. Each
other actor, a *follower*, reads the table to assign members to its seats, and passes its results to
the lead through its `Shard`. A follower has one ring buffer of experience for each live policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from remuda.population.ledger.ledger import record_type
from remuda.population.members.births import BirthOrders
from remuda.population.members.table_parts import MATCHES, REVISION, Occupants, RecordBuffer, Words
from remuda.system.memory.atomic import fence_acquire, fence_release, load, store
from remuda.system.memory.shared import Arena, Fields, SharedArrays
from remuda.types import Array, Floats, Integers

STRIDE = 8
WRITTEN, TAKEN, LOST, SEEN, PROPOSED, FINISHED = (i * STRIDE for i in range(6))
"""Indices of a shard's counters, each on its own cache line: results written; results taken by the
lead; results lost because the queue was full; the table revision that the follower uses; matches
proposed; whether all turns are played."""
MOST, MOST_BYTES, LEAST = 1 << 14, 16 * 2**20, 1 << 10
"""Limits of a queue: at most `MOST` results and `MOST_BYTES` bytes, at least `LEAST` results."""


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
        "slots": ((size, seats), np.int64),
        "returns": ((size, seats), np.float64),
        "metrics": ((size, metrics), np.float32),
    }


class Shard(Words):
    """A follower's shared memory; only the follower writes it, but the lead writes `TAKEN`.

    Guarantees, even if a process dies at any instruction:

    1. The lead takes a result once, completely, and only after all of it is written. A result that
       is not counted in `WRITTEN` is ignored.
    2. The seating of a match is visible before its result. So if the lead finds a member on no seat
       and then takes all results, it has all results of that member. The seating of a dead follower
       stays until its successor seats members.
    3. If a follower dies while clearing a ring, its successor clears the ring again, because the
       request is still open.
    4. A follower never waits: while the queue is full, results are lost and counted in `LOST`.
    """

    def __init__(
        self, copies: int, seats: int, policies: int, metrics: int = 0, arena: Arena | None = None
    ) -> None:
        super().__init__(SharedArrays(shard_fields(copies, seats, policies, metrics), arena))
        self.size = room_for_results(seats, metrics)
        self.seated[...] = -1  # no match so far

    @property
    def seated(self) -> Integers:
        """[copies, seats]: the slots of the members in each environment copy of the follower."""
        return self._shared["seated"]

    @property
    def cleared(self) -> Integers:
        """[policies], by slot: the newest clearing request that was carried out."""
        return self._shared["cleared"]

    # Called by the follower.

    def add(self, records: Array, slots: Integers, returns: Array, metrics: Floats) -> None:
        """Write results; those that do not fit are lost and counted."""
        begin = self.word(WRITTEN)
        room = min(self.size - (begin - self.word(TAKEN)), len(records))
        rows = np.arange(begin, begin + room) % self.size
        shared = self._shared
        shared["records"][rows], shared["slots"][rows] = records[:room], slots[:room]
        shared["returns"][rows], shared["metrics"][rows] = returns[:room], metrics[:room]
        self.set_word(WRITTEN, begin + room)
        if room < len(records):
            self.set_word(LOST, self.word(LOST) + len(records) - room)

    def seat(self, seated: Integers) -> None:
        """Publish the current seating, after writing the results of the previous matches."""
        fence_release()  # a reader of the new seating also sees the earlier results
        self.seated[...] = seated

    def note_cleared(self, slot: int, request: int) -> None:
        store(self.cleared, slot, request)

    # Called by the lead.

    def results(self, begin: int, count: int) -> tuple[Array, Integers, Array, Floats]:
        """Return copies of `count` results from number `begin`, ordered as in `add`."""
        rows = np.arange(begin, begin + count) % self.size
        shared = self._shared
        slots: Integers = shared["slots"][rows]
        return shared["records"][rows], slots, shared["returns"][rows], shared["metrics"][rows]


BATCH = 256
Count = Callable[[Integers, "np.ndarray", Floats], None]
"""A function that adds up results: slots [M, seats], returns [M, seats], metrics [metrics, M]."""


class Followers(Words):
    """The lead's view of the followers: its requests to them, and their results.

    Membership changes by *revisions*: `REVISION` is odd while the lead changes something. A
    follower copies the members under one even revision, gives them seats, and reports the revision.
    A slot is emptied when every follower uses a revision without its member, no follower has the
    member in a match, and the lead has taken all the member's results. Then every follower clears
    its ring of that slot. Only after that may another policy be born in the slot, so no experience
    of the previous policy reaches the learner.

    The lead records each batch of results in `taking` before it takes the batch. So if the lead
    dies, its successor knows whether the ledger has the batch, and each result is in the ledger
    once. Sums and ratings may lack up to `BATCH` results of that batch.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        shared: SharedArrays,
        records: RecordBuffer,
        occupants: Occupants,
        births: BirthOrders,
    ) -> None:
        super().__init__(shared)
        self.shards, self._records = tuple(shards), records
        self._occupants, self._births = occupants, births
        self._left_at: dict[int, int] = {}
        """The first revision without the member that leaves a slot, by slot."""
        self._seen: list[tuple[int, Integers]] = []
        """The revision of each follower and the members in its matches, at the last poll."""

    def __bool__(self) -> bool:
        return bool(self.shards)

    # Membership.

    def begin_change(self) -> None:
        """Announce a change of members; followers do not read until `end_change`."""
        if not self:
            return
        revision = self.word(REVISION)
        if revision % 2 == 0:
            self.set_word(REVISION, revision + 1)
            fence_release()  # a reader of any changed word also sees the odd revision

    def end_change(self) -> None:
        """Announce that a change of members is complete, if there was one."""
        revision = self.word(REVISION) if self else 0
        if revision % 2 == 1:
            self.set_word(REVISION, revision + 1)

    def leave(self, slot: int) -> None:
        if self:
            self._left_at[slot] = self.word(REVISION) + 1

    def look(self) -> None:
        """Poll the followers' seatings. Call `take` after this, and empty slots after that."""
        if self._left_at:
            self._seen = [(shard.word(SEEN), shard.seated.copy()) for shard in self.shards]
            fence_acquire()

    def have_left(self, slot: int) -> bool:
        """Return whether all followers have dropped the leaving member and ended its matches."""
        if not self:
            return True
        at = self._left_at[slot]
        return bool(self._seen) and not any(
            seen < at or (seated == slot).any() for seen, seated in self._seen
        )

    def empty(self, slot: int) -> None:
        """Request that all followers clear their rings of an emptied slot."""
        self._left_at.pop(slot, None)
        if self and slot < len(self.requests):
            store(self.requests, slot, load(self.requests, slot) + 1)

    @property
    def clearing(self) -> list[int]:
        """The slots of live policies whose rings are not all cleared yet."""
        if not self:
            return []
        open_ones = np.array([shard.cleared != self.requests for shard in self.shards]).any(0)
        fence_acquire()  # a learner that starts now sees the cleared rings
        return np.flatnonzero(open_ones).tolist()

    @property
    def is_waited_for(self) -> bool:
        """Return whether a slot waits for followers to stop using it, or to clear a ring."""
        return bool(self._left_at) or bool(self.clearing)

    # Results.

    @property
    def have_results(self) -> bool:
        return any(shard.word(WRITTEN) != shard.word(TAKEN) for shard in self.shards)

    @property
    def have_finished(self) -> bool:
        finished = all(shard.word(FINISHED) for shard in self.shards)  # read before `have_results`
        return finished and not self.have_results

    def take(self, count: Count) -> None:
        """Pass the followers' results to the ledger, and add them up."""
        for number, shard in enumerate(self.shards):
            end = shard.word(WRITTEN)
            while (begin := shard.word(TAKEN)) < end:
                size = min(end - begin, BATCH)
                records, slots, returns, metrics = shard.results(begin, size)
                taking, matches = self._taking, self.word(MATCHES)
                taking[1:5] = begin, size, self._records.written, matches
                store(taking, 0, number + 1)
                self._records.add(records)
                self._finish_taking()
                count(slots, returns, np.ascontiguousarray(metrics.T))

    def hand_over(self) -> None:
        """Pass the remaining results to the ledger after all actors have ended, without sums."""
        self._finish_taking()
        self.take(lambda *_: None)

    def repair(self) -> None:
        """Complete the unfinished work of a dead lead; called by its successor.

        Changes become visible under a new revision. All rings of empty slots are cleared again.
        """
        if not self:
            return
        self._finish_taking()
        revision = self.word(REVISION)
        revision += revision % 2
        occupants, expected = self._occupants, self._births.expected
        for slot in range(len(self.requests)):
            if not occupants.is_there(slot) and slot not in expected:
                self.empty(slot)
        self._left_at = dict.fromkeys(occupants.leaving, revision + 2)
        self.set_word(REVISION, revision + 2)

    def _finish_taking(self) -> None:
        """Complete the counts of an interrupted batch whose records are written."""
        taking = self._taking
        number = load(taking, 0)
        if not number:
            return
        begin, size, written, matches = taking[1:5].tolist()
        if self._records.written >= written + size:
            self.shards[number - 1].set_word(TAKEN, begin + size)
            self.set_word(MATCHES, matches + size)
        store(taking, 0, 0)

    @property
    def requests(self) -> Integers:
        """[policies]: the number of requests to clear a slot's rings; written by the lead."""
        return self._shared["clear"]

    @property
    def _taking(self) -> Integers:
        """Return the batch being taken.

        It contains the number of the batch's shard, starting at 1 (0 without a batch), the first
        result, the size, and how many records and matches there were before the batch.
        """
        return self._shared["taking"]
