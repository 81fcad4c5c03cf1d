"""Payoffs between members of a population, from a ledger that is being written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from remuda.analysis.from_ledger import KEY, PIECE, LedgerReader
from remuda.analysis.payoff import Payoffs, from_sums
from remuda.analysis.sums import ROWS, add_up
from remuda.checkpoint.opening import open_stream
from remuda.errors import RunDirectoryError
from remuda.population.ledger import BIRTH, MATCH
from remuda.types import Array, Bools, Integers, Numbers

RECENT = 1000
"""The most meetings that count between two members of which one learns: older ones are scaled down,
so that new ones replace them, which other weights played."""


class RecentPayoffs:
    """Adds up the ledger of a run, each record once, between the analysed members.

    1. Between two frozen members all meetings count that were read since both are analysed.
    2. If one of two learns, all meetings of the newest read count, and older ones as at most
       `RECENT`.
    3. A newborn starts from zero; the previous policy of its name is forgotten.
    4. A ledger that became shorter, or another one, is read from its beginning.
    """

    def __init__(self, path: Path, sides: npt.ArrayLike) -> None:
        """Begin before the first record.

        sides: [seats] the team of each seat, as a number; those of one team do not meet.
        """
        self._path, self._sides = path, np.asarray(sides, np.int64)
        self._keys: Integers = np.zeros(0, np.int64)
        self._sums: Numbers = np.zeros((ROWS, 0, 0))
        self._read = 0

    def look_at(self, members: Integers) -> None:
        """Keep the sums of these members, and start those of new ones."""
        keys = members[:, 0] * KEY + members[:, 1] + 1
        sums = np.zeros((ROWS, len(keys), len(keys)))
        _, now, before = np.intersect1d(keys, self._keys, return_indices=True)
        sums[:, now[:, None], now] = self._sums[:, before[:, None], before]
        self._keys, self._sums = keys, sums

    def read(self) -> None:
        """Add up new records, if there are any."""
        try:
            ledger = LedgerReader.open(self._path)
        except RunDirectoryError:
            return
        if ledger.end < self._read:
            self._read, self._sums = 0, np.zeros_like(self._sums)
        begin = self._read or ledger.begin
        with open_stream(self._path) as file:
            file.seek(begin)
            left = (ledger.end - begin) // ledger.kind.itemsize
            while left > 0:
                records = np.fromfile(file, ledger.kind, min(left, PIECE))
                if not len(records):
                    break
                left -= len(records)
                self._add(records)
                self._read = begin = begin + len(records) * ledger.kind.itemsize

    def payoffs(self) -> Payoffs:
        """Return the members' payoffs by place, as a symmetric game."""
        return from_sums([str(place) for place in range(len(self._keys))], self._sums, True)

    def _add(self, records: Array) -> None:
        """Add up records in order: those before a birth are of another policy."""
        births = np.flatnonzero(records["kind"] == BIRTH)
        for part in np.split(records, births):
            if len(part) and part["kind"][0] == BIRTH:
                self._forget(int(part["policy"][0, 0]) * KEY)
            self._add_matches(part[part["kind"] == MATCH])

    def _add_matches(self, matches: Array) -> None:
        matches = matches[~np.isinf(matches["returns"]).any(1)]  # NaN: the seat took no part
        if not len(matches) or not len(self._keys):
            return
        keys = matches["policy"].astype(np.int64) * KEY + matches["version"] + 1
        order = np.argsort(self._keys)
        found = order[np.searchsorted(self._keys, keys, sorter=order).clip(0, len(order) - 1)]
        places = np.where(self._keys[found] == keys, found, -1)
        live = self._is_live
        changing = live[:, None] | live
        with np.errstate(divide="ignore"):
            scale = np.where(changing, np.minimum(RECENT / self._sums[7], 1.0), 1.0)
        self._sums *= scale
        self._sums[6] *= scale  # of squared weights
        returns = matches["returns"].astype(np.float64)
        add_up(places, returns, self._sides, True, False, self._sums)

    def _forget(self, key: int) -> None:
        place = np.flatnonzero(self._keys == key)
        self._sums[:, place] = 0.0
        self._sums[:, :, place] = 0.0

    @property
    def _is_live(self) -> Bools:
        live: Bools = self._keys % KEY == 0
        return live
