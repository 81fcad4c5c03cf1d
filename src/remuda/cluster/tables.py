"""Synchronisation of a population's table and of match results between nodes.

The first actor, the lead, runs on the head and writes the table of the population's members. The
other actors are followers. On other nodes the bridge writes the parts of the table that learners
and followers read. The head's bridge reads the table between two changes by the lead. A bridge that
dies while writing leaves the revision odd, as a lead does; its successor receives the whole table.

Each follower's shard (its match results) and the seats in its matches are copied to the head. The
word that marks a ring as cleared goes to the learner's node after the ring itself, and from there
to the head. The head therefore starts no new policy before the old policy's steps are removed.
"""

from __future__ import annotations

import numpy as np

from remuda.cluster.link import Frame, Kind
from remuda.cluster.words import Words
from remuda.population.members.follower_views import TAKEN, WRITTEN, Shard
from remuda.population.members.table import Table
from remuda.population.members.table_parts import MATCHES, MOVES, ORDERED, REVISION
from remuda.system.memory.atomic import fence_acquire, fence_release, load, store
from remuda.types import Array, Integers

RESULTS = ("records", "slots", "returns", "metrics")
FOR_FOLLOWERS = ("numbers", "pairs", "recent", "clear")
FOR_ALL = ("identity", "leaving", "hyperparameters", "sequence")


def table_words(table: Table, has_followers: bool, elsewhere: list[int]) -> Words:
    """Return the words of the table that another node needs; both ends use this order."""
    arrays = table.arrays
    columns = arrays["orders"].shape[1]
    orders = [
        slot * columns + column
        for slot in range(len(table.policies))
        for column in range(columns)
        if column <= ORDERED + 1 or slot in elsewhere
    ]
    names = (*(FOR_FOLLOWERS if has_followers else ()), *FOR_ALL)
    parts: list[tuple[Array, list[int] | slice]] = [(arrays[name], slice(None)) for name in names]
    return Words([*parts, (arrays["orders"], orders), (arrays["words"], [MATCHES, REVISION])])


class TableOut:
    """The sender of the table from the head to another node."""

    def __init__(self, table: Table, words: Words, copies: bool, learn: list[int]) -> None:
        self._table, self._words, self._learn = table, words, learn
        self._orders: Integers = np.full(len(table.policies), -1, np.int64)
        slots = len(table.slots)
        self._frozen: Integers = np.full(slots, -1, np.int64)
        self._copies = copies
        self.is_read = False  # True if the lead changed nothing during the last `read`

    def read(self) -> None:
        """Read the words, before rings and weights; record whether the words are consistent."""
        arrays = self._table.arrays
        before, moves = (load(arrays["words"], word) for word in (REVISION, MOVES))
        sequence = arrays["sequence"]
        was = sequence.copy()
        fence_acquire()
        self._words.read()
        same = (sequence == was).all() and not (was % 2).any()
        same &= before == load(arrays["words"], REVISION) and before % 2 == 0
        self.is_read = bool(same) and moves == load(arrays["words"], MOVES) and moves % 2 == 0

    def add(self, frame: Frame) -> None:
        if not self.is_read:
            return
        table = self._table
        if self._copies:
            sequence = table.arrays["sequence"].copy()
            for slot in np.flatnonzero(sequence != self._frozen).tolist():
                rows = table.frozen_weights.rows(slot)
                if rows and table.occupants.is_there(slot):
                    frame.add(Kind.FROZEN, slot, data=[row.copy() for row in rows])
            self._frozen = sequence
        orders = table.births.all[:, ORDERED].copy()
        for slot in self._learn:
            if orders[slot] != self._orders[slot]:
                rows = table.births.rows(table.policies[slot])
                frame.add(Kind.NEWBORN, slot, data=[row.copy() for row in rows])
        self._orders = orders
        frame.add_words(Kind.TABLE, self._words)


class TableIn:
    """The writer of the table on a node without the lead."""

    def __init__(self, table: Table, words: Words) -> None:
        self._table, self._words = table, words

    def freeze(self, slot: int, data: Array) -> None:
        """Write the weights of a frozen copy; `write` later completes it with its identity."""
        sequence = self._table.arrays["sequence"]
        store(sequence, slot, int(sequence[slot]) | 1)
        fence_release()
        _fill(self._table.frozen_weights.rows(slot), data)

    def put_newborn(self, slot: int, data: Array) -> None:
        """Write the initial state of a new policy; `write` later lets the learner start it."""
        _fill(self._table.births.rows(self._table.policies[slot]), data)

    def write(self, at: Integers, values: Integers) -> None:
        words = self._table.arrays["words"]
        if len(at) and at[-1] == len(self._words) - 1:  # the revision
            store(words, REVISION, load(words, REVISION) | 1)
            fence_release()
        self._words.write(at, values)


class ShardOut:
    """The sender of a local follower's results; `add` returns False if more remain."""

    def __init__(self, shard: Shard) -> None:
        self._shard, self._sent = shard, shard.word(TAKEN)

    def add(self, frame: Frame, actor: int) -> bool:
        written = self._shard.word(WRITTEN)
        self._sent = max(self._sent, written - self._shard.size)
        count = min(written - self._sent, 2048)  # results in a frame
        if count > 0:
            rows = np.arange(self._sent, self._sent + count) % self._shard.size
            results = [self._shard.arrays[name][rows] for name in RESULTS]
            frame.add(Kind.SHARD, actor, [self._sent, count], results)
            self._sent += count
        return self._sent == written


def write_results(shard: Shard, begin: int, count: int, data: Array) -> None:
    """Store `count` results of a remote follower on the head, from result `begin`."""
    rows = np.arange(begin, begin + count) % shard.size
    results = [shard.arrays[name][rows] for name in RESULTS]
    _fill(results, data)
    for name, result in zip(RESULTS, results, strict=True):
        shard.arrays[name][rows] = result
    shard.set_word(WRITTEN, max(shard.word(WRITTEN), begin + count))


def _fill(rows: list[Array], data: Array) -> None:
    at = 0
    for row in rows:
        row[...] = np.frombuffer(data[at : at + row.nbytes].tobytes(), row.dtype).reshape(row.shape)
        at += row.nbytes
