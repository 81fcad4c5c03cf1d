"""The frozen copies of a population as JSON texts, updated only if they changed."""

from __future__ import annotations

import json

import numpy as np

from remuda.coordinator.scoreboard_reader import member_record
from remuda.population.members.table import Table

AT_ONCE = 128  # maximum number of texts updated in one poll


class FrozenTexts:
    """The JSON texts of all frozen copies, for the status and the lines of metrics.

    There may be thousands, but few change between two polls. Guarantees:

    1. An unchanged copy costs only a comparison of arrays.
    2. A poll updates at most `AT_ONCE` texts. Members that came or left have priority; the others
       take turns, so that all are updated eventually.
    3. A copy that is being frozen, or half written by a dead actor, is skipped until it is
       complete.
    """

    def __init__(self, table: Table) -> None:
        self._table, self._first = table, len(table.policies)
        self._identity = table.occupants.identity[self._first :].copy()
        self._numbers = table.numbers[self._first :].copy()
        self._has_text = np.zeros(len(self._identity), np.bool_)
        """[copies]: whether a text exists for the frozen copy with this index."""
        self._texts: dict[int, str] = {}
        self._next = 0
        self.complete = False  # true if exactly the copies of the last poll have a text

    def look(self, most: int = AT_ONCE) -> None:
        table, first = self._table, self._first
        # Copied before the texts' data is read: later changes are found by the next poll.
        identity, numbers = table.occupants.identity[first:].copy(), table.numbers[first:].copy()
        there = table.occupants.there[first:]
        is_new = (identity != self._identity).any(1)
        changed = (there != self._has_text) | (there & is_new)
        counted = np.flatnonzero(there & ~changed & (numbers != self._numbers).any(1))
        turn = np.searchsorted(counted, self._next)
        new, counted = np.flatnonzero(changed), np.roll(counted, -turn)
        places = np.concatenate([new, counted])[:most]
        if len(places) > len(new):
            self._next = int(places[-1]) + 1
        self._identity[places], self._numbers[places] = identity[places], numbers[places]
        self._has_text[places] = False
        for place in places.tolist():
            self._texts.pop(place, None)
        for row in table.rows(places=first + places):
            text = json.dumps({str(row[0]): vars(member_record(row, table))})
            self._texts[row[3] - first] = text[1:-1]
            self._has_text[row[3] - first] = True
        self.complete = bool((self._has_text == there).all()) and len(new) <= most

    def __len__(self) -> int:
        return len(self._texts)

    def text(self) -> str:
        """Return all texts as members of a JSON object, without braces."""
        return ", ".join(self._texts.values())
