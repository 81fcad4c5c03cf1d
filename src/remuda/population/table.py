"""The table of a population, in shared memory: who is in it, what they did, the newest results.

It outlives the actor that deals from it, and is what everybody else sees of a population: the
coordinator shows and saves it, and writes the results into the ledger.

Who writes what: everything here belongs to that actor, except that learners say in `orders` which
births they have carried out (see `remuda.population.nursery`). If the actor dies,

- a place whose `sequence` it left odd holds no copy: its successor empties it;
- one who retired and was playing its last matches is gone: its successor empties the place;
- results that were not yet counted in `RECORDS` never happened;
- ratings that it was moving (`move_ratings`) are moved by its successor;
- of the result that it was counting, some sums may hold their share and others not.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from remuda.checkpoint.state import fitting
from remuda.errors import CheckpointError
from remuda.hyperparameters import HYPERPARAMETERS, names_of
from remuda.memory.atomic import fence_acquire, fence_release, load, store
from remuda.memory.shared import Arena, Fields, SharedArrays
from remuda.population.imported import Imported
from remuda.population.ledger import forget, record_type
from remuda.population.records import FRESH, RATING, Member, Numbers, PolicyRef, Population
from remuda.publish.snapshot import Snapshot
from remuda.types import Array, Bools, Floats, Integers, State

Row = list[float]
"""Of a member, by `GAMES` and so on."""
MemberRow = tuple[PolicyRef, PolicyRef | None, int, int, Row]
"""Who it is, its parent, when it was born, its place, its numbers."""
POLICY, VERSION, PARENT, PARENT_VERSION, BORN = range(5)
"""What `identity` tells of a place."""
ORDERED, ADMITTED, ADOPTED, SINCE = range(4)
"""What `orders` tells of a live policy's place: births ordered, and of how many of them the newborn
plays; and by its learner: births carried out, and the version of the newest of them."""
NOBODY = -1
STRIDE = 8
MATCHES, PROPOSED, RECORDS, MOVES = 0 * STRIDE, 1 * STRIDE, 2 * STRIDE, 3 * STRIDE
"""Words: matches that are over, matches proposed, records written, and how often all ratings began
and ended to be moved, odd while they are. Each on its own cache line."""
NEWEST = 1 << 16
"""The most records that are kept for the coordinator, which fetches them several times a second.
The actor does not wait for it: what is written over before it was fetched is lost, and counted."""
LEAST, MOST_BYTES = 1 << 12, 64 * 2**20
"""Where records are large, since the game has many seats, fewer are kept: as many as these bytes
hold, but at least so many."""
TRIES = 1000


def newest_of(seats: int) -> int:
    """How many records are kept of a game of so many seats."""
    return max(min(NEWEST, MOST_BYTES // record_type(seats).itemsize), LEAST)


def table_fields(
    policies: int,
    seats: int,
    copies: int,
    imported: int = 0,
    hyperparameters: int = len(HYPERPARAMETERS),
) -> Fields:
    """What is shared of a population, without weights.

    Args:
        policies: live ones, and empty places of them.
        seats: of the game.
        copies: places for frozen copies of each policy.
        imported: places for policies of other runs.
        hyperparameters: of each.
    """
    places = policies * (1 + copies) + imported
    return {
        "identity": ((places, 5), np.int64),
        "orders": ((policies, 4), np.int64),
        "hyperparameters": ((places, hyperparameters), np.float64),
        "numbers": ((places, len(FRESH)), np.float64),
        "pairs": ((4, policies, places), np.float64),
        "sequence": ((places,), np.int64),
        "leaving": ((places,), np.int64),
        "moved": ((places,), np.float64),
        "words": ((4 * STRIDE,), np.int64),
        "records": ((newest_of(seats),), record_type(seats)),
    }


class Table:
    """The places of a population: live policies, each one's frozen copies, imported members.

    A place for a frozen copy belongs to one policy for good, next to its others, so that networks
    of one kind are neighbours. The place of a live policy may be empty, and be taken by another
    that is born there, under the same name. A policy of another run has its place from the
    beginning, which stays empty once it has retired.
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
        """Make room.

        Args:
            sizes: by policy, the numbers in its weights.
            seats: of the game.
            copies: places for frozen copies of each policy.
            hyperparameters: by policy, those that it is specified with.
            empty: policies that are not there yet, and may be born.
            arena: where its memory is cut from; None: it has some of its own.
            imported: policies of other runs, members from the beginning.
        """
        self.policies, self.seats, self.copies = tuple(sizes), seats, copies
        self.origins = tuple(member.origin for member in imported)
        """Of the imported members, by place."""
        self.names = (*self.policies, *dict.fromkeys(origin.name for origin in self.origins))
        """By number, what members are called: those of policies first."""
        self.newest = newest_of(seats)
        """Records that are kept for the coordinator."""
        self._at_once = self.newest // 4
        """The most that are written before they are counted."""
        self.specified = dict(hyperparameters or {})
        self.hyperparameter_names = names_of(self.specified.values())
        """In the order in which the hyperparameters of a place are kept."""
        fields = table_fields(
            len(sizes), seats, copies, len(imported), len(self.hyperparameter_names)
        )
        self._shared = SharedArrays(fields, arena)
        self._weights = {
            policy: SharedArrays(
                {
                    "cradle": ((size,), np.float32),
                    "weights": ((copies, size), np.float32),
                    "learner_step": ((copies,), np.int64),
                    "epsilon": ((copies,), np.float64),
                },
                arena,
            )
            for policy, size in sizes.items()
        }
        self._imported = tuple(
            SharedArrays({"weights": ((1, member.weights.size), np.float32)}, arena)
            for member in imported
        )
        self._shared["identity"][...] = NOBODY
        self._shared["hyperparameters"][...] = np.nan
        for place, policy in enumerate(self.policies):
            self._note(place, self.specified.get(policy, {}))
            if policy not in empty:
                self._identify(place, Member(PolicyRef(policy)))
        self.numbers[: len(sizes)] = FRESH
        for place, member, held in zip(self.imported_places, imported, self._imported, strict=True):
            held["weights"][0] = member.weights
            self._identify(place, Member(PolicyRef(member.origin.name, member.origin.version)))
            self.numbers[place] = FRESH

    @property
    def numbers(self) -> Numbers:
        """[places, fields]: of the members."""
        numbers: Numbers = self._shared["numbers"]
        return numbers

    @property
    def pairs(self) -> Numbers:
        """[4, policies, places]: what the ledger adds up, of live policies with everybody."""
        pairs: Numbers = self._shared["pairs"]
        return pairs

    @property
    def identity(self) -> Integers:
        """[places, 5]: who is there, by `POLICY`, `VERSION`, and so on."""
        identity: Integers = self._shared["identity"]
        return identity

    def move_ratings(self, by: float) -> None:
        """Add a number to all ratings; for the actor.

        All of them are moved or none, for who reads with `whole_numbers` and for every successor.
        What they will be is written first, beside them; then `MOVES` becomes odd, they are
        overwritten, and it becomes even. If the actor dies before it is odd, nothing was moved; if
        it dies while it is odd, its successor writes them over once more (`repair`). No process
        waits for either.
        """
        moved, moves = self._shared["moved"], self.word(MOVES)
        fence_release()  # who still reads `moved` as it was sees first that `MOVES` became even
        moved[...] = self.numbers[:, RATING] + by
        self.set_word(MOVES, moves + 1)  # releases: who sees it odd sees all of `moved`
        fence_release()
        self._finish_moving()

    def _finish_moving(self) -> None:
        """Bring to an end what `move_ratings` began, however far it came."""
        moves = self.word(MOVES)
        if moves % 2 == 1:
            self.numbers[:, RATING] = self._shared["moved"]
            self.set_word(MOVES, moves + 1)

    def whole_numbers(self, places: Integers | None = None) -> Numbers:
        """A copy of the members' numbers, in which all ratings are moved, or none.

        While they are being moved they are taken from where they stand whole, so that this never
        waits. Of a match that is being counted, some sums may hold their share and others not.

        Args:
            places: of these only; None: of all.
        """
        wanted = slice(None) if places is None else places
        while True:
            moves = self.word(MOVES)
            found: Numbers = self.numbers[wanted].copy()
            if moves % 2 == 1:
                found[:, RATING] = self._shared["moved"][wanted]
            fence_acquire()
            if self.word(MOVES) == moves:
                return found

    def word(self, word: int) -> int:
        """How many there were."""
        return load(self._shared["words"], word)

    def set_word(self, word: int, value: int) -> None:
        """Count."""
        store(self._shared["words"], word, value)

    def places_of(self, policy: str) -> range:
        """The places of a policy's frozen copies."""
        first = len(self.policies) + self.policies.index(policy) * self.copies
        return range(first, first + self.copies)

    @property
    def imported_places(self) -> range:
        """The places of the imported members."""
        first = len(self.policies) * (1 + self.copies)
        return range(first, first + len(self.origins))

    def place_of(self, name: str) -> int:
        """The place of a live policy, or the first of an imported member of this name."""
        if name in self.policies:
            return self.policies.index(name)
        found = (o.name == name for o in self.origins)
        return self.imported_places[list(found).index(True)]

    @property
    def living(self) -> tuple[str, ...]:
        """The policies that are in the population."""
        there = self.there[: len(self.policies)].tolist()
        return tuple(p for p, is_there in zip(self.policies, there, strict=True) if is_there)

    @property
    def there(self) -> Bools:
        """[places]: where a member is that has not retired."""
        there: Bools = self._shared["identity"][:, POLICY] != NOBODY
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

    @property
    def expected(self) -> list[int]:
        """The places of live policies where one was ordered that does not play yet."""
        orders = self._shared["orders"]
        places: list[int] = np.flatnonzero(orders[:, ADMITTED] != orders[:, ORDERED]).tolist()
        return places

    def hyperparameters(self, place: int) -> dict[str, float]:
        """Those of the policy in a place, by name."""
        row = self._shared["hyperparameters"][place].tolist()
        named = zip(self.hyperparameter_names, row, strict=True)
        return {name: value for name, value in named if not math.isnan(value)}

    def change(self, place: int, hyperparameters: Mapping[str, float]) -> None:
        """Replace some hyperparameters of the policy in a place; before any role begins."""
        row = self._shared["hyperparameters"][place]
        for name, value in hyperparameters.items():
            row[self.hyperparameter_names.index(name)] = value

    def is_there(self, place: int) -> bool:
        """Whether a member is in a place."""
        return bool(self._shared["identity"][place, POLICY] != NOBODY)

    # Births. The first three are the actor's, the last three the learner's.

    def order(self, place: int, weights: Floats, newborn: Member) -> int:
        """Have a policy begin anew in an empty place; returns a digest of its weights."""
        held = self._weights[self.policies[place]]
        held["cradle"][...] = weights
        self._identify(place, newborn, there=False)
        self._note(place, newborn.hyperparameters)
        orders = self._shared["orders"]
        store(orders[place], ORDERED, int(orders[place, ORDERED]) + 1)
        return zlib.crc32(held["cradle"].tobytes())

    def is_expected(self, place: int) -> bool:
        """Whether a policy was ordered that does not play yet."""
        orders = self._shared["orders"][place]
        return bool(orders[ADMITTED] != orders[ORDERED])

    def since(self, place: int) -> int | None:
        """The version under which the policy that was ordered was published; None: not yet."""
        orders = self._shared["orders"][place]
        if load(orders, ADOPTED) != orders[ORDERED]:
            return None
        return int(orders[SINCE])

    def admit(self, place: int) -> Member:
        """Let the policy that was ordered be there."""
        row = self._shared["identity"][place].tolist()
        parent = None if row[PARENT] == NOBODY else self._ref(row[PARENT], row[PARENT_VERSION])
        name = self.policies[place]
        newborn = Member(PolicyRef(name), None, parent, row[BORN], self.hyperparameters(place))
        self._identify(place, newborn)
        orders = self._shared["orders"]
        orders[place, ADMITTED] = orders[place, ORDERED]
        return newborn

    def ordered(self, place: int) -> int:
        """How many births there were to be in a place."""
        return load(self._shared["orders"][place], ORDERED)

    def adopted(self, place: int) -> int:
        """How many of them its learner has carried out."""
        return load(self._shared["orders"][place], ADOPTED)

    def cradle(self, policy: str) -> Floats:
        """The weights of the policy to be born: [size]. They stay until it was adopted."""
        weights: Floats = self._weights[policy]["cradle"].copy()
        return weights

    def adopt(self, place: int, version: int) -> int:
        """Carry out the newest order; returns how many there have been."""
        orders, ordered = self._shared["orders"], self.ordered(place)
        orders[place, SINCE] = version
        store(orders[place], ADOPTED, ordered)
        return ordered

    def _ref(self, policy: int, version: int) -> PolicyRef:
        return PolicyRef(self.names[policy], version)

    def population(
        self,
        seats: Mapping[str, frozenset[int]] | None = None,
        own: bool = False,
    ) -> Population:
        """Everybody who is in it, and has not retired.

        Any process may ask while the actor goes on; a copy that is just being frozen is left out.

        Args:
            seats: by policy, the seats that it may take, where it may not take all.
            own: its numbers are the table's own, for the actor to count in.
        """
        numbers = self.numbers if own else self.whole_numbers()
        found = Population(numbers=numbers)
        for place in np.flatnonzero(self.there).tolist():
            before = load(self._shared["sequence"], place)
            row = self._shared["identity"][place].copy()
            fence_acquire()
            if before % 2 == 1 or load(self._shared["sequence"], place) != before:
                continue  # it is just being frozen
            policy, version, parent, parent_version, born = row.tolist()
            if policy == NOBODY:
                continue
            name = self.names[policy]
            member = Member(
                PolicyRef(name, version),
                (seats or {}).get(name),
                None if parent == NOBODY else self._ref(parent, parent_version),
                born,
                self.hyperparameters(place),
                is_imported=policy >= len(self.policies),
            )
            member.numbers = numbers[place].copy()
            found.add(member, place)
        return found

    def rows(self, frozen: bool = True, places: Integers | None = None) -> list[MemberRow]:
        """Everybody who is in it, as plain data, for who only looks: thousands in milliseconds.

        Args:
            frozen: with the frozen copies.
            places: only who is in these; None: in any.

        Returns:
            A row of each, by place.
        """
        if places is None:
            places = np.arange(len(self.identity) if frozen else len(self.policies))
        sequence = self._shared["sequence"]
        before = sequence[places]
        fence_acquire()
        identity, numbers = self.identity[places], self.whole_numbers(places)
        there = self.there[places]
        fence_acquire()
        there &= (identity[:, POLICY] != NOBODY) & (before % 2 == 0)
        there &= sequence[places] == before  # else it was just being frozen
        found, names = [], self.names
        rows = (each[there].tolist() for each in (places, identity, numbers))
        for place, (policy, version, parent, parent_version, born), row in zip(*rows, strict=True):
            of = None if parent == NOBODY else PolicyRef(names[parent], parent_version)
            found.append((PolicyRef(names[policy], version), of, born, place, row))
        return found

    def freeze(self, member: Member, snapshot: Snapshot) -> int:
        """Keep a deep copy of these weights in the member's place; returns a digest of them."""
        sequence, place = self._shared["sequence"], member.place
        writing = int(sequence[place]) | 1  # odd already if an actor died here
        store(sequence, place, writing)
        fence_release()
        held, i = self._held(place)
        held["weights"][i] = snapshot.weights
        held["learner_step"][i] = snapshot.learner_step
        held["epsilon"][i] = snapshot.epsilon
        self._identify(place, member)
        self._note(place, member.hyperparameters)
        store(sequence, place, writing + 1)
        return zlib.crc32(held["weights"][i].tobytes())

    def leave(self, place: int) -> None:
        """Note that who is in this place has retired: its last matches may still be played."""
        self._shared["leaving"][place] = 1

    def retire(self, place: int) -> None:
        """Empty a place: its member is gone."""
        self._shared["identity"][place, POLICY] = NOBODY  # one word: no reader sees half of it
        self._shared["leaving"][place] = 0

    def repair(self) -> None:
        """For the successor of an actor that died: empty the place that it was writing.

        Ratings that it was moving are moved.
        One that it was emptying is emptied whole; one whose policy was to play its last matches
        stays marked, and the successor empties it once that policy sits on no seat.
        """
        for place in np.flatnonzero(self._shared["sequence"] % 2 == 1):
            self.retire(int(place))
            forget(self.pairs, int(place))
            self._shared["sequence"][place] += 1
        self._shared["leaving"][self._shared["identity"][:, POLICY] == NOBODY] = 0
        self._finish_moving()

    def snapshot(self, place: int) -> Snapshot:
        """The frozen copy, or the imported member, in a place."""
        if place in self.imported_places:
            at = self.imported_places.index(place)
            own: Floats = self._imported[at]["weights"][0].copy()
            origin = self.origins[at]
            return Snapshot(own, origin.version, origin.learner_step, origin.epsilon)
        held, i = self._held(place)
        weights: Floats = held["weights"][i].copy()
        version = int(self._shared["identity"][place, VERSION])
        return Snapshot(weights, version, int(held["learner_step"][i]), float(held["epsilon"][i]))

    def add_records(self, records: Array) -> None:
        """Tell the coordinator what happened."""
        kept = self._shared["records"]
        for start in range(0, len(records), self._at_once):
            part, begin = records[start : start + self._at_once], self.word(RECORDS)
            kept[np.arange(begin, begin + len(part)) % self.newest] = part
            self.set_word(RECORDS, begin + len(part))

    def records_since(self, begin: int) -> tuple[Array, int]:
        """The records from number `begin` on, and the number of the next to come.

        Of those that came too fast to be fetched, the older ones are lost: there are fewer records
        then than there are numbers from `begin` to the next.
        """
        end = self.word(RECORDS)
        begin = max(begin, end - self.newest)
        found = self._shared["records"][np.arange(begin, end) % self.newest]
        fence_acquire()
        # Meanwhile the actor may have written more, and be writing beyond what it has counted.
        whole = self.word(RECORDS) + self._at_once - self.newest
        return found[max(whole - begin, 0) :], end

    def empty_records(self, count: int) -> Array:
        """Room for so many records, with nothing in them."""
        records = np.zeros(count, record_type(self.seats))
        for name in ("policy", "version"):
            records[name] = NOBODY
        return records

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
            orders = self._shared["orders"].copy()
            fence_acquire()
            saved["numbers"] = self.whole_numbers()
            saved["hyperparameters"] = self._shared["hyperparameters"].copy()
            saved["cradles"] = {policy: self.cradle(policy) for policy in self.policies}
            fence_acquire()
            if (orders == self._shared["orders"]).all():
                break
        saved["orders"] = orders
        identity = self._shared["identity"].copy()
        for policy in self.policies:
            held = self._weights[policy]
            saved["copies"][policy] = {n: held[n].copy() for n in ("learner_step", "epsilon")}
            saved["copies"][policy]["weights"] = np.zeros_like(held["weights"])
            for place in self.places_of(policy):
                if identity[place, POLICY] == NOBODY:
                    continue
                if not self._copy_whole(place, saved["copies"][policy]["weights"], identity):
                    identity[place] = NOBODY
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
        for policy, held in self._weights.items():
            held["cradle"][...] = fitting(state["cradles"], policy, held["cradle"])
            for name in ("weights", "learner_step", "epsilon"):
                held[name][...] = fitting(state["copies"][policy], name, held[name])

    def _copy_whole(self, place: int, weights: Floats, identity: Array) -> bool:
        """Copy what is in a place; False: it was being written all the while."""
        held, i = self._held(place)
        sequence = self._shared["sequence"]
        for _ in range(TRIES):
            before = load(sequence, place)
            weights[i], identity[place] = held["weights"][i], self._shared["identity"][place]
            fence_acquire()
            if before % 2 == 0 and load(sequence, place) == before:
                return True
        return False

    def _held(self, place: int) -> tuple[SharedArrays, int]:
        policy, i = divmod(place - len(self.policies), self.copies)
        return self._weights[self.policies[policy]], i

    def note_change(self, policy: str, hyperparameters: Mapping[str, float]) -> None:
        """Note what a live policy is trained with from now on; for the coordinator.

        Only where no policy is ever born: else these numbers are the actor's.
        """
        place = self.policies.index(policy)
        self._note(place, self.hyperparameters(place) | dict(hyperparameters))

    def _note(self, place: int, hyperparameters: Mapping[str, float]) -> None:
        row = [hyperparameters.get(name, np.nan) for name in self.hyperparameter_names]
        self._shared["hyperparameters"][place] = row

    def _identify(self, place: int, member: Member, there: bool = True) -> None:
        ref, parent = member.ref, member.parent
        self._shared["identity"][place] = (
            self.names.index(ref.policy) if there else NOBODY,
            ref.version,
            NOBODY if parent is None else self.names.index(parent.policy),
            NOBODY if parent is None else parent.version,
            member.born,
        )


def frozen_copies(state: State) -> list[tuple[str, Snapshot]]:
    """The frozen copies in what `Table.state` returned, each with its policy, by version."""
    policies, found = state["policies"], []
    for policy, name in enumerate(policies):
        held = state["copies"][name]
        first = len(policies) + policy * len(held["weights"])
        for i, weights in enumerate(held["weights"]):
            identity = state["identity"][first + i]
            if identity[POLICY] == policy:
                step, epsilon = int(held["learner_step"][i]), float(held["epsilon"][i])
                found.append((name, Snapshot(weights, int(identity[VERSION]), step, epsilon)))
    return sorted(found, key=lambda copy: (copy[0], copy[1].version))
