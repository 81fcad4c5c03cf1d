"""The table of a population in shared memory: members, sums of results, the newest results.

A slot is a member's row in the table. The table outlives the actors, and other processes read the
population from it. The coordinator displays and saves the table, and writes the results into the
ledger. Several actors may play from the table: all but the first, the lead, only read it, and each
writes a separate part (`follower_views.py`).

The lead writes everything else here, except that learners confirm in `orders` the births that they
have carried out (see `remuda.population.members.births`). If the lead dies:

- a slot whose `sequence` is odd has no complete copy: the successor empties it;
- a retired policy stays marked: the successor empties its slot after its last matches;
- results that were not counted in `RECORDS` are ignored;
- the successor completes a move of ratings (`MemberNumbers.move_ratings`);
- if `REVISION` is odd, the successor makes it even;
- if a batch of another actor's results was being taken, the successor finds out whether it is in
  `RECORDS` (`follower_views.py`);
- the sums may include only a part of the result that was being counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from remuda.config.hyperparameters import names_of
from remuda.errors import CheckpointError
from remuda.population.ledger.ledger import forget
from remuda.population.ledger.records import (
    FRESH,
    GAMES,
    MEETINGS,
    PLAYED,
    UNCERTAINTY,
    Member,
    Numbers,
    PolicyRef,
    Population,
)
from remuda.population.members.births import BirthOrders, Newborn
from remuda.population.members.follower_views import LOST, Followers, Shard
from remuda.population.members.follower_views import PROPOSED as OWN_PROPOSED
from remuda.population.members.frozen_weights import FrozenWeights, weight_arrays
from remuda.population.members.imported import Imported
from remuda.population.members.table_parts import (
    MATCHES,
    MOVES,
    NO_POLICY,
    OPTIONS,
    PARENT,
    POLICY,
    PROPOSED,
    RECORDS,
    VERSION,
    MemberNumbers,
    Occupants,
    RecordBuffer,
    SlotHyperparameters,
    Slots,
    Words,
    table_fields,
)
from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import TrainingLayout
from remuda.system.checkpoint.fitting import (
    COUNT,
    FINITE_64,
    MOST,
    Range,
    branch,
    fitting,
    fitting_all,
    require,
    where_is,
    whole_number,
)
from remuda.system.memory.atomic import fence_acquire, load
from remuda.system.memory.shared import Arena, SharedArrays
from remuda.types import Array, Floats, Integers, State

Row = list[float]  # a member's numbers, in the columns `GAMES` and so on
MemberRow = tuple[PolicyRef, PolicyRef | None, int, int, Row]
"""A member, its parent, its birth, its slot and its numbers."""


class Table(Words):
    """The table of a population: its members by slot, in several parts.

    `slots` assigns them, and `occupants` are their members. `numbers` and `member_numbers` are
    results and ratings, `frozen_weights` the weights of members that do not learn, `births` the
    orders for learners, and `records` the results for the coordinator to write.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        seats: int,
        copies: int,
        hyperparameters: Mapping[str, Mapping[str, float]] | None = None,
        empty: Collection[str] = (),
        arena: Arena | None = None,
        imported: Sequence[Imported] = (),
        scripted: Sequence[str] = (),
        stand_ins: bool = False,
        episode_metrics: int = 0,
        training: Mapping[str, TrainingLayout] | None = None,
        followers: Sequence[int] = (),
    ) -> None:
        origins = [member.origin for member in imported]
        self.slots = Slots(tuple(sizes), copies, origins, scripted, stand_ins)
        self.policies, self.names, self.seats = self.slots.policies, self.slots.names, seats
        self.specified = dict(hyperparameters or {})
        names = names_of(self.specified.values())
        others = len(self.slots.outsiders)
        fields = table_fields(len(sizes), seats, copies, others, len(names), episode_metrics)
        shared = SharedArrays(fields, arena)
        weights = weight_arrays(sizes, copies, arena, training)
        super().__init__(shared)
        self.frozen_weights = FrozenWeights(self.slots, weights, imported, arena)
        self.births = BirthOrders(shared, weights, training)
        self.records = RecordBuffer(shared, seats)
        self.shards = tuple(
            Shard(own, seats, len(sizes), episode_metrics, arena) for own in followers
        )
        self.member_numbers = MemberNumbers(shared)
        self.hyperparameters = SlotHyperparameters(shared, names)
        self.hyperparameters.all[...] = np.nan
        self.occupants = Occupants(shared, self.slots)
        self.followers = Followers(self.shards, shared, self.records, self.occupants, self.births)
        self.occupants.identity[...] = NO_POLICY
        for slot, policy in enumerate(self.policies):
            self.hyperparameters.put(slot, self.specified.get(policy, {}))
            if policy not in empty:
                self.occupants.put(slot, Member(PolicyRef(policy)))
        self.numbers[: len(sizes), : len(FRESH)] = FRESH
        for slot, ref in self.slots.outsiders.items():
            self.occupants.put(slot, Member(ref))
            self.numbers[slot, : len(FRESH)] = FRESH

    @property
    def nbytes(self) -> int:
        """Shared bytes, without weights."""
        return self._shared.nbytes + sum(shard.nbytes for shard in self.shards)

    @property
    def numbers(self) -> Numbers:
        return self.member_numbers.all

    @property
    def pairs(self) -> Numbers:
        """[4, policies, slots]: the ledger's sums between live policies and all members."""
        return self._shared["pairs"]

    @property
    def recent(self) -> Numbers:
        """[2, policies, slots]: remembered meetings and wins."""
        return self._shared["recent"]

    @property
    def num_actors(self) -> int:
        return 1 + len(self.shards)

    @property
    def results_lost(self) -> int:
        """Results of followers that were lost because the lead did not take them in time."""
        return sum(shard.word(LOST) for shard in self.shards)

    def prepare(self, slot: int, newborn: Member, begins: Newborn) -> int:
        """Write a newborn's initial data into an empty slot; returns a digest of its weights."""
        digest = self.births.put_weights(slot, begins.weights)
        self.births.put_training(slot, begins.training)
        self.occupants.put(slot, newborn, there=False)
        self.hyperparameters.put(slot, newborn.hyperparameters)
        return digest

    def admit(self, slot: int) -> Member:
        ref, parent, born = self.occupants.decode(slot, self.occupants.identity[slot].tolist())
        newborn = Member(ref, None, parent, born, self.hyperparameters.of(slot))
        self.occupants.put(slot, newborn)
        self.births.close(slot)
        return newborn

    def population(
        self, seats: Mapping[str, frozenset[int]] | None = None, own: bool = False
    ) -> Population:
        """Return all members that have not retired, except copies that are being frozen."""
        numbers = self.numbers if own else self.member_numbers.whole()
        found = Population(numbers=numbers)
        for slot in np.flatnonzero(self.occupants.there).tolist():
            identity = self.occupants.read(slot)
            if identity is None:
                continue  # the copy is being frozen
            member = self.member(slot, *identity, seats)
            member.numbers = numbers[slot].copy()
            found.add(member, slot)
        return found

    def member(
        self,
        slot: int,
        ref: PolicyRef,
        parent: PolicyRef | None,
        born: int,
        seats: Mapping[str, frozenset[int]] | None = None,
    ) -> Member:
        """Return a slot's member, from the result of `Occupants.read`, without its numbers."""
        own = (seats or {}).get(ref.policy)
        is_imported, held = slot in self.slots.imported, self.hyperparameters.of(slot)
        return Member(ref, own, parent, born, held, is_imported=is_imported)

    def rows(self, frozen: bool = True, slots: Integers | None = None) -> list[MemberRow]:
        """Return all members as plain data, for display: thousands in milliseconds."""
        occupants = self.occupants
        if slots is None:
            slots = np.arange(len(self.slots) if frozen else len(self.policies))
        before = occupants.sequence[slots]
        fence_acquire()
        identity, numbers = occupants.identity[slots], self.member_numbers.whole(slots)
        there = occupants.there[slots]
        fence_acquire()
        there &= (identity[:, POLICY] != NO_POLICY) & (before % 2 == 0)
        there &= occupants.sequence[slots] == before  # false if a copy was being frozen
        rows = zip(*(each[there].tolist() for each in (slots, identity, numbers)), strict=True)
        return [(*occupants.decode(slot, member), slot, row) for slot, member, row in rows]

    def freeze(self, member: Member, snapshot: Snapshot) -> int:
        """Write a deep copy of these weights into the member's slot; returns their digest."""
        slot = member.slot
        writing = self.occupants.begin_writing(slot)
        digest = self.frozen_weights.write(slot, snapshot)
        self.occupants.put(slot, member)
        self.hyperparameters.put(slot, member.hyperparameters)
        self.occupants.end_writing(slot, writing)
        return digest

    def snapshot(self, slot: int) -> Snapshot:
        return self.frozen_weights.read(slot, int(self.occupants.identity[slot, VERSION]))

    def repair(self) -> None:
        """Repair what a dead actor left half done; called by its successor."""
        occupants = self.occupants
        for slot in np.flatnonzero(occupants.sequence % 2 == 1).tolist():
            occupants.remove(slot)
            forget(self.pairs, slot)
            forget(self.recent, slot)
            occupants.end_writing(slot, int(occupants.sequence[slot]))
        self._shared["leaving"][occupants.identity[:, POLICY] == NO_POLICY] = 0
        self.member_numbers.finish_move()
        self.followers.repair()

    def state(self) -> State:
        """Return everything as plain data; the actor may continue at the same time."""
        # Read before the records: an actor writes it after them. So it may be recorded twice.
        options = self.word(OPTIONS)
        saved: State = {
            "policies": list(self.policies),
            "hyperparameter_names": list(self.hyperparameters.names),
            "pairs": self.pairs.copy(),
            "recent": self.recent.copy(),
            "leaving": self._shared["leaving"].copy(),
            "words": [self.word(MATCHES), self._proposed(), self.word(RECORDS), options],
            "copies": {},
        }
        while True:  # repeat until no birth was ordered in between, so that orders are complete
            orders = self.births.all.copy()
            fence_acquire()
            saved["numbers"] = self.member_numbers.whole()
            saved["hyperparameters"] = self.hyperparameters.all.copy()
            saved["cradles"] = {p: self.births.newborn_weights(p) for p in self.policies}
            training = {p: self.births.newborn_training(p) for p in self.policies}
            fence_acquire()
            if (orders == self.births.all).all():
                break
        saved["orders"] = orders
        saved["newborn_training"] = {p: t.state() for p, t in training.items() if t is not None}
        identity = self.occupants.identity.copy()
        for policy in self.policies:
            saved["copies"][policy] = held = self.frozen_weights.state(policy)
            for slot in self.slots.copies_of(policy):
                if identity[slot, POLICY] == NO_POLICY:
                    continue
                if not self._copy_whole(slot, held["weights"], identity):
                    identity[slot] = NO_POLICY
        return saved | {"identity": identity}

    def restore(self, state: State) -> None:
        """Restore everything, before any process starts."""
        if state["policies"] != list(self.policies):
            raise CheckpointError(
                f"{where_is(state, 'policies')} are {str(state['policies'])[:80]}, but this run "
                f"has {', '.join(self.policies)}"
            )
        for name, array in self._checked(state).items():
            self._shared[name][...] = array
        self.hyperparameters.restore(state)
        where = where_is(state, "words")
        found = [whole_number(word, where) for word in state["words"]]
        matches, proposed, records, options = found
        own = -(-proposed // self.num_actors)  # the number of actors may have changed
        words = {MATCHES: matches, PROPOSED: own, RECORDS: records, MOVES: 0, OPTIONS: options}
        for word, value in words.items():
            self.set_word(word, value)
        for shard in self.shards:
            shard.set_word(OWN_PROPOSED, own)
        cradles, training = branch(state, "cradles"), branch(state, "newborn_training")
        copies = branch(state, "copies")
        for policy in self.policies:
            self.births.restore_newborn(policy, cradles, training)
            self.frozen_weights.restore(policy, branch(copies, policy))

    def _checked(self, state: State) -> dict[str, Array]:
        any_version = Range(-1, MOST)
        names = Range(NO_POLICY, len(self.names) - 1)
        ranges = {
            **dict.fromkeys(("numbers", "pairs", "recent"), FINITE_64),
            "identity": any_version,
            "orders": COUNT,
            "leaving": Range(0, 1),
        }
        shared = self._shared
        found = fitting_all(state, {name: (shared[name], each) for name, each in ranges.items()})
        fitting(state, "identity", shared["identity"], names, (POLICY, PARENT))
        fitting(state, "numbers", shared["numbers"], COUNT, (GAMES, UNCERTAINTY, MEETINGS, PLAYED))
        for i, policy in enumerate(self.policies):
            held = found["identity"][[i, *self.slots.copies_of(policy)], POLICY]
            fits = bool(((held == i) | (held == NO_POLICY)).all())
            require(
                state, "identity", fits, f"the slots of {policy} must have its copies or be empty"
            )
        return found

    def _proposed(self) -> int:
        """Return a bound that exceeds the number of every proposed match; see `Dealer`."""
        others = (shard.word(OWN_PROPOSED) for shard in self.shards)
        return max(self.word(PROPOSED), *others, 0) * self.num_actors

    def _copy_whole(self, slot: int, weights: Floats, identity: Array) -> bool:
        """Copy the weights in a slot; return False if each try found the slot being written."""
        for _ in range(1000):
            before = load(self.occupants.sequence, slot)
            self.frozen_weights.copy_into(slot, weights)
            identity[slot] = self.occupants.identity[slot]
            fence_acquire()
            if before % 2 == 0 and load(self.occupants.sequence, slot) == before:
                return True
        return False
