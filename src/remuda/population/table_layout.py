"""The layout of a population's table in shared memory: arrays, columns, counters."""

from __future__ import annotations

import numpy as np

from remuda.hyperparameters import HYPERPARAMETERS
from remuda.memory.shared import Fields
from remuda.population.ledger import record_type
from remuda.population.records import FRESH

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
