"""The table of a population, in shared memory: who is in it, what they did, the newest results.

It outlives the actor that deals from it, and is what everybody else sees of a population: the
coordinator shows and saves it, and writes the results into the ledger.

Who writes what: everything here belongs to that actor. If it dies,

- a place whose `sequence` it left odd holds no copy: its successor empties it;
- results that were not yet counted in `RECORDS` never happened;
- of the result that it was counting, some sums may hold their share and others not.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from remuda.checkpoint.state import fitting
from remuda.errors import CheckpointError
from remuda.memory.atomic import fence_acquire, fence_release, load, store
from remuda.memory.shared import SharedArrays
from remuda.population.ledger import record_type
from remuda.population.records import FRESH, Member, Numbers, PolicyRef, Population
from remuda.publish.snapshot import Snapshot
from remuda.types import Array, Floats, Integers, State

POLICY, VERSION, PARENT, PARENT_VERSION, BORN = range(5)
"""What `identity` tells of a place."""
NOBODY = -1
STRIDE = 8
MATCHES, PROPOSED, RECORDS = 0 * STRIDE, 1 * STRIDE, 2 * STRIDE
"""Words: matches that are over, matches proposed, records written. Each on its own cache line."""
NEWEST = 1 << 14
"""Records that are kept for the coordinator, which fetches them several times a second."""
AT_ONCE = NEWEST // 4
"""The most that are written before they are counted."""
TRIES = 1000


class Table:
    """The places of a population: first the live policies, then each one's frozen copies.

    A place for a frozen copy belongs to one policy for good, next to its others, so that networks
    of one kind are neighbours.
    """

    def __init__(self, sizes: Mapping[str, int], seats: int, copies: int) -> None:
        """Make room.

        Args:
            sizes: by policy, the numbers in its weights.
            seats: of the game.
            copies: places for frozen copies of each policy.
        """
        self.policies, self.seats, self.copies = tuple(sizes), seats, copies
        places = len(sizes) * (1 + copies)
        kind = record_type(seats)
        self._shared = SharedArrays(
            {
                "identity": ((places, 5), np.int64),
                "numbers": ((places, len(FRESH)), np.float64),
                "pairs": ((3, places, places), np.float64),
                "sequence": ((places,), np.int64),
                "words": ((3 * STRIDE,), np.int64),
                "records": ((NEWEST,), kind),
            }
        )
        self._weights = {
            policy: SharedArrays(
                {
                    "weights": ((copies, size), np.float32),
                    "learner_step": ((copies,), np.int64),
                    "epsilon": ((copies,), np.float64),
                }
            )
            for policy, size in sizes.items()
        }
        self._shared["identity"][...] = NOBODY
        for place, policy in enumerate(self.policies):
            self._identify(place, Member(PolicyRef(policy)))
        self.numbers[: len(sizes)] = FRESH

    @property
    def numbers(self) -> Numbers:
        """[places, 4]: of the members."""
        numbers: Numbers = self._shared["numbers"]
        return numbers

    @property
    def pairs(self) -> Numbers:
        """[3, places, places]: what the ledger adds up."""
        pairs: Numbers = self._shared["pairs"]
        return pairs

    @property
    def identity(self) -> Integers:
        """[places, 5]: who is there, by `POLICY`, `VERSION`, and so on."""
        identity: Integers = self._shared["identity"]
        return identity

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

    def population(self, seats: Mapping[str, frozenset[int]] | None = None) -> Population:
        """Everybody who is in it; their numbers are the table's own.

        Anybody may ask while the actor goes on; who is frozen in that moment is left out.

        Args:
            seats: by policy, the seats that it may take, where it may not take all.
        """
        found = Population(numbers=self.numbers)
        for place in range(len(self.numbers)):
            before = load(self._shared["sequence"], place)
            row = self._shared["identity"][place].copy()
            fence_acquire()
            if before % 2 == 1 or load(self._shared["sequence"], place) != before:
                continue  # it is just being frozen
            policy, version, parent, parent_version, born = row.tolist()
            if policy == NOBODY:
                continue
            name = self.policies[policy]
            member = Member(
                PolicyRef(name, version),
                (seats or {}).get(name),
                None if parent == NOBODY else PolicyRef(self.policies[parent], parent_version),
                born,
            )
            member.numbers = self.numbers[place].copy()
            found.add(member, place)
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
        store(sequence, place, writing + 1)
        return zlib.crc32(held["weights"][i].tobytes())

    def retire(self, place: int) -> None:
        """Nobody is in this place any more."""
        self._shared["identity"][place, POLICY] = NOBODY  # one word: nobody sees half of it

    def repair(self) -> None:
        """For the successor of an actor that died: empty the place that it was writing."""
        for place in np.flatnonzero(self._shared["sequence"] % 2 == 1):
            self.retire(int(place))
            self.pairs[:, place] = self.pairs[:, :, place] = 0.0
            self._shared["sequence"][place] += 1

    def snapshot(self, place: int) -> Snapshot:
        """The frozen copy in a place."""
        held, i = self._held(place)
        weights: Floats = held["weights"][i].copy()
        version = int(self._shared["identity"][place, VERSION])
        return Snapshot(weights, version, int(held["learner_step"][i]), float(held["epsilon"][i]))

    def add_records(self, records: Array) -> None:
        """Tell the coordinator what happened."""
        kept = self._shared["records"]
        for start in range(0, len(records), AT_ONCE):
            part, begin = records[start : start + AT_ONCE], self.word(RECORDS)
            kept[np.arange(begin, begin + len(part)) % NEWEST] = part
            self.set_word(RECORDS, begin + len(part))

    def records_since(self, begin: int) -> tuple[Array, int]:
        """The records from number `begin` on, and the number of the next to come.

        Of those that came too fast to be fetched, the older ones are lost.
        """
        end = self.word(RECORDS)
        begin = max(begin, end - NEWEST)
        found = self._shared["records"][np.arange(begin, end) % NEWEST]
        fence_acquire()
        # Meanwhile the actor may have written more, and be writing beyond what it has counted.
        whole = self.word(RECORDS) + AT_ONCE - NEWEST
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
            "numbers": self.numbers.copy(),
            "pairs": self.pairs.copy(),
            "words": [self.word(word) for word in (MATCHES, PROPOSED, RECORDS)],
            "copies": {},
        }
        identity = self._shared["identity"].copy()
        for policy in self.policies:
            held = self._weights[policy]
            saved["copies"][policy] = {n: held[n].copy() for n in ("learner_step", "epsilon")}
            saved["copies"][policy]["weights"] = held["weights"].copy()
            for place in self.places_of(policy):
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
        for name in ("numbers", "pairs", "identity"):
            self._shared[name][...] = fitting(state, name, self._shared[name])
        for word, value in zip((MATCHES, PROPOSED, RECORDS), state["words"], strict=True):
            self.set_word(word, value)
        for policy, held in self._weights.items():
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

    def _identify(self, place: int, member: Member) -> None:
        ref, parent = member.ref, member.parent
        self._shared["identity"][place] = (
            self.policies.index(ref.policy),
            ref.version,
            NOBODY if parent is None else self.policies.index(parent.policy),
            NOBODY if parent is None else parent.version,
            member.born,
        )
