"""Parts of a population's table in shared memory: its layout, members, numbers and records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.config.hyperparameters import HYPERPARAMETERS
from remuda.population.ledger.ledger import record_type
from remuda.population.ledger.records import FRESH, RATING, SCRIPTED, Member, Numbers, PolicyRef
from remuda.population.members.imported import Origin
from remuda.system.checkpoint.fitting import fitting
from remuda.system.kernels import njit
from remuda.system.memory.atomic import fence_acquire, fence_release, load, store
from remuda.system.memory.shared import Fields, SharedArrays
from remuda.types import Array, Bools, Floats, Integers, State

POLICY, VERSION, PARENT, PARENT_VERSION, BORN = range(5)
"""The columns of `identity`, the member in each slot."""
NO_POLICY = -1  # in `identity`: the slot is empty, or the member has no parent
ORDERED, ADMITTED, CONFIRMED, SINCE = range(4)
"""The columns of `orders`, by slot of a live policy. The actor writes `ORDERED`, the number of
births that it has ordered, and `ADMITTED`, how many of these newborns have started to play. The
learner writes `CONFIRMED`, the number of births that it has carried out, and `SINCE`, the version
under which it published the newest."""
STRIDE = 8
MATCHES, PROPOSED, RECORDS, MOVES, REVISION, OPTIONS = (i * STRIDE for i in range(6))
"""Indices of the table's counters, each on its own cache line: finished matches; matches proposed
by the actor; records written; twice the number of shifts of all ratings, odd during a shift; twice
the number of changes of members, odd during a change (only if there are followers); the checksum
of the environment options that were recorded last."""
NEWEST = 1 << 16
"""Maximum number of records kept for the coordinator, which reads them several times a second. The
actor does not wait: records that it overwrites before they are read are lost."""
LEAST, MOST_BYTES = 1 << 12, 64 * 2**20
"""With many seats records are large, and fewer are kept: at most `MOST_BYTES`, but at least `LEAST`
records."""


def newest_of(seats: int) -> int:
    """Return how many records are kept if a match has this many seats."""
    return max(min(NEWEST, MOST_BYTES // record_type(seats).itemsize), LEAST)


def table_fields(
    policies: int,
    seats: int,
    copies: int,
    others: int = 0,
    hyperparameters: int = len(HYPERPARAMETERS),
    episode_metrics: int = 0,
) -> Fields:
    slots = policies * (1 + copies) + others
    return {
        "identity": ((slots, 5), np.int64),
        "orders": ((policies, 4), np.int64),
        "hyperparameters": ((slots, hyperparameters), np.float64),
        "numbers": ((slots, len(FRESH) + 2 * episode_metrics), np.float64),
        "pairs": ((4, policies, slots), np.float64),
        "recent": ((2, policies, slots), np.float64),
        "sequence": ((slots,), np.int64),
        "leaving": ((slots,), np.int64),
        "moved": ((slots,), np.float64),
        "words": ((6 * STRIDE,), np.int64),
        "clear": ((policies,), np.int64),
        "taking": ((STRIDE,), np.int64),
        "records": ((newest_of(seats),), record_type(seats)),
    }


class Words:
    """Counters in shared memory, each read and written atomically."""

    def __init__(self, shared: SharedArrays) -> None:
        self._shared = shared

    @property
    def arrays(self) -> SharedArrays:
        return self._shared

    @property
    def nbytes(self) -> int:
        return self._shared.nbytes

    def word(self, word: int) -> int:
        return load(self._shared["words"], word)

    def set_word(self, word: int, value: int) -> None:
        store(self._shared["words"], word, value)


class Slots:
    """The slots of a population: live policies, their frozen copies, scripted and imported members.

    The slots for a policy's frozen copies are neighbours and never change their policy, so that
    equal networks are next to each other. The slot of a live policy may be empty, and another
    policy may be born there with the same name. Scripted and imported members have slots from the
    start, which stay empty once they retire.
    """

    def __init__(
        self,
        policies: Sequence[str],
        copies: int,  # slots for frozen copies of each policy
        origins: Sequence[Origin] = (),
        scripted: Sequence[str] = (),
        stand_ins: bool = False,
    ) -> None:
        self.policies, self.copies = tuple(policies), copies
        self.origins, self._stand_ins = tuple(origins), stand_ins
        imported = dict.fromkeys(origin.name for origin in origins)
        self.names = (*self.policies, *scripted, *imported)  # of members, policies first
        first = len(self.policies) * (1 + copies)
        self.scripted = range(first, first + len(scripted))
        self.imported = range(self.scripted.stop, self.scripted.stop + len(origins))
        others = [PolicyRef(name, SCRIPTED) for name in scripted]
        others += [PolicyRef(origin.name, origin.version) for origin in origins]
        # by slot: the members that never change and are present from the start
        self.outsiders = dict(enumerate(others, first))

    def __len__(self) -> int:
        return self.imported.stop

    def may_hold_copy(self, slot: int) -> bool:
        return len(self.policies) <= slot < self.scripted.start

    def copies_of(self, policy: str) -> range:
        first = len(self.policies) + self.policies.index(policy) * self.copies
        return range(first, first + self.copies)

    def stand_in_of(self, policy: str) -> int | None:
        """Return the slot of the copy that plays for a policy while another is born, if any."""
        return self.copies_of(policy)[-1] if self._stand_ins else None

    def of(self, name: str) -> int:
        """Return the slot of a live or scripted policy, or an imported member's first slot."""
        if name in self.policies:
            return self.policies.index(name)
        return next(slot for slot, ref in self.outsiders.items() if ref.policy == name)

    def row_of(self, slot: int) -> tuple[str, int]:
        """Return the policy of a frozen copy's slot, and its number among the copies."""
        policy, row = divmod(slot - len(self.policies), self.copies)
        return self.policies[policy], row


Identity = tuple[PolicyRef, PolicyRef | None, int]
"""A member, its parent and its birth."""


class Occupants:
    """The member in each slot: its name, version, parent and birth.

    A slot is empty or has a member. A retired member stays as `leaving` until its last matches have
    ended. While a copy is being frozen into a slot, its `sequence` is odd and a read may mix two
    members.
    """

    def __init__(self, shared: SharedArrays, slots: Slots) -> None:
        self._shared, self._slots = shared, slots

    @property
    def identity(self) -> Integers:
        """[slots, 5]: the member in each slot, in columns `POLICY`, `VERSION`, and so on."""
        return self._shared["identity"]

    @property
    def sequence(self) -> Integers:
        """[slots]: odd while a copy is being frozen into the slot; only the actor increments it."""
        return self._shared["sequence"]

    @property
    def there(self) -> Bools:
        """[slots]: whether the slot has a member that has not retired."""
        there: Bools = self.identity[:, POLICY] != NO_POLICY
        there &= self._shared["leaving"] == 0
        return there

    @property
    def living(self) -> tuple[str, ...]:
        """The policies in the population, and those with a copy standing in."""
        there = self.there
        slots, copies = self._slots, map(self._slots.stand_in_of, self._slots.policies)
        return tuple(
            policy
            for (slot, policy), spare in zip(enumerate(slots.policies), copies, strict=True)
            if there[slot] or (spare is not None and there[spare])
        )

    @property
    def frozen(self) -> int:
        return int(np.count_nonzero(self.there[len(self._slots.policies) :]))

    @property
    def leaving(self) -> list[int]:
        """The slots of retired members that may still play their last matches."""
        return np.flatnonzero(self._shared["leaving"]).tolist()

    def is_there(self, slot: int) -> bool:
        return bool(self.identity[slot, POLICY] != NO_POLICY)

    def put(self, slot: int, member: Member, there: bool = True) -> None:
        """Write a slot's member; `there` is false for a newborn that is not admitted yet."""
        ref, parent, names = member.ref, member.parent, self._slots.names
        self.identity[slot] = (
            names.index(ref.policy) if there else NO_POLICY,
            ref.version,
            NO_POLICY if parent is None else names.index(parent.policy),
            NO_POLICY if parent is None else parent.version,
            member.born,
        )

    def read(self, slot: int) -> Identity | None:
        """Return a slot's member, its parent and its birth; None without a complete member."""
        before = load(self.sequence, slot)
        row = self.identity[slot].tolist()
        fence_acquire()
        if before % 2 == 1 or load(self.sequence, slot) != before or row[POLICY] == NO_POLICY:
            return None
        return self.decode(slot, row)

    def decode(self, slot: int, row: Sequence[int]) -> Identity:
        """Decode a row of `identity`; of an ordered newborn it lacks the policy."""
        names, (policy, version, parent, parent_version, born) = self._slots.names, row
        ref = PolicyRef(names[slot if policy == NO_POLICY else policy], version)
        return ref, None if parent == NO_POLICY else PolicyRef(names[parent], parent_version), born

    def begin_writing(self, slot: int) -> int:
        """Announce that a copy is being frozen; returns the argument of `end_writing`."""
        writing = int(self.sequence[slot]) | 1  # already odd if an actor died while writing
        store(self.sequence, slot, writing)
        fence_release()
        return writing

    def end_writing(self, slot: int, writing: int) -> None:
        """Announce that the slot is complete."""
        store(self.sequence, slot, writing + 1)

    def leave(self, slot: int) -> None:
        """Mark a slot's member as retired; it may still play its last matches."""
        self._shared["leaving"][slot] = 1

    def remove(self, slot: int) -> None:
        self.identity[slot, POLICY] = NO_POLICY  # one word, so that the change is atomic
        self._shared["leaving"][slot] = 0


class MemberNumbers(Words):
    """Games, ratings and sums by slot; the actor updates them, and other processes copy them.

    Guarantees, where a move adds the same number to all ratings:

    1. A copy from `whole` has all ratings from before a move, or all from after it.
    2. If the actor dies during a move, its successor completes it with the same ratings.
    """

    @property
    def all(self) -> Numbers:
        """[slots, fields] of the members."""
        return self._shared["numbers"]

    def move_ratings(self, by: float) -> None:
        """Add a number to all ratings; called by the actor.

        The new ratings are first written to `moved`. Then `MOVES` becomes odd, the ratings are
        overwritten, and `MOVES` becomes even. If the actor dies before `MOVES` is odd, nothing has
        moved. If it dies while `MOVES` is odd, the successor overwrites the ratings again
        (`finish_move`). No process waits.
        """
        moved, moves = self._shared["moved"], self.word(MOVES)
        fence_release()  # `moved` changes only after `MOVES` is visibly even
        moved[...] = self.all[:, RATING] + by
        self.set_word(
            MOVES, moves + 1
        )  # a release store: readers of the odd number see all of `moved`
        fence_release()
        self.finish_move()

    def finish_move(self) -> None:
        moves = self.word(MOVES)
        if moves % 2 == 1:
            self.all[:, RATING] = self._shared["moved"]
            self.set_word(MOVES, moves + 1)

    def whole(self, slots: Integers | None = None) -> Numbers:
        """Return a copy with all ratings moved or none; the sums may lack a part of a match."""
        wanted = slice(None) if slots is None else slots
        while True:
            moves = self.word(MOVES)
            found: Numbers = self.all[wanted].copy()
            if moves % 2 == 1:
                found[:, RATING] = self._shared["moved"][wanted]
            fence_acquire()
            if self.word(MOVES) == moves:
                return found


class SlotHyperparameters:
    """Hyperparameters (see `remuda.config.hyperparameters`) of the policy in each slot.

    The lead writes those of a newborn before it orders the birth. In a population without births
    the coordinator writes those of live policies (`change`).
    """

    def __init__(self, shared: SharedArrays, names: Sequence[str]) -> None:
        self._shared, self.names = shared, tuple(names)

    @property
    def all(self) -> Array:
        """[slots, hyperparameters]; NaN if the policy does not have this hyperparameter."""
        return self._shared["hyperparameters"]

    def of(self, slot: int) -> dict[str, float]:
        row = self.all[slot].tolist()
        return {n: v for n, v in zip(self.names, row, strict=True) if not math.isnan(v)}

    def by_seat(self, name: str, seated: Integers) -> Floats:
        """Return a hyperparameter of the slots in `seated`: [num_envs, seats]; 0 if unset."""
        return _by_seat(self.all, self.names.index(name), seated)

    def restore(self, state: State) -> None:
        """Restore a table's hyperparameters; skip unknown names, keep values that `state` lacks."""
        found = [str(name) for name in state["hyperparameter_names"]]
        like = np.empty((len(self.all), len(found)))
        values = fitting(state, "hyperparameters", like)
        for column, name in enumerate(self.names):
            if name in found:
                self.all[:, column] = values[:, found.index(name)]

    def put(self, slot: int, hyperparameters: Mapping[str, float]) -> None:
        self.all[slot] = [hyperparameters.get(name, np.nan) for name in self.names]

    def change(self, slot: int, hyperparameters: Mapping[str, float]) -> None:
        """Replace a slot's hyperparameters; for the coordinator, while no actor writes them."""
        row = self.all[slot]
        for name, value in hyperparameters.items():
            row[self.names.index(name)] = value


@njit(cache=True)
def _by_seat(all_: Array, column: int, seated: Integers) -> Floats:
    found = np.zeros(seated.shape, np.float32)
    for env in range(seated.shape[0]):
        for seat in range(seated.shape[1]):
            value = all_[seated[env, seat], column]
            if not math.isnan(value):
                found[env, seat] = value
    return found


class RecordBuffer(Words):
    """A ring of records in shared memory, with one writer and one reader that never wait.

    Records that are overwritten before they are read are lost; gaps in the numbers show this.
    """

    def __init__(self, shared: SharedArrays, seats: int) -> None:
        super().__init__(shared)
        self.size = newest_of(seats)
        self._at_once = self.size // 4  # maximum number of records written before they are counted
        self._empty = np.zeros(1, record_type(seats))
        for name in ("policy", "version"):
            self._empty[name] = NO_POLICY

    @property
    def written(self) -> int:
        return self.word(RECORDS)

    def empty(self, count: int) -> Array:
        return np.repeat(self._empty, count)

    def add(self, records: Array) -> None:
        """Write records; called by the actor."""
        ring = self._shared["records"]
        for start in range(0, len(records), self._at_once):
            part, begin = records[start : start + self._at_once], self.written
            first = begin % self.size
            here = min(len(part), self.size - first)
            ring[first : first + here], ring[: len(part) - here] = part[:here], part[here:]
            self.set_word(RECORDS, begin + len(part))

    def since(self, begin: int) -> tuple[Array, int]:
        """Return the records from number `begin` that are not lost, and the next number."""
        end = self.written
        begin = max(begin, end - self.size)
        found = self._shared["records"][np.arange(begin, end) % self.size]
        fence_acquire()
        # The actor may have written more records since, and may be writing uncounted records.
        whole = self.written + self._at_once - self.size
        return found[max(whole - begin, 0) :], end
