"""The other actors that deal from the table, as the lead sees them: who may go, what they played.

Who is a member changes by *revisions*: `REVISION` is odd while the lead changes something, and
even otherwise. A follower copies who is there under one even revision, deals by that from then on,
and says so. A place is emptied once every follower deals by a revision in which its member is not
there, none has it in a match, and all its results are taken. Then every follower clears the ring
that it has of that place; only after that another policy may be born there. So nothing that the
one before lived through comes to the newborn's learner.

Results are taken a batch at a time. What is being taken is written down first (`TAKING`), so that
the successor of a lead that dies knows whether the ledger has it: each result is there once. Of the
batch that it was counting when it died, at most `BATCH` results, sums and ratings may lack a part.
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
"""Results that are taken at a time."""
Count = Callable[[Integers, "np.ndarray", Floats], None]
"""Adds up results: the places [M, seats], the returns [M, seats], what was told [metrics, M]."""


class Followers:
    """What the lead asks of the other actors, and takes from them; for the lead alone.

    Without other actors there is nothing to ask: everything is so at once.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        shared: SharedArrays,
        records: RecordBuffer,
        occupants: Occupants,
        births: BirthOrders,
    ) -> None:
        """Ask by the arrays of `table_fields`."""
        self.shards = tuple(shards)
        self._shared, self._records = shared, records
        self._occupants, self._births = occupants, births
        self._left_at: dict[int, int] = {}
        """By place of a member that leaves, the revision in which it is not there any more."""
        self._seen: list[tuple[int, Integers]] = []
        """Of each, at the last look: the revision that it deals by, and who sits in its matches."""

    def __bool__(self) -> bool:
        return bool(self.shards)

    # Who is a member.

    def begin_change(self) -> None:
        """Tell that who is a member changes from now on; until `end_change` none of them looks."""
        if not self:
            return
        revision = self._word(REVISION)
        if revision % 2 == 0:
            self._set_word(REVISION, revision + 1)
            fence_release()  # who sees anything of the change sees that it has begun

    def end_change(self) -> None:
        """Tell that they may look, if anything was changed."""
        revision = self._word(REVISION) if self else 0
        if revision % 2 == 1:
            self._set_word(REVISION, revision + 1)

    def leave(self, place: int) -> None:
        """Note that a member leaves; within a change."""
        if self:
            self._left_at[place] = self._word(REVISION) + 1

    def look(self) -> None:
        """See who sits where; results are to be taken after this, and places emptied after that."""
        if self._left_at:
            self._seen = [(shard.word(SEEN), shard.seated.copy()) for shard in self.shards]
            fence_acquire()

    def have_left(self, place: int) -> bool:
        """Whether none of them deals, or has in a match, the member that leaves this place."""
        if not self:
            return True
        at = self._left_at[place]
        return bool(self._seen) and not any(
            seen < at or (seated == place).any() for seen, seated in self._seen
        )

    def empty(self, place: int) -> None:
        """Have their rings cleared of what was lived through in a place that is empty now."""
        self._left_at.pop(place, None)
        if self and place < len(self.requests):
            store(self.requests, place, load(self.requests, place) + 1)

    @property
    def clearing(self) -> list[int]:
        """The places of live policies whose rings are not all clear yet."""
        if not self:
            return []
        open_ones = np.array([shard.cleared != self.requests for shard in self.shards]).any(0)
        fence_acquire()  # a learner that is told to begin sees these rings clear
        found: list[int] = np.flatnonzero(open_ones).tolist()
        return found

    @property
    def is_waited_for(self) -> bool:
        """Whether a place waits for them to leave it, or to clear a ring."""
        return bool(self._left_at) or bool(self.clearing)

    # What they played.

    @property
    def have_results(self) -> bool:
        """Whether any result is to be taken."""
        return any(shard.word(WRITTEN) != shard.word(TAKEN) for shard in self.shards)

    @property
    def have_finished(self) -> bool:
        """Whether all their turns are played, and all results taken."""
        finished = all(shard.word(FINISHED) for shard in self.shards)  # before a last look
        return finished and not self.have_results

    def take(self, count: Count) -> None:
        """Pass on to the ledger all that they have played until now, and add it up."""
        for number, shard in enumerate(self.shards):
            end = shard.word(WRITTEN)
            while (begin := shard.word(TAKEN)) < end:
                size = min(end - begin, BATCH)
                records, places, returns, told = shard.results(begin, size)
                taking, matches = self._taking, self._word(MATCHES)
                taking[1:5] = begin, size, self._records.written, matches
                store(taking, 0, number + 1)
                self._records.add(records)
                self._finish_taking()
                count(places, returns, np.ascontiguousarray(told.T))

    def hand_over(self) -> None:
        """Once all actors have ended: pass on to the ledger what is left, and add up no more."""
        self._finish_taking()
        self.take(lambda *_: None)

    def repair(self) -> None:
        """For the successor of a lead that died: bring to an end what it had begun.

        What it changed is seen under a new revision; so is what it may not have come to say. All
        rings of empty places are cleared once more.
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
        """Let the counts agree with the records: what they have of a batch that was being taken."""
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
        """[policies]: how often the rings of a place were to be cleared; the lead's to write."""
        requests: Integers = self._shared["clear"]
        return requests

    @property
    def _taking(self) -> Integers:
        """Of which shard a batch is being taken, by number from 1 on; 0: of none.

        And the first result of the batch, its size, and how many records and matches there were.
        """
        taking: Integers = self._shared["taking"]
        return taking
