"""The layout of a population's table in shared memory: arrays, columns, counters, places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remuda.hyperparameters import HYPERPARAMETERS
from remuda.memory.shared import Fields
from remuda.population.imported import Origin
from remuda.population.ledger import record_type
from remuda.population.records import FRESH, SCRIPTED, PolicyRef

POLICY, VERSION, PARENT, PARENT_VERSION, BORN = range(5)
"""Columns of `identity`, the member in each place."""
NO_POLICY = -1  # in `identity`: the place is empty, or the member has no parent
ORDERED, ADMITTED, CONFIRMED, SINCE = range(4)
"""Columns of `orders`, by place of a live policy: births ordered, and those of them that play; and
by its learner: births carried out, and the version of the newest."""
STRIDE = 8
MATCHES, PROPOSED, RECORDS, MOVES, REVISION = (i * STRIDE for i in range(5))
"""Words, each on its own cache line: finished matches; matches proposed by the actor; records
written; twice the moves of ratings, odd during a move; and twice the changes of members, odd during
a change, if other actors deal from the table too."""
NEWEST = 1 << 16
"""The most records kept for the coordinator, which reads them several times a second. The actor
does not wait: overwritten records are lost, and counted."""
LEAST, MOST_BYTES = 1 << 12, 64 * 2**20
"""With many seats records are large and fewer are kept: as many as these bytes hold, but at least
so many."""


def newest_of(seats: int) -> int:
    """Return how many records are kept with so many seats."""
    return max(min(NEWEST, MOST_BYTES // record_type(seats).itemsize), LEAST)


def table_fields(
    policies: int,
    seats: int,
    copies: int,
    others: int = 0,
    hyperparameters: int = len(HYPERPARAMETERS),
    episode_metrics: int = 0,
) -> Fields:
    """Return the shared arrays of a population, without weights."""
    places = policies * (1 + copies) + others
    return {
        "identity": ((places, 5), np.int64),
        "orders": ((policies, 4), np.int64),
        "hyperparameters": ((places, hyperparameters), np.float64),
        "numbers": ((places, len(FRESH) + 2 * episode_metrics), np.float64),
        "pairs": ((4, policies, places), np.float64),
        "recent": ((2, policies, places), np.float64),
        "sequence": ((places,), np.int64),
        "leaving": ((places,), np.int64),
        "moved": ((places,), np.float64),
        "words": ((5 * STRIDE,), np.int64),
        "clear": ((policies,), np.int64),
        "taking": ((STRIDE,), np.int64),
        "records": ((newest_of(seats),), record_type(seats)),
    }


class Places:
    """The numbers of places: live policies, their frozen copies, scripted and imported members.

    A place for a frozen copy always belongs to the same policy and is next to its other copies, so
    that networks of one kind are neighbours. The place of a live policy may be empty, and another
    policy may be born there with the same name. Scripted and imported members have places from the
    start, which stay empty once they retire.
    """

    def __init__(
        self,
        policies: Sequence[str],
        copies: int,  # places for frozen copies of each policy
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
        # by place, the members that are there from the beginning and never change
        self.outsiders = dict(enumerate(others, first))

    def __len__(self) -> int:
        return self.imported.stop

    def may_hold_copy(self, place: int) -> bool:
        """Return whether a place is for a frozen copy."""
        return len(self.policies) <= place < self.scripted.start

    def copies_of(self, policy: str) -> range:
        """Return the places of a policy's frozen copies."""
        first = len(self.policies) + self.policies.index(policy) * self.copies
        return range(first, first + self.copies)

    def stand_in_of(self, policy: str) -> int | None:
        """Return the place of the copy that plays while a policy's successor is born."""
        return self.copies_of(policy)[-1] if self._stand_ins else None

    def of(self, name: str) -> int:
        """Return the place of a live or scripted policy, or the first of an imported member."""
        if name in self.policies:
            return self.policies.index(name)
        return next(place for place, ref in self.outsiders.items() if ref.policy == name)

    def row_of(self, place: int) -> tuple[str, int]:
        """Return the policy of a frozen copy's place, and its number among the copies."""
        policy, row = divmod(place - len(self.policies), self.copies)
        return self.policies[policy], row
