"""Who is in which place of a population, in shared memory; written by the actor, read by all."""

from __future__ import annotations

import numpy as np

from remuda.memory.atomic import fence_acquire, fence_release, load, store
from remuda.memory.shared import SharedArrays
from remuda.population.places import Places
from remuda.population.records import Member, PolicyRef
from remuda.population.table_layout import BORN, NO_POLICY, PARENT, PARENT_VERSION, POLICY, VERSION
from remuda.types import Bools, Integers


class Occupants:
    """The member in each place: its name and version, its parent, when it was born.

    A place is empty, or a member is there; one that has retired stays until its last matches are
    over, and is `leaving`. While a copy is being frozen into a place its `sequence` is odd, and
    what is read there meanwhile may be of two members.
    """

    def __init__(self, shared: SharedArrays, places: Places) -> None:
        """Write into the arrays of `table_fields`."""
        self._shared, self._places = shared, places

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

    @property
    def there(self) -> Bools:
        """[places]: where a member is that has not retired."""
        there: Bools = self.identity[:, POLICY] != NO_POLICY
        there &= self._shared["leaving"] == 0
        return there

    @property
    def living(self) -> tuple[str, ...]:
        """The policies that are in the population, or for which a copy stands in."""
        there = self.there
        places, copies = self._places, map(self._places.stand_in_of, self._places.policies)
        return tuple(
            policy
            for (place, policy), spare in zip(enumerate(places.policies), copies, strict=True)
            if there[place] or (spare is not None and there[spare])
        )

    @property
    def frozen(self) -> int:
        """How many members there are that do not learn."""
        return int(np.count_nonzero(self.there[len(self._places.policies) :]))

    @property
    def leaving(self) -> list[int]:
        """The places of those who have retired, and may still play their last matches."""
        places: list[int] = np.flatnonzero(self._shared["leaving"]).tolist()
        return places

    def is_there(self, place: int) -> bool:
        """Whether a member is in a place."""
        return bool(self.identity[place, POLICY] != NO_POLICY)

    def put(self, place: int, member: Member, there: bool = True) -> None:
        """Write who is in a place, or is to be born there."""
        ref, parent, names = member.ref, member.parent, self._places.names
        self.identity[place] = (
            names.index(ref.policy) if there else NO_POLICY,
            ref.version,
            NO_POLICY if parent is None else names.index(parent.policy),
            NO_POLICY if parent is None else parent.version,
            member.born,
        )

    def read(self, place: int) -> tuple[PolicyRef, PolicyRef | None, int] | None:
        """Who is in a place, its parent, and when it was born; None: no member as a whole."""
        before = load(self.sequence, place)
        policy, version, parent, parent_version, born = self.identity[place].tolist()
        fence_acquire()
        if before % 2 == 1 or load(self.sequence, place) != before or policy == NO_POLICY:
            return None
        ref = PolicyRef(self._places.names[policy], version)
        return ref, self.parent(parent, parent_version), born

    def ordered(self, place: int) -> tuple[PolicyRef | None, int]:
        """The parent of the policy that is to be born in a place, and when it was ordered."""
        row = self.identity[place].tolist()
        return self.parent(row[PARENT], row[PARENT_VERSION]), row[BORN]

    def parent(self, policy: int, version: int) -> PolicyRef | None:
        """A parent as the columns of `identity` have it; None: there is none."""
        return None if policy == NO_POLICY else PolicyRef(self._places.names[policy], version)

    def version(self, place: int) -> int:
        """The version of the member in a place."""
        return int(self.identity[place, VERSION])

    def begin_writing(self, place: int) -> int:
        """Tell readers that a copy is being frozen there; returns what `end_writing` is to get."""
        writing = int(self.sequence[place]) | 1  # odd already if an actor died here
        store(self.sequence, place, writing)
        fence_release()
        return writing

    def end_writing(self, place: int, writing: int) -> None:
        """Tell readers that what is there is whole."""
        store(self.sequence, place, writing + 1)

    def leave(self, place: int) -> None:
        """Note that who is in this place has retired: its last matches may still be played."""
        self._shared["leaving"][place] = 1

    def remove(self, place: int) -> None:
        """Empty a place: its member is gone."""
        self.identity[place, POLICY] = NO_POLICY  # one word: no reader sees half of it
        self._shared["leaving"][place] = 0

    @property
    def half_written(self) -> list[int]:
        """The places that an actor was writing when it died."""
        places: list[int] = np.flatnonzero(self.sequence % 2 == 1).tolist()
        return places

    def finish_removals(self) -> None:
        """Empty those places whole that an actor was emptying when it died."""
        self._shared["leaving"][self.identity[:, POLICY] == NO_POLICY] = 0
