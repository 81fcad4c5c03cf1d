"""The table of a population, in shared memory: who is in it, what they did, the newest results.

It outlives the actor that deals from it, and is what other processes see of a population: the
coordinator shows and saves it, and writes the results into the ledger.

Who writes what: everything here belongs to that actor, except that learners confirm in `orders`
which births they have carried out (see `remuda.population.births`). If the actor dies,

- a place whose `sequence` it left odd holds no copy: its successor empties it;
- a policy that retired and was playing its last matches is gone: its successor empties the place;
- results that were not yet counted in `RECORDS` never happened;
- ratings that it was moving (`MemberNumbers.move_ratings`) are moved by its successor;
- of the result that it was counting, some sums may hold their share and others not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from remuda.checkpoint.state import fitting
from remuda.errors import CheckpointError
from remuda.memory.atomic import fence_acquire, fence_release, load, store
from remuda.memory.shared import Arena, SharedArrays
from remuda.population.births import BirthOrders
from remuda.population.frozen_weights import FrozenWeights, weight_arrays
from remuda.population.imported import Imported
from remuda.population.ledger import forget
from remuda.population.member_numbers import MemberNumbers
from remuda.population.place_hyperparameters import PlaceHyperparameters
from remuda.population.places import Places
from remuda.population.record_buffer import RecordBuffer
from remuda.population.records import FRESH, Member, Numbers, PolicyRef, Population
from remuda.population.table_layout import (
    BORN,
    MATCHES,
    MOVES,
    NO_POLICY,
    PARENT,
    PARENT_VERSION,
    POLICY,
    PROPOSED,
    RECORDS,
    VERSION,
    table_fields,
)
from remuda.publish.snapshot import Snapshot
from remuda.types import Array, Bools, Floats, Integers, State

Row = list[float]
"""Of a member, by `GAMES` and so on."""
MemberRow = tuple[PolicyRef, PolicyRef | None, int, int, Row]
"""Who it is, its parent, when it was born, its place, its numbers."""
TRIES = 1000


class Table:
    """Who is in which place of a population; its parts hold what is known of them.

    `places` says which place is whose, `numbers` and `member_numbers` what members earned and how
    they are rated, `frozen_weights` what those play with that do not learn, `births` what was
    ordered of learners, and `records` what the coordinator has to write down.
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
    ) -> None:
        """Allocate it.

        Args:
            sizes: by policy, the numbers in its weights.
            seats: of the game.
            copies: places for frozen copies of each policy.
            hyperparameters: by policy, those that it is specified with.
            empty: policies that are not there yet, and may be born.
            arena: where its memory is cut from; None: it has some of its own.
            imported: policies of other runs, members from the beginning.
        """
        self.places = Places(tuple(sizes), copies, [member.origin for member in imported])
        self.policies, self.names, self.seats = self.places.policies, self.places.names, seats
        shared = SharedArrays(table_fields(len(sizes), seats, copies, len(imported)), arena)
        weights = weight_arrays(sizes, copies, arena)
        self._shared = shared
        self.frozen_weights = FrozenWeights(self.places, weights, imported, arena)
        self.births = BirthOrders(shared, weights)
        self.records = RecordBuffer(shared, seats)
        self.member_numbers = MemberNumbers(shared)
        self.hyperparameters = PlaceHyperparameters(shared)
        self.hyperparameters.all[...] = np.nan
        self.identity[...] = NO_POLICY
        self.specified = dict(hyperparameters or {})
        for place, policy in enumerate(self.policies):
            self.hyperparameters.put(place, self.specified.get(policy, {}))
            if policy not in empty:
                self._identify(place, Member(PolicyRef(policy)))
        self.numbers[: len(sizes)] = FRESH
        for place, origin in zip(self.places.imported, self.places.origins, strict=True):
            self._identify(place, Member(PolicyRef(origin.name, origin.version)))
            self.numbers[place] = FRESH

    @property
    def nbytes(self) -> int:
        """Bytes that are shared, without weights."""
        return self._shared.nbytes

    @property
    def numbers(self) -> Numbers:
        """[places, fields]: of the members."""
        return self.member_numbers.all

    @property
    def pairs(self) -> Numbers:
        """[4, policies, places]: what the ledger adds up, of live policies with all members."""
        pairs: Numbers = self._shared["pairs"]
        return pairs

    @property
    def identity(self) -> Integers:
        """[places, 5]: who is there, by `POLICY`, `VERSION`, and so on."""
        identity: Integers = self._shared["identity"]
        return identity

    @property
    def sequence(self) -> Integers:
        """[places]: odd while a copy is frozen there; only the actor counts it up."""
        sequence: Integers = self._shared["sequence"]
        return sequence

    def word(self, word: int) -> int:
        """How many there were."""
        return load(self._shared["words"], word)

    def set_word(self, word: int, value: int) -> None:
        """Count."""
        store(self._shared["words"], word, value)

    @property
    def living(self) -> tuple[str, ...]:
        """The policies that are in the population."""
        there = self.there[: len(self.policies)].tolist()
        return tuple(p for p, is_there in zip(self.policies, there, strict=True) if is_there)

    @property
    def there(self) -> Bools:
        """[places]: where a member is that has not retired."""
        there: Bools = self.identity[:, POLICY] != NO_POLICY
        there &= self._shared["leaving"] == 0
        return there

    @property
    def frozen(self) -> int:
        """How many frozen copies there are."""
        return int(np.count_nonzero(self.there[len(self.policies) :]))

    @property
    def leaving(self) -> list[int]:
        """The places of those who have retired, and may still play their last matches."""
        places: list[int] = np.flatnonzero(self._shared["leaving"]).tolist()
        return places

    def is_there(self, place: int) -> bool:
        """Whether a member is in a place."""
        return bool(self.identity[place, POLICY] != NO_POLICY)

    def order(self, place: int, weights: Floats, newborn: Member) -> int:
        """Have a policy begin anew in an empty place; returns a digest of its weights."""
        digest = self.births.put_weights(place, weights)
        self._identify(place, newborn, there=False)
        self.hyperparameters.put(place, newborn.hyperparameters)
        self.births.count(place)
        return digest

    def admit(self, place: int) -> Member:
        """Let the policy that was ordered be there."""
        row = self.identity[place].tolist()
        parent = self._parent(row[PARENT], row[PARENT_VERSION])
        ref, own = PolicyRef(self.policies[place]), self.hyperparameters.of(place)
        newborn = Member(ref, None, parent, row[BORN], own)
        self._identify(place, newborn)
        self.births.close(place)
        return newborn

    def population(
        self,
        seats: Mapping[str, frozenset[int]] | None = None,
        own: bool = False,
    ) -> Population:
        """Return all members that have not retired.

        Any process may ask while the actor goes on; a copy that is just being frozen is left out.

        Args:
            seats: by policy, the seats that it may take, where it may not take all.
            own: its numbers are the table's own, for the actor to count in.
        """
        numbers = self.numbers if own else self.member_numbers.whole()
        found = Population(numbers=numbers)
        for place in np.flatnonzero(self.there).tolist():
            before = load(self.sequence, place)
            row = self.identity[place].copy()
            fence_acquire()
            if before % 2 == 1 or load(self.sequence, place) != before:
                continue  # it is just being frozen
            policy, version, parent, parent_version, born = row.tolist()
            if policy == NO_POLICY:
                continue
            name = self.names[policy]
            member = Member(
                PolicyRef(name, version),
                (seats or {}).get(name),
                self._parent(parent, parent_version),
                born,
                self.hyperparameters.of(place),
                is_imported=policy >= len(self.policies),
            )
            member.numbers = numbers[place].copy()
            found.add(member, place)
        return found

    def rows(self, frozen: bool = True, places: Integers | None = None) -> list[MemberRow]:
        """Return all members as plain data, for display: thousands in milliseconds.

        Args:
            frozen: with the frozen copies.
            places: only who is in these; None: in any.

        Returns:
            A row of each, by place.
        """
        if places is None:
            places = np.arange(len(self.identity) if frozen else len(self.policies))
        before = self.sequence[places]
        fence_acquire()
        identity, numbers = self.identity[places], self.member_numbers.whole(places)
        there = self.there[places]
        fence_acquire()
        there &= (identity[:, POLICY] != NO_POLICY) & (before % 2 == 0)
        there &= self.sequence[places] == before  # else it was just being frozen
        found, names = [], self.names
        rows = (each[there].tolist() for each in (places, identity, numbers))
        for place, (policy, version, parent, parent_version, born), row in zip(*rows, strict=True):
            of = self._parent(parent, parent_version)
            found.append((PolicyRef(names[policy], version), of, born, place, row))
        return found

    def freeze(self, member: Member, snapshot: Snapshot) -> int:
        """Keep a deep copy of these weights in the member's place; returns a digest of them."""
        sequence, place = self.sequence, member.place
        writing = int(sequence[place]) | 1  # odd already if an actor died here
        store(sequence, place, writing)
        fence_release()
        digest = self.frozen_weights.write(place, snapshot)
        self._identify(place, member)
        self.hyperparameters.put(place, member.hyperparameters)
        store(sequence, place, writing + 1)
        return digest

    def snapshot(self, place: int) -> Snapshot:
        """The frozen copy, or the imported member, in a place."""
        return self.frozen_weights.read(place, int(self.identity[place, VERSION]))

    def leave(self, place: int) -> None:
        """Note that who is in this place has retired: its last matches may still be played."""
        self._shared["leaving"][place] = 1

    def retire(self, place: int) -> None:
        """Empty a place: its member is gone."""
        self.identity[place, POLICY] = NO_POLICY  # one word: no reader sees half of it
        self._shared["leaving"][place] = 0

    def repair(self) -> None:
        """For the successor of an actor that died: empty the place that it was writing.

        Ratings that it was moving are moved.
        One that it was emptying is emptied whole; one whose policy was to play its last matches
        stays marked, and the successor empties it once that policy sits on no seat.
        """
        for place in np.flatnonzero(self.sequence % 2 == 1):
            self.retire(int(place))
            forget(self.pairs, int(place))
            self.sequence[place] += 1
        self._shared["leaving"][self.identity[:, POLICY] == NO_POLICY] = 0
        self.member_numbers.finish_move()

    def state(self) -> State:
        """Everything, as plain data; taken while the actor may go on.

        A frozen copy that it is just writing is left out.
        """
        saved: State = {
            "policies": list(self.policies),
            "pairs": self.pairs.copy(),
            "leaving": self._shared["leaving"].copy(),
            "words": [self.word(word) for word in (MATCHES, PROPOSED, RECORDS)],
            "copies": {},
        }
        while True:  # a birth that is ordered meanwhile comes along whole, or not at all
            orders = self.births.all.copy()
            fence_acquire()
            saved["numbers"] = self.member_numbers.whole()
            saved["hyperparameters"] = self.hyperparameters.all.copy()
            saved["cradles"] = {p: self.births.newborn_weights(p) for p in self.policies}
            fence_acquire()
            if (orders == self.births.all).all():
                break
        saved["orders"] = orders
        identity = self.identity.copy()
        for policy in self.policies:
            saved["copies"][policy] = held = self.frozen_weights.state(policy)
            for place in self.places.copies_of(policy):
                if identity[place, POLICY] == NO_POLICY:
                    continue
                if not self._copy_whole(place, held["weights"], identity):
                    identity[place] = NO_POLICY
        return saved | {"identity": identity}

    def restore(self, state: State) -> None:
        """Hold what was held; before any role begins.

        Raises:
            CheckpointError: it is of other policies, or of another number of copies.
        """
        if state["policies"] != list(self.policies):
            raise CheckpointError(
                f"it holds the policies {', '.join(state['policies'])}, and there are "
                f"{', '.join(self.policies)} now"
            )
        for name in ("numbers", "pairs", "identity", "orders", "hyperparameters", "leaving"):
            self._shared[name][...] = fitting(state, name, self._shared[name])
        for word, value in zip((MATCHES, PROPOSED, RECORDS), state["words"], strict=True):
            self.set_word(word, value)
        self.set_word(MOVES, 0)
        for policy in self.policies:
            self.births.restore_weights(policy, state["cradles"])
            self.frozen_weights.restore(policy, state["copies"][policy])

    def _copy_whole(self, place: int, weights: Floats, identity: Array) -> bool:
        """Copy what is in a place; False: it was being written all the while."""
        for _ in range(TRIES):
            before = load(self.sequence, place)
            self.frozen_weights.copy_into(place, weights)
            identity[place] = self.identity[place]
            fence_acquire()
            if before % 2 == 0 and load(self.sequence, place) == before:
                return True
        return False

    def _parent(self, policy: int, version: int) -> PolicyRef | None:
        return None if policy == NO_POLICY else PolicyRef(self.names[policy], version)

    def _identify(self, place: int, member: Member, there: bool = True) -> None:
        ref, parent = member.ref, member.parent
        self.identity[place] = (
            self.names.index(ref.policy) if there else NO_POLICY,
            ref.version,
            NO_POLICY if parent is None else self.names.index(parent.policy),
            NO_POLICY if parent is None else parent.version,
            member.born,
        )
