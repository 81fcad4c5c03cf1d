"""The protocol between two nodes: frames with data that one node has and the other needs.

First each end reports which of the other node's data it already has. Then each end sends the data
that the other lacks. The sender reads words (shared 64-bit numbers) before it copies other data,
and the receiver writes words last. A reader that sees a word therefore sees all that was written
before that word, as on one machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import IntEnum

import numpy as np

from remuda.cluster.link import Frame, Kind, Link, Section, sections
from remuda.cluster.nodes import HEAD, Placement
from remuda.cluster.ring_kernels import COLUMNS, ENTRY
from remuda.cluster.rings import RingIn, RingOut, RingUpdate
from remuda.cluster.stores import Stores
from remuda.cluster.tables import ShardOut, TableIn, TableOut, write_results
from remuda.cluster.weights import WeightsIn, WeightsOut
from remuda.errors import RemudaError
from remuda.experience.ring import UPDATE_TIME
from remuda.population.members.table import Table
from remuda.system.memory.atomic import load, store
from remuda.system.memory.shared import SharedArrays
from remuda.types import Array, Integers

SLOWLY = 0.1  # seconds between two reads of words that only users and checkpoints need
ROOM = 4 << 20  # usual maximum bytes of steps in a frame


class Channel:
    """One end of the protocol between two nodes."""

    def __init__(
        self, stores: Stores, placement: Placement, me: int, peer: int, weights_every: float = 0.0
    ) -> None:
        self._stores, self._me, self._peer = stores, me, peer
        self._out: dict[int, RingOut] = {}
        for key in stores.rings(placement, me, peer):
            experience, actor = stores.ring_of(key)
            self._out[key] = RingOut(experience.rings[actor])
        self._in = {key: RingIn(*stores.ring_of(key)) for key in stores.rings(placement, peer, me)}
        self._weights_out = WeightsOut(stores.published, stores.weights(placement, me, peer))
        self.weights_in = WeightsIn(stores.published, stores.weights(placement, peer, me))
        self.fast_out = stores.fast_words(placement, me, peer)
        self._slow_out = stores.slow_words(placement, me, peer)
        self._fast_in = stores.fast_words(placement, peer, me)
        self._slow_in = stores.slow_words(placement, peer, me)
        self._table_out: TableOut | None = None
        self._table_in: TableIn | None = None
        self._shards_out: dict[int, ShardOut] = {}
        if stores.table is not None:
            self._follow_population(stores.table, placement)
        largest = max((followed.largest for followed in self._out.values()), default=0)
        self._payload: Array = np.empty(max(ROOM, largest) if self._out else 0, np.uint8)
        self._weights_every = weights_every
        self._next_slow = self._next_weights = 0.0
        # experience of policies that learn on the peer, if actors play on this node
        learn = stores.learning(placement, peer) if me in placement.actors else []
        self._late = [stores.experience[stores.policies[policy]] for policy in learn]
        self._own_actors = [i for i, at in enumerate(placement.actors) if at == me]
        self.epoch = placement.epoch
        # in_step: all the peer's data has arrived here; _sent_all: all of this node's data is sent
        self.in_step = self._sent_all = False
        self.has_report = False  # True once the peer's report has arrived; no data is sent before
        self.wakes: set[int] = set()  # roles on the peer that must be woken
        self.steps_in = self.steps_out = 0

    def _follow_population(self, table: Table, placement: Placement) -> None:
        stores, me, peer = self._stores, self._me, self._peer
        words = stores.table_words(placement, peer if me == HEAD else me)
        if words is not None and me == HEAD:
            plays, learn = peer in placement.actors, stores.learning(placement, peer)
            self._table_out = TableOut(table, words, plays, learn)
        elif words is not None and peer == HEAD:
            self._table_in = TableIn(table, words)
        if peer == HEAD:
            for actor, shard in enumerate(table.shards, 1):
                if placement.actors[actor] == me:
                    self._shards_out[actor] = ShardOut(shard)

    def holds(self) -> Frame:
        """Return the first frame: a report of the peer's data that this node already has."""
        frame = Frame()
        for key, following in self._in.items():
            frame.add(Kind.HOLDS_RING, key, np.concatenate(following.holds))
        frame.add(Kind.HOLDS_WEIGHTS, numbers=self.weights_in.holds)
        return frame

    def news(self, now: float) -> Frame | None:
        """Return a frame with data that the peer lacks; None if it lacks none or sent no report."""
        if not self.has_report:
            return None
        frame = Frame()
        newer = self._weights_out.newer() if now >= self._next_weights else {}
        self.fast_out.read()  # read words before copying the data that they count
        is_stamped = self._peer == HEAD and self.fast_out.has_new_last
        if is_stamped or self._stores.in_turns:  # in lockstep, before the word `trained`
            newer = self._weights_out.newer()
        slowly = now >= self._next_slow or is_stamped or bool(newer)
        if slowly:
            self._slow_out.read()
        table = self._table_out if slowly or self._stores.in_turns else None
        if table is not None:
            table.read()
        is_whole = self._add_rings(frame)
        self._add_weights(frame, newer, now)
        for actor, shard in self._shards_out.items():
            is_whole &= shard.add(frame, actor)
        if self.wakes:
            frame.add(Kind.WAKE, numbers=sorted(self.wakes))
            self.wakes.clear()
        if is_whole:
            if table is not None:
                table.add(frame)
            if slowly:
                self._next_slow = now + SLOWLY
                frame.add_words(Kind.SLOW, self._slow_out)
            frame.add_words(Kind.FAST, self.fast_out)
            if not self._sent_all and (self._table_out is None or (table and table.is_read)):
                self._sent_all = True
                frame.add(Kind.IN_STEP)
        return frame if frame.size else None

    def take(self, frame: Array) -> set[int]:
        woken: set[int] = set()
        try:
            for section in sections(frame):
                self._take(section, woken)
        except (ArithmeticError, LookupError, MemoryError, ValueError) as error:
            raise RemudaError(f"the received frame does not fit: {error}") from error
        return woken

    def lose(self) -> None:
        """When the other node is lost, stop this node's actors from waiting for its learners."""
        if not self._stores.in_turns:
            for experience in self._late:
                experience.release()

    def _add_rings(self, frame: Frame) -> bool:
        at = 0
        for key, followed in self._out.items():
            update = followed.news(self._payload, at)
            if update is None:
                continue
            news, at = update
            self.steps_out += int((news.heads[:, 3] - news.heads[:, 2]).sum())
            counts = [len(news.words), len(news.heads), len(news.entries)]
            numbers = (counts, news.words, news.heads.reshape(-1), news.entries.reshape(-1))
            frame.add(Kind.RING, key, np.concatenate(numbers), [news.payload])
            if not len(news.words):
                return False
        return True

    def _add_weights(self, frame: Frame, newer: Mapping[int, int], now: float) -> None:
        for policy, version in newer.items():
            snapshot = self._weights_out.take(policy, version)
            if snapshot is not None:
                frame.add(Kind.WEIGHTS, policy, *snapshot)
        if newer:
            self._next_weights = now + self._weights_every

    def _take(self, section: Section, woken: set[int]) -> None:
        numbers, key = section.numbers, section.key
        if section.kind == Kind.RING:
            self._take_ring(key, numbers, section.data)
        elif section.kind == Kind.WEIGHTS:
            self.weights_in.publish(key, numbers, section.data.view(np.float32))
        elif section.kind == Kind.FAST:
            self._fast_in.write(*np.split(numbers, 2))
            self._translate()
            for experience in self._late:
                experience.let_in()
        elif section.kind == Kind.SLOW:
            self._slow_in.write(*np.split(numbers, 2))
        elif self._take_of_population(section):
            pass
        elif section.kind == Kind.IN_STEP:
            self.in_step = True
        elif section.kind == Kind.WAKE:
            woken.update(numbers.tolist())
        elif section.kind == Kind.HOLDS_RING:
            if key not in self._out:
                raise RemudaError("the other end requests a ring that does not exist here")
            self._out[key].holds(*np.split(numbers, 2))
        elif section.kind == Kind.HOLDS_WEIGHTS:
            self._weights_out.holds(numbers)
            self.has_report = True
        else:
            raise RemudaError("the received frame is damaged")

    def _take_of_population(self, section: Section) -> bool:
        kind, key, numbers = section.kind, section.key, section.numbers
        table = self._stores.table
        if kind == Kind.SHARD and table is not None and self._me == HEAD:
            begin, count = numbers.tolist()
            write_results(table.shards[key - 1], begin, count, section.data)
        elif self._table_in is None:
            return False
        elif kind == Kind.FROZEN:
            self._table_in.freeze(key, section.data)
        elif kind == Kind.NEWBORN:
            self._table_in.put_newborn(key, section.data)
        elif kind == Kind.TABLE:
            self._table_in.write(*np.split(numbers, 2))
        else:
            return False
        return True

    def _take_ring(self, key: int, numbers: Integers, data: Array) -> None:
        words, heads, entries = numbers[:3].tolist()
        first, second = 3 + words, 3 + words + heads * COLUMNS
        if key not in self._in or len(numbers) != second + entries * ENTRY:
            raise RemudaError("the received frame is damaged")
        segments = numbers[first:second].reshape(heads, COLUMNS)
        self.steps_in += int((segments[:, 3] - segments[:, 2]).sum())
        rows = numbers[second:].reshape(entries, ENTRY)
        self._in[key].write(RingUpdate(numbers[3:first], segments, rows, data))

    def _translate(self) -> None:
        """Replace a remote learner's process id, which actors watch, by the id of this bridge."""
        for experience in self._late:
            for actor in self._own_actors:
                words = experience.rings[actor].counters
                if load(words, UPDATE_TIME) < 0:
                    store(words, UPDATE_TIME, -os.getpid())


class Count(IntEnum):
    """Columns of `Traffic.counts`; totals cover all connections to the other node."""

    SENT_BYTES = 0
    RECEIVED_BYTES = 1
    FRAMES = 2
    STEPS_OUT = 3
    STEPS_IN = 4
    IS_OPEN = 5  # 1 while connected
    IN_STEP = 6  # the last epoch in which all data of the other node arrived


class Traffic:
    """Counts [nodes, columns of `Count`], written only by the bridge of this node.

    A restarted bridge continues the totals.
    """

    def __init__(self, nodes: int) -> None:
        self._shared = SharedArrays({"counts": ((nodes, len(Count)), np.int64)})
        # each node's newest link and its counts; a link's `id()` may be reused
        self._last: dict[int, tuple[Link, list[int]]] = {}

    @property
    def counts(self) -> Array:
        return self._shared["counts"]

    def note(self, node: int, link: Link, channel: Channel | None) -> None:
        last_link, last = self._last.get(node, (None, [0] * 5))
        if last_link is not link:
            last = [0] * 5
        steps = last[3:]  # a broken link has no channel
        if channel is not None:
            steps = [channel.steps_out, channel.steps_in]
        counts = [link.sent_bytes, link.received_bytes, link.frames, *steps]
        self._last[node] = link, counts
        row = self._shared["counts"][node]
        row[:5] += np.subtract(counts, last)
        row[Count.IS_OPEN] = channel is not None
        if channel is not None and channel.in_step:
            row[Count.IN_STEP] = channel.epoch
