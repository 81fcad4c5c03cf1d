"""The other actors that deal from the table, as the lead sees them.

Membership changes by *revisions*: `REVISION` is odd while the lead changes something. A follower
copies the members under one even revision, deals by it from then on, and reports it. A place is
emptied once every follower deals by a revision without its member, none has it in a match, and all
its results are taken. Then every follower clears its ring of that place; only after that may
another policy be born there. So no experience of the previous policy reaches the newborn's learner.

Results are taken in batches. The batch being taken is written down first (`TAKING`), so that the
successor of a lead that dies knows whether the ledger has it: each result is in the ledger once. In
the batch that was being counted, sums and ratings may lack up to `BATCH` results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from remuda.memory.atomic import fence_acquire, fence_release, load, store
from remuda.memory.shared import SharedArrays
from remuda.population.births import BirthOrders
from remuda.population.occupants import Occupants
from remuda.population.record_buffer import RecordBuffer
from remuda.population.shard import FINISHED, SEEN, TAKEN, WRITTEN, Shard
from remuda.population.table_layout import MATCHES, REVISION
from remuda.types import Floats, Integers

BATCH = 256
Count = Callable[[Integers, "np.ndarray", Floats], None]
"""Adds up results: places [M, seats], returns [M, seats], episode metrics [metrics, M]."""


class Followers:
    """The lead's requests to the other actors, and what it takes from them; for the lead alone.

    Without other actors every request is fulfilled at once.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        shared: SharedArrays,
        records: RecordBuffer,
        occupants: Occupants,
        births: BirthOrders,
    ) -> None:
        """Use the arrays of `table_fields`."""
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
        """Note that a member leaves; within a change."""
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
        """Return whether any results can be taken."""
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
