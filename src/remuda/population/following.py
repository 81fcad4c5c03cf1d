"""A follower: deals matches in one of several actors, from a table that another one leads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.memory.atomic import fence_acquire, load
from remuda.population.dealer import Dealer
from remuda.population.inheritance import ActingPolicies
from remuda.population.ledger import Ledger
from remuda.population.matchmaking import Matchmaker
from remuda.population.records import Numbers, PolicyRef, Population
from remuda.population.roster import Roster
from remuda.population.shard import FINISHED, PROPOSED, SEEN
from remuda.population.table import Table
from remuda.population.table_layout import MATCHES, NO_POLICY, REVISION, SINCE
from remuda.types import Bools, Floats, Integers

GLANCE = 0.001
"""Seconds between two looks at a table that is being changed, for a follower that begins."""
NONE_YET = -1
"""In place of a revision: this follower has not said yet by which it deals."""


class FollowedLedger(Ledger):
    """What the lead adds up, read while it does so: a meeting may be counted, and not yet won."""

    def win_rate(self, one: PolicyRef, other: PolicyRef, doubt: float = 1.0) -> float:
        """The share of meetings that `one` won, as `Ledger` tells it; within 0 and 1."""
        return min(max(super().win_rate(one, other, doubt), 0.0), 1.0)

    def win_rates_at(self, place: int, others: Integers, doubt: float = 1.0) -> Numbers:
        """Likewise, by places in the population; the first is a live policy's."""
        rates: Numbers = np.clip(super().win_rates_at(place, others, doubt), 0.0, 1.0)
        return rates


class FollowingLeague(Dealer):
    """Deals the seats of an actor's copies to the members that the lead has in its table.

    It reads the table, and writes its shard alone. It waits for no process once it has begun: a
    table that is just being changed, or that a lead has left half changed, is looked at later, and
    until then it deals by what it knew. What it loses by dying: the matches that were being played,
    and where its matchmaker was in its cycle.
    """

    def __init__(
        self,
        table: Table,
        actor: int,
        matchmaker: Matchmaker,
        random: np.random.Generator,
        num_envs: int,
        roster: Roster | None = None,
        once: bool = False,
        memory: float | None = None,
        episode_metrics: Sequence[int] = (),
    ) -> None:
        """Begin with who is there, once no change is under way."""
        super().__init__(table, matchmaker, random, num_envs, roster, once, episode_metrics, actor)
        self.shard = table.shards[actor - 1]
        self.population = Population(numbers=table.member_numbers.whole())
        self.ledger = FollowedLedger(self.population, table.pairs, table.recent, memory)
        self._revision = NONE_YET
        identity = table.occupants.identity
        self._identity: Integers = np.full_like(identity, NO_POLICY)
        self._there: Bools = np.zeros(len(identity), np.bool_)
        while self._look(None) is None:
            time.sleep(GLANCE)
        matchmaker.begin_at(self._proposed())

    def deal(self, over: Bools) -> None:
        """Seat the next matches in these copies, and let the lead see who sits there."""
        self.population.numbers[...] = self.table.member_numbers.whole()
        self.population.matches = self.table.word(MATCHES)
        super().deal(over)
        self.shard.seat(self.seated)

    def close(
        self,
        over: Bools,
        returns: Numbers,
        oldest: Integers,
        newest: Integers,
        truncated: Bools,
        told: Floats | None = None,
    ) -> None:
        """Hand the results of these copies to the lead.

        over: [num_envs] which of them are over.
        returns: [num_envs, seats]; NaN: that seat took no part.
        oldest: [num_envs, seats] the oldest version that acted...
        truncated: [num_envs] whether the match was cut off.
        told: [facts, num_envs] what the game tells of these episodes; None: nothing.
        """
        copies = np.flatnonzero(over)
        metrics = np.zeros((len(copies), len(self._episode_metrics)), np.float32)
        if told is not None:
            metrics[...] = told[self._episode_metrics][:, copies].T
        records = self._records(copies, returns, oldest, newest, truncated)
        self.shard.add(records, self.seated[copies], returns[copies], metrics)

    def step(self, versions: Mapping[str, int], acting: ActingPolicies) -> list[int]:
        """Deal by who is there now, clear what the lead asks for, and say so; between two turns."""
        if not self.has_news():
            return []
        found = self._look(versions)
        if found is None:
            return []
        revision, fresh = found
        requests, cleared = self.table.followers.requests, self.shard.cleared
        for place in np.flatnonzero(cleared != requests).tolist():
            request = load(requests, place)
            acting.clear(self.table.policies[place])
            self.shard.note_cleared(place, request)
        self._revision = revision
        self.shard.set_word(SEEN, revision)
        return fresh

    def _look(self, versions: Mapping[str, int] | None) -> tuple[int, list[int]] | None:
        """Take over who is there; None: not now.

        All that changed is taken over at once, so that matches can always be made. So it is left
        for later while a newborn's weights have not come here, which were published before it was
        let in; only its experience with them is its own.
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
        for place in changed[self._there[changed]].tolist():
            population.retire(population.at(place).ref)
        fresh = []
        for place in changed[there[changed]].tolist():
            policy, version, parent, parent_version, born = identity[place].tolist()
            ref = PolicyRef(table.names[policy], version)
            of = occupants.parent(parent, parent_version)
            population.add(table.member(place, ref, of, born, self.roster.seats), place)
            if ref.is_frozen and not ref.is_scripted:
                fresh.append(place)
        self._identity, self._there = identity, there
        return revision, fresh

    def has_news(self) -> bool:
        """Whether the lead changed who is there, or asks for something."""
        return self.table.word(REVISION) != self._revision

    def settled(self) -> bool:
        """Tell that all turns are played; nothing of the others is waited for."""
        self.shard.set_word(FINISHED, 1)
        return True

    def _note_proposed(self, count: int) -> None:
        self.shard.set_word(PROPOSED, count)

    def _proposed(self) -> int:
        return self.shard.word(PROPOSED)
