"""The dealer of a follower: any actor but the first, the lead, whose table of members it reads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from remuda.population.births.inheritance import ActingPolicies
from remuda.population.dealing.lead import Dealer
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import Numbers, Population
from remuda.population.matchmaking.matchmaker import Matchmaker
from remuda.population.members.follower_views import FINISHED, PROPOSED, SEEN
from remuda.population.members.table import Table
from remuda.population.members.table_parts import MATCHES, NO_POLICY, REVISION, SINCE
from remuda.population.roster import Roster
from remuda.system.memory.atomic import fence_acquire, load
from remuda.types import Array, Bools, Floats, Integers


class FollowingLeague(Dealer):
    """The dealer of a follower's environment copies, from the members in the lead's table.

    It reads the table and writes only its shard. After its start it never waits: if the table is
    being changed, or a dead lead left the table half changed, it reads the table later. If the
    follower dies, its current matches and its matchmaker's position in a cycle are lost.
    """

    def __init__(
        self,
        table: Table,
        actor: int,
        matchmaker: Matchmaker,
        rng: Generator,
        num_envs: int,
        roster: Roster | None = None,
        once: bool = False,
        memory: float | None = None,
        episode_metrics: Sequence[int] = (),
    ) -> None:
        super().__init__(table, matchmaker, rng, num_envs, roster, once, episode_metrics, actor)
        self.shard = table.shards[actor - 1]
        self.population = Population(numbers=table.member_numbers.whole())
        self.ledger = Ledger(self.population, table.pairs, table.recent, memory)
        self._revision = -1  # none reported yet
        identity = table.occupants.identity
        self._identity: Integers = np.full_like(identity, NO_POLICY)
        self._there: Bools = np.zeros(len(identity), np.bool_)
        while self._look(None) is None:
            time.sleep(0.001)  # the table is being changed
        matchmaker.begin_at(self.shard.word(PROPOSED))

    def deal(self, over: Bools) -> None:
        self.population.numbers[...] = self.table.member_numbers.whole()
        self.population.matches = self.table.word(MATCHES)
        super().deal(over)
        self.shard.seat(self.seated)

    def _take(self, records: Array, over: Bools, returns: Numbers, metrics: Floats | None) -> None:
        copies = np.flatnonzero(over)
        found = np.zeros((len(copies), len(self._episode_metrics)), np.float32)
        if metrics is not None:
            found[...] = metrics[:, copies].T
        self.shard.add(records, self.seated[copies], returns[copies], found)

    def note_options(self, options: Mapping[str, Any]) -> None:
        """Do nothing: the lead records them."""

    def step(self, versions: Mapping[str, int], acting: ActingPolicies) -> list[int]:
        """Between two turns, update the members, clear emptied slots' experience, report both."""
        if not self.has_news():
            return []
        found = self._look(versions)
        if found is None:
            return []
        revision, fresh = found
        requests, cleared = self.table.followers.requests, self.shard.cleared
        for slot in np.flatnonzero(cleared != requests).tolist():
            request = load(requests, slot)
            acting.clear(self.table.policies[slot])
            self.shard.note_cleared(slot, request)
        self._revision = revision
        self.shard.set_word(SEEN, revision)
        return fresh

    def _look(self, versions: Mapping[str, int] | None) -> tuple[int, list[int]] | None:
        """Update the members; return the revision and new copies' slots, or None if postponed.

        All changes are applied at once, so that matches can always be made. They are postponed
        while the lead changes the table, and until the weights of every newborn have arrived,
        because only experience with these weights belongs to the newborn.
        """
        table, occupants = self.table, self.table.occupants
        revision = table.word(REVISION)
        identity, there = occupants.identity.copy(), occupants.there
        since = table.births.all[:, SINCE].copy()
        fence_acquire()
        if revision % 2 == 1 or table.word(REVISION) != revision:
            return None
        if versions is not None:
            live = there[: len(since)]
            acting = np.array([versions[policy] for policy in table.policies])
            if (live & (acting < since)).any():
                return None
        population = self.population
        changed = np.flatnonzero((identity != self._identity).any(1) | (there != self._there))
        for slot in changed[self._there[changed]].tolist():
            population.retire(population.at(slot).ref)
        fresh = []
        for slot in changed[there[changed]].tolist():
            ref, parent, born = occupants.decode(slot, identity[slot].tolist())
            population.add(table.member(slot, ref, parent, born, self.roster.seats), slot)
            if ref.is_frozen and not ref.is_scripted:
                fresh.append(slot)
        self._identity, self._there = identity, there
        return revision, fresh

    def has_news(self) -> bool:
        return self.table.word(REVISION) != self._revision

    def settled(self) -> bool:
        """Report that all turns are played; a follower waits for no other actor."""
        self.shard.set_word(FINISHED, 1)
        return True
