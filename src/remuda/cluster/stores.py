"""The shared memory of a run that a node's bridge reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from remuda.cluster.nodes import HEAD, Placement
from remuda.cluster.tables import table_words
from remuda.cluster.words import Words
from remuda.config.hyperparameters import LiveHyperparameters
from remuda.envs.live_options import LiveEnvOptions
from remuda.experience import ring
from remuda.experience.experience import Experience
from remuda.population.members.follower_views import FINISHED, PROPOSED, SEEN
from remuda.population.members.follower_views import LOST as LOST_RESULTS
from remuda.population.members.follower_views import TAKEN as TAKEN_RESULTS
from remuda.population.members.table import Table
from remuda.population.members.table_parts import CONFIRMED, SINCE
from remuda.publish.snapshot import PublishedWeights
from remuda.runtime.control import Control
from remuda.system.memory.shared import SharedArrays
from remuda.system.memory.waiting import Wakeup
from remuda.system.scoreboard import Play, Scoreboard
from remuda.types import Array

# Words of a ring by the role that writes them, in the order in which they become visible.
LEARNERS_WORDS = (ring.EXCUSED, ring.CONSUMED, ring.TAKEN, ring.TAKEN_STEPS, ring.UPDATE_TIME)
ACTORS_WORDS = (
    ring.HEAD,
    ring.NEXT_OVERWRITTEN,
    ring.OVERWRITTEN,
    ring.LOST,
    ring.CLOSED,
    ring.CLOSED_STEPS,
    ring.WRITTEN,
)
Parts = list[tuple[Array, list[int] | slice]]
ALL = slice(None)


def make_stamps(nodes: int) -> SharedArrays:
    """Make a counter per node, written only there; readers see all that the node wrote before."""
    return SharedArrays({"stamps": ((nodes,), np.int64)})


@dataclass(frozen=True)
class Stores:
    """The shared memory of a node that bridges synchronise with other nodes."""

    policies: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]  # policy indices of each learner process
    experience: Mapping[str, Experience]
    published: PublishedWeights
    scoreboard: Scoreboard
    changes: LiveHyperparameters
    env_options: LiveEnvOptions
    control: Control
    stamps: SharedArrays  # of `make_stamps`
    actors: tuple[Wakeup, ...]
    learners: tuple[Wakeup, ...]
    in_turns: bool  # actor and learners take turns, as in `lockstep`
    table: Table | None = None  # of a population; the lead (the first actor) runs on the head

    @property
    def wakeups(self) -> tuple[Wakeup, ...]:
        return (*self.actors, *self.learners)

    def learner_of(self, policy: int) -> int:
        return next(i for i, group in enumerate(self.groups) if policy in group)

    def rings(self, placement: Placement, actors_at: int, learners_at: int) -> list[int]:
        """Return the rings that actors on one node write and learners on another node read."""
        found = []
        for policy in range(len(self.policies)):
            if placement.learners[self.learner_of(policy)] != learners_at:
                continue
            for actor, home in enumerate(placement.actors):
                if home == actors_at and home != learners_at:
                    found.append(policy * len(self.actors) + actor)
        return found

    def ring_of(self, number: int) -> tuple[Experience, int]:
        policy, actor = divmod(number, len(self.actors))
        return self.experience[self.policies[policy]], actor

    def weights(self, placement: Placement, home: int, to: int) -> list[int]:
        """Return the policies that learn on one node and are needed on another."""
        needed = to == HEAD or to in placement.actors
        return self.learning(placement, home) if needed else []

    def fast_words(self, placement: Placement, home: int, to: int) -> Words:
        """Return the words that one node sends another in every round; both ends use this order.

        The words are written in this order and read in reverse order, so the last words prove that
        all others have arrived.
        """
        parts: Parts = []
        roles = len(placement.actors)
        control = self.control.words
        for policy, name in enumerate(self.policies):
            if self._learns_at(placement, policy) == home and to in placement.actors:
                # Whether an actor waits depends on the counts of all actors, not only its own.
                parts.append(self._words(placement, name, ACTORS_WORDS, without=to))
                parts.append(self._words(placement, name, LEARNERS_WORDS))
            if self._learns_at(placement, policy) == to:
                parts.append(self._words(placement, name, (ring.ROOM_WANTED,), at=home))
        turns, board = [int(Play.TURNS)], self.scoreboard.arrays["play"]
        if home == HEAD and to in placement.actors:
            # The head forwards the turns of actors on other nodes.
            others = [actor for actor, at in enumerate(placement.actors) if at != to]
            parts += [(board[actor], turns) for actor in others]
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
            parts.append((self.stamps["stamps"], [home]))
        return Words([(array, where) for array, where in parts if where != []])

    def _population_words(self, placement: Placement, home: int, to: int) -> Parts:
        """Return followers' words, and words by which learners confirm that they start policies."""
        if self.table is None:
            return []
        parts: Parts = []
        here, there = self.learning(placement, home), self.learning(placement, to)
        table = self.table
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
            confirmed = [slot * columns + c for slot in here for c in (SINCE, CONFIRMED)]
            parts.append((orders, confirmed))
        return parts

    def table_words(self, placement: Placement, to: int) -> Words | None:
        """Return the words of the table that the head sends to another node, if any."""
        if self.table is None or to == HEAD:
            return None
        elsewhere = sorted({*range(len(self.policies))} - {*self.learning(placement, to)})
        return table_words(self.table, to in placement.actors, elsewhere)

    def learning(self, placement: Placement, node: int) -> list[int]:
        policies = range(len(self.policies))
        return [policy for policy in policies if self._learns_at(placement, policy) == node]

    def slow_words(self, placement: Placement, home: int, to: int) -> Words:
        board = self.scoreboard.arrays
        parts: Parts = []
        if to == HEAD:
            for actor, at in enumerate(placement.actors):
                if at == home:
                    parts += [
                        (board[name][actor], ALL)
                        for name in ("play", "policy", "episode_totals", "notes")
                    ]
            for policy, name in enumerate(self.policies):
                learns_here = self._learns_at(placement, policy) == home
                if learns_here:
                    parts.append((board["learn"][policy], ALL))
                if HEAD in placement.actors:
                    continue  # sent in every round
                if learns_here:
                    parts.append(self._words(placement, name, LEARNERS_WORDS))
                if self._learns_at(placement, policy) != HEAD:
                    parts.append(self._words(placement, name, ACTORS_WORDS, at=home))
        if home == HEAD:
            parts += [(board["mark"], ALL)]
            parts += [(self.changes.words[name], ALL) for name in ("values", "revision")]
            options = self.env_options.words
            parts += [(options[name], ALL) for name in ("text", "frame", "revision")]
        return Words([(array, where) for array, where in parts if where != []])

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
        """Return words of a policy's rings, of the actors on node `at` or not on node `without`."""
        counters = self.experience[policy].counters
        actors = [
            actor
            for actor, home in enumerate(placement.actors)
            if at in (None, home) and home != without
        ]
        return counters, [actor * ring.COUNTERS + word for actor in actors for word in words]
