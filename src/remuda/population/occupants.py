"""The member in each place of a population, in shared memory; the actor writes, all read."""

from __future__ import annotations

import numpy as np

from remuda.memory.atomic import fence_acquire, fence_release, load, store
from remuda.memory.shared import SharedArrays
from remuda.population.records import Member, PolicyRef
from remuda.population.table_layout import (
    BORN,
    NO_POLICY,
    PARENT,
    PARENT_VERSION,
    POLICY,
    VERSION,
    Places,
)
from remuda.types import Bools, Integers


class Occupants:
    """The member in each place: its name and version, its parent, its birth.

    A place is empty or has a member; a retired member stays as `leaving` until its last matches are
    over. While a copy is being frozen into a place its `sequence` is odd, and a read may mix two
    members.
    """

    def __init__(self, shared: SharedArrays, places: Places) -> None:
        """Write into the arrays of `table_fields`."""
        self._shared, self._places = shared, places

    @property
    def identity(self) -> Integers:
        """[places, 5]: the member in each place, in columns `POLICY`, `VERSION`, and so on."""
        return self._shared["identity"]

    @property
    def sequence(self) -> Integers:
        """[places]: odd while a copy is frozen there; only the actor increments it."""
        return self._shared["sequence"]

    @property
    def there(self) -> Bools:
        """[places]: whether a member that has not retired is there."""
        there: Bools = self.identity[:, POLICY] != NO_POLICY
        there &= self._shared["leaving"] == 0
        return there

    @property
    def living(self) -> tuple[str, ...]:
        """Policies that are in the population, or have a copy standing in."""
        there = self.there
        places, copies = self._places, map(self._places.stand_in_of, self._places.policies)
        return tuple(
            policy
            for (place, policy), spare in zip(enumerate(places.policies), copies, strict=True)
            if there[place] or (spare is not None and there[spare])
        )

    @property
    def frozen(self) -> int:
        """The number of members that do not learn."""
        return int(np.count_nonzero(self.there[len(self._places.policies) :]))

    @property
    def leaving(self) -> list[int]:
        """The places of retired members that may still play their last matches."""
        return np.flatnonzero(self._shared["leaving"]).tolist()

    def is_there(self, place: int) -> bool:
        """Return whether a member is in a place."""
        return bool(self.identity[place, POLICY] != NO_POLICY)

    def put(self, place: int, member: Member, there: bool = True) -> None:
        """Write the member in a place, or one to be born there."""
        ref, parent, names = member.ref, member.parent, self._places.names
        self.identity[place] = (
            names.index(ref.policy) if there else NO_POLICY,
            ref.version,
            NO_POLICY if parent is None else names.index(parent.policy),
            NO_POLICY if parent is None else parent.version,
            member.born,
        )

    def read(self, place: int) -> tuple[PolicyRef, PolicyRef | None, int] | None:
        """Return a member, its parent and its birth; None if there is no complete member."""
        before = load(self.sequence, place)
        policy, version, parent, parent_version, born = self.identity[place].tolist()
        fence_acquire()
        if before % 2 == 1 or load(self.sequence, place) != before or policy == NO_POLICY:
            return None
        ref = PolicyRef(self._places.names[policy], version)
        return ref, self.parent(parent, parent_version), born

    def ordered(self, place: int) -> tuple[PolicyRef | None, int]:
        """Return the parent and the birth of the policy ordered in a place."""
        row = self.identity[place].tolist()
        return self.parent(row[PARENT], row[PARENT_VERSION]), row[BORN]

    def parent(self, policy: int, version: int) -> PolicyRef | None:
        """Return a parent from its columns of `identity`, if any."""
        return None if policy == NO_POLICY else PolicyRef(self._places.names[policy], version)

    def version(self, place: int) -> int:
        """Return the version of the member in a place."""
        return int(self.identity[place, VERSION])

    def begin_writing(self, place: int) -> int:
        """Announce that a copy is being frozen; returns the argument of `end_writing`."""
        writing = int(self.sequence[place]) | 1  # odd already if an actor died here
        store(self.sequence, place, writing)
        fence_release()
        return writing

    def end_writing(self, place: int, writing: int) -> None:
        """Announce that the place is complete."""
        store(self.sequence, place, writing + 1)

    def leave(self, place: int) -> None:
        """Note that the member in this place has retired, and may still play its last matches."""
        self._shared["leaving"][place] = 1

    def remove(self, place: int) -> None:
        """Empty a place."""
        self.identity[place, POLICY] = NO_POLICY  # one word: no reader sees half of it
        self._shared["leaving"][place] = 0

    @property
    def half_written(self) -> list[int]:
        """The places that an actor was writing when it died."""
        return np.flatnonzero(self.sequence % 2 == 1).tolist()

    def finish_removals(self) -> None:
        """Complete removals that an actor had begun when it died."""
        self._shared["leaving"][self.identity[:, POLICY] == NO_POLICY] = 0
