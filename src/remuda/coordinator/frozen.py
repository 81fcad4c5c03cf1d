"""The frozen copies of a population as JSON, made anew only where they changed."""

from __future__ import annotations

import json

import numpy as np

from remuda.coordinator.scoreboard_reader import member_record
from remuda.population.table import Table

AT_ONCE = 128
"""Texts that are made anew in one look, at most."""


class FrozenTexts:
    """What is told of each frozen copy, as text; for the status and the lines of metrics.

    There are thousands, and few change between two looks. What it guarantees:

    1. A copy whose numbers did not change costs nothing but a comparison of arrays.
    2. A look makes at most `AT_ONCE` texts, however many copies changed. Who came or went is first;
       of the others each has its turn, so that none is older than it takes to go round.
    3. A copy that is just being frozen, or is half written since the actor died, is left out, and
       looked at again.
    """

    def __init__(self, table: Table) -> None:
        """Begin with no text."""
        self._table, self._first = table, len(table.policies)
        self._identity = table.occupants.identity[self._first :].copy()
        self._numbers = table.numbers[self._first :].copy()
        self._told = np.zeros(len(self._identity), np.bool_)
        """[copies]: whether there is a text of what is in the place."""
        self._texts: dict[int, str] = {}
        self._next = 0
        self.complete = False
        """Whether each copy that was there at the last look has a text, and no other has one."""

    def look(self, most: int = AT_ONCE) -> None:
        """Make up to so many texts anew where something changed."""
        table, first = self._table, self._first
        # Copied before what the texts are made of: what changes in between is seen the next time.
        identity, numbers = table.occupants.identity[first:].copy(), table.numbers[first:].copy()
        there = table.occupants.there[first:]
        other = (identity != self._identity).any(1)
        who = (there != self._told) | (there & other)
        counted = np.flatnonzero(there & ~who & (numbers != self._numbers).any(1))
        turn = np.searchsorted(counted, self._next)
        new, counted = np.flatnonzero(who), np.roll(counted, -turn)
        places = np.concatenate([new, counted])[:most]
        if len(places) > len(new):
            self._next = int(places[-1]) + 1
        self._identity[places], self._numbers[places] = identity[places], numbers[places]
        self._told[places] = False
        for place in places.tolist():
            self._texts.pop(place, None)
        for row in table.rows(places=first + places):
            text = json.dumps({str(row[0]): vars(member_record(row, table))})
            self._texts[row[3] - first] = text[1:-1]
            self._told[row[3] - first] = True
        self.complete = bool((self._told == there).all()) and len(new) <= most

    def __len__(self) -> int:
        """How many have a text."""
        return len(self._texts)

    def text(self) -> str:
        """All of them, as what stands between the braces of a JSON object; empty: there is none."""
        return ", ".join(self._texts.values())
