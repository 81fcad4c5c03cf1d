"""What the bridge of a node reads and writes: all of the run's shared memory that crosses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from remuda.cluster.nodes import HEAD
from remuda.cluster.placement import Placement
from remuda.cluster.tables import table_words
from remuda.cluster.words import Words
from remuda.experience import ring
from remuda.experience.experience import Experience
from remuda.experience.ring import (
    CLOSED,
    CLOSED_STEPS,
    CONSUMED,
    COUNTERS,
    EXCUSED,
    LOST,
    NEXT_OVERWRITTEN,
    OVERWRITTEN,
    ROOM_WANTED,
    TAKEN,
    TAKEN_STEPS,
    UPDATE_TIME,
    WRITTEN,
)
from remuda.live_hyperparameters import LiveHyperparameters
from remuda.memory.shared import SharedArrays
from remuda.memory.waiting import Wakeup
from remuda.population.shard import FINISHED, PROPOSED, SEEN
from remuda.population.shard import LOST as LOST_RESULTS
from remuda.population.shard import TAKEN as TAKEN_RESULTS
from remuda.population.table import Table
from remuda.population.table_layout import CONFIRMED, SINCE
from remuda.publish.snapshot import PublishedWeights
from remuda.runtime.control import Control
from remuda.scoreboard import Play, Scoreboard
from remuda.types import Array

LEARNERS_WORDS = (EXCUSED, CONSUMED, TAKEN, TAKEN_STEPS, UPDATE_TIME)
"""The words of a ring that its learner writes, in the order in which they are to be seen."""
ACTORS_WORDS = (
    ring.HEAD,
    NEXT_OVERWRITTEN,
    OVERWRITTEN,
    LOST,
    CLOSED,
    CLOSED_STEPS,
    WRITTEN,
)
"""Likewise its actor."""
Parts = list[tuple[Array, list[int] | slice]]
ALL = slice(None)


class Stamps:
    """By node, a number that its agent counts up: who sees it sees all that was written before.

    [nodes]; each is written by the process that hosts the roles of its node, and elsewhere by
    bridges.
    """

    def __init__(self, nodes: int) -> None:
        self._shared = SharedArrays({"stamps": ((nodes,), np.int64)})

    @property
    def all(self) -> Array:
        """[nodes]."""
        return self._shared["stamps"]


@dataclass(frozen=True)
class Stores:
    """The shared memory of a node, as far as it crosses to others."""

    policies: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    """By learner process, the numbers of its policies."""
    experience: Mapping[str, Experience]
    published: PublishedWeights
    scoreboard: Scoreboard
    changes: LiveHyperparameters
    control: Control
    stamps: Stamps
    actors: tuple[Wakeup, ...]
    learners: tuple[Wakeup, ...]
    in_turns: bool
    """Whether actor and learners work in turns, as in `lockstep`."""
    table: Table | None = None
    """Of the population, where seats are dealt; the lead, the first actor, lives on the head."""

    @property
    def wakeups(self) -> tuple[Wakeup, ...]:
        """By role."""
        return (*self.actors, *self.learners)

    def learner_of(self, policy: int) -> int:
        """The learner process of a policy."""
        return next(i for i, group in enumerate(self.groups) if policy in group)

    def rings(self, placement: Placement, actors_at: int, learners_at: int) -> list[int]:
        """The rings that actors on one node write and learners on another read, by number."""
        found = []
        for policy in range(len(self.policies)):
            if placement.learners[self.learner_of(policy)] != learners_at:
                continue
            for actor, home in enumerate(placement.actors):
                if home == actors_at and home != learners_at:
                    found.append(policy * len(self.actors) + actor)
        return found

    def ring_of(self, number: int) -> tuple[Experience, int]:
        """The experience that a ring belongs to, and its actor."""
        policy, actor = divmod(number, len(self.actors))
        return self.experience[self.policies[policy]], actor

    def weights(self, placement: Placement, home: int, to: int) -> list[int]:
        """The policies that learn on one node and are needed on another, by number."""
        if to != HEAD and to not in placement.actors:
            return []
        return [p for p in range(len(self.policies)) if self._learns_at(placement, p) == home]

    def fast_words(self, placement: Placement, home: int, to: int) -> Words:
        """The words that one node tells another in every round: both make the same list.

        They are written in this order and read the other way round: the last ones tell that all
        before them is there.
        """
        parts: Parts = []
        roles = len(placement.actors)
        control = self.control.words
        for policy, name in enumerate(self.policies):
            if self._learns_at(placement, policy) == home and to in placement.actors:
                # Actors have room by what all of them wrote together, which is known here.
                parts.append(self._words(placement, name, ACTORS_WORDS, without=to))
                parts.append(self._words(placement, name, LEARNERS_WORDS))
            if self._learns_at(placement, policy) == to:
                parts.append(self._words(placement, name, (ROOM_WANTED,), at=home))
        turns, board = [int(Play.TURNS)], self.scoreboard.arrays["play"]
        if home == HEAD:  # which passes on how far actors elsewhere are
            parts += [(board[actor], turns) for actor in self._others(placement, to)]
        parts += self._population_words(placement, home, to)
        if self.in_turns:
            if placement.actors[0] == home and to in placement.learners:
                parts += [(control["save_after"], ALL), (control["played"], ALL)]
            if placement.actors[0] == to:
                own = [roles + i for i, at in enumerate(placement.learners) if at == home]
                parts.append((control["trained"], own))
        if to == HEAD:
            own = [actor for actor, at in enumerate(placement.actors) if at == home]
            parts += [(board[actor], turns) for actor in own]
            parts.append((self.stamps.all, [home]))
        return Words([(array, where) for array, where in parts if where != []])

    def _population_words(self, placement: Placement, home: int, to: int) -> Parts:
        """Those of followers, and what learners confirm of births."""
        if self.table is None:
            return []
        parts: Parts = []
        places, table = range(len(self.policies)), self.table
        here = [place for place in places if self._learns_at(placement, place) == home]
        there = [place for place in places if self._learns_at(placement, place) == to]
        orders, columns = table.arrays["orders"], table.arrays["orders"].shape[1]
        for actor, shard in enumerate(table.shards, 1):
            arrays = shard.arrays
            if placement.actors[actor] == home:
                parts.append((arrays["cleared"], there))
                if to == HEAD:
                    parts.append((arrays["seated"], ALL))
                    parts.append((arrays["words"], [LOST_RESULTS, PROPOSED, SEEN, FINISHED]))
            if to == HEAD:
                parts.append((arrays["cleared"], here))
            if home == HEAD and placement.actors[actor] == to:
                parts.append((arrays["words"], [TAKEN_RESULTS]))
        if to == HEAD:
            confirmed = [place * columns + c for place in here for c in (SINCE, CONFIRMED)]
            parts.append((orders, confirmed))
        return parts

    def table_words(self, placement: Placement, to: int) -> Words | None:
        """What the head tells another node of the table; None: it has no need of it."""
        if self.table is None or to == HEAD:
            return None
        places = range(len(self.policies))
        elsewhere = [place for place in places if self._learns_at(placement, place) != to]
        return table_words(self.table, to in placement.actors, elsewhere)

    def learning(self, placement: Placement, node: int) -> list[int]:
        """The numbers of the policies that learn on a node."""
        places = range(len(self.policies))
        return [place for place in places if self._learns_at(placement, place) == node]

    def slow_words(self, placement: Placement, home: int, to: int) -> Words:
        """The words that one node tells another a few times a second, likewise."""
        board = self.scoreboard.arrays
        parts: Parts = []
        if to == HEAD:
            for actor, at in enumerate(placement.actors):
                if at == home:
                    parts += [
                        (board[name][actor], ALL) for name in ("play", "policy", "facts", "notes")
                    ]
            for policy, name in enumerate(self.policies):
                learns_here = self._learns_at(placement, policy) == home
                if learns_here:
                    parts.append((board["learn"][policy], ALL))
                if HEAD in placement.actors:
                    continue  # it is told in every round
                if learns_here:
                    parts.append(self._words(placement, name, LEARNERS_WORDS))
                if self._learns_at(placement, policy) != HEAD:
                    parts.append(self._words(placement, name, ACTORS_WORDS, at=home))
        if home == HEAD:
            parts += [(board["mark"], ALL)]
            parts += [(self.changes.words[name], ALL) for name in ("values", "revision")]
        return Words([(array, where) for array, where in parts if where != []])

    def _others(self, placement: Placement, node: int) -> list[int]:
        """The actors elsewhere, for a node that has some."""
        if node not in placement.actors:
            return []
        return [actor for actor, at in enumerate(placement.actors) if at != node]

    def _learns_at(self, placement: Placement, policy: int) -> int:
        return placement.learners[self.learner_of(policy)]

    def _words(
        self,
        placement: Placement,
        policy: str,
        words: tuple[int, ...],
        at: int | None = None,
        without: int | None = None,
    ) -> tuple[Array, list[int]]:
        """Words of a policy's rings: of the actors on a node, of all but those there, or of all."""
        counters = self.experience[policy].counters
        actors = [
            actor
            for actor, home in enumerate(placement.actors)
            if at in (None, home) and home != without
        ]
        return counters, [actor * COUNTERS + word for actor in actors for word in words]
