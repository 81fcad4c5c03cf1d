"""What the table of a population holds in shared memory: arrays, their columns, its counters."""

from __future__ import annotations

import numpy as np

from remuda.hyperparameters import HYPERPARAMETERS
from remuda.memory.shared import Fields
from remuda.population.ledger import record_type
from remuda.population.records import FRESH

POLICY, VERSION, PARENT, PARENT_VERSION, BORN = range(5)
"""Columns of `identity`, which says who is in a place."""
NO_POLICY = -1
"""In `identity`: the place is empty, or the member has no parent."""
ORDERED, ADMITTED, CONFIRMED, SINCE = range(4)
"""Columns of `orders`, of a live policy's place: births ordered, and of how many of them the
newborn plays; and by its learner: births carried out, and the version of the newest of them."""
STRIDE = 8
MATCHES, PROPOSED, RECORDS, MOVES, REVISION = (i * STRIDE for i in range(5))
"""Words: matches that are over, matches that the actor proposed, records written, and how often all
ratings began and ended to be moved, odd while they are. And where other actors deal from the table
too: how often who is a member began and ended to be changed, likewise. Each on its own cache line.
"""
NEWEST = 1 << 16
"""The most records that are kept for the coordinator, which fetches them several times a second.
The actor does not wait for it: what is written over before it was fetched is lost, and counted."""
LEAST, MOST_BYTES = 1 << 12, 64 * 2**20
"""Where records are large, since the game has many seats, fewer are kept: as many as these bytes
hold, but at least so many."""


def newest_of(seats: int) -> int:
    """How many records are kept of a game of so many seats."""
    return max(min(NEWEST, MOST_BYTES // record_type(seats).itemsize), LEAST)


def table_fields(
    policies: int,
    seats: int,
    copies: int,
    others: int = 0,
    hyperparameters: int = len(HYPERPARAMETERS),
    episode_metrics: int = 0,
) -> Fields:
    """What is shared of a population, without weights."""
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
