"""The matches and births of a ledger, which may have any length and is read in chunks.

A birth replaces the live policy of a slot by a copy of another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from remuda.errors import RunDirectoryError
from remuda.population.ledger.ledger import BIRTH, LONGEST_HEADER, MATCH, parse_header, record_type
from remuda.population.ledger.records import PolicyRef
from remuda.system.checkpoint.opening import open_stream
from remuda.types import Array, Integers

PIECE = 1 << 18  # records per read: tens of megabytes
KEY = 1 << 40  # larger than any version; a key packs policy and version into one number
LIVE, FORMER = -1, -2  # versions that mark a live policy, and one that a birth replaced


@dataclass(frozen=True)
class LedgerReader:
    """The matches of a ledger on disk, read in chunks."""

    path: Path
    policies: tuple[str, ...]  # names; the records contain indices of this tuple
    seats: int
    kind: np.dtype
    begin: int  # bytes before the first record
    end: int  # bytes before the end of the last complete record, when the file was opened

    @staticmethod
    def open(path: Path) -> LedgerReader:
        """Read the ledger's header."""
        try:
            with open_stream(path) as file:
                line = file.readline(LONGEST_HEADER)
                size = os.fstat(file.fileno()).st_size
            names, seats, _ = parse_header(line)
        except (OSError, ValueError):
            raise RunDirectoryError(f"{path} is missing, or is not a ledger of matches") from None
        kind = record_type(seats)
        whole = (size - len(line)) // kind.itemsize
        return LedgerReader(path, names, seats, kind, len(line), len(line) + whole * kind.itemsize)

    def ref(self, key: int) -> PolicyRef:
        """Return the member with a key of `keys_of`."""
        policy, version = divmod(int(key), KEY)
        return PolicyRef(self.policies[policy], version - 1)

    def members_on(self, seats: Sequence[int]) -> frozenset[PolicyRef]:
        """Return the members that had any of these seats in a finished match."""
        found: Integers = np.zeros(0, np.int64)
        for matches in self.pieces() if seats else ():
            found = np.union1d(found, keys_of(matches)[:, list(seats)])
        return frozenset(map(self.ref, found.tolist()))

    def pieces(self, present: bool = False) -> Iterator[Array]:
        """Yield the records of finished matches in chunks.

        `present`: give a live policy that a later birth replaced the version `FORMER`.
        """
        born = self.births if present else None
        for first, records in self._records():
            is_match = records["kind"] == MATCH
            matches = self._checked(records[is_match])
            if not len(matches):
                continue
            policy = matches["policy"]
            if born is not None and born.max(initial=-1) > first:
                before = (first + np.flatnonzero(is_match))[:, None] < born[policy]
                matches["version"][before & (matches["version"] == LIVE)] = FORMER
            yield matches

    def generations(self) -> Iterator[tuple[Array, Array]]:
        """Yield pairs in order: an array of one birth or none, and the matches that follow."""
        for _, records in self._records():
            both = records[np.isin(records["kind"], (MATCH, BIRTH))]
            for part in np.split(both, np.flatnonzero(both["kind"] == BIRTH)):
                is_birth = part["kind"] == BIRTH
                yield part[is_birth], self._checked(part[~is_birth])

    @cached_property
    def births(self) -> Integers:
        """The record number of the last birth in each policy's slot; -1: no birth."""
        found = np.full(len(self.policies), -1, np.int64)
        for first, records in self._records():
            for place in np.flatnonzero(records["kind"] == BIRTH).tolist():
                policy = int(records["policy"][place, 0])
                if 0 <= policy < len(found):
                    found[policy] = first + place
        return found

    def _checked(self, matches: Array) -> Array:
        policy = matches["policy"]
        if policy.min(initial=0) < 0 or policy.max(initial=0) >= len(self.policies):
            raise RunDirectoryError(
                f"{self.path} is damaged: it refers to policies that do not exist"
            )
        version = matches["version"]
        if version.min(initial=LIVE) < FORMER or version.max(initial=LIVE) >= KEY - 1:
            raise RunDirectoryError(
                f"{self.path} is damaged: it refers to versions that do not exist"
            )
        infinite = np.isinf(matches["returns"]).any(1)  # NaN: the seat took no part
        if infinite.any():
            number = int(matches["number"][infinite.argmax()])
            raise RunDirectoryError(
                f"{self.path} is damaged: a return of match {number} is infinite"
            )
        return matches

    def _records(self) -> Iterator[tuple[int, Array]]:
        """Yield all records in chunks, each with the number of its first record."""
        with open_stream(self.path) as file:
            file.seek(self.begin)
            first, count = 0, (self.end - self.begin) // self.kind.itemsize
            while first < count:
                records = np.fromfile(file, self.kind, min(count - first, PIECE))
                if not len(records):
                    return
                yield first, records
                first += len(records)


def keys_of(matches: Array) -> Integers:
    """Return the key of each member: [M, seats]; a live policy's key is below its copies' keys."""
    found: Integers = matches["policy"].astype(np.int64) * KEY + matches["version"] + 1
    return found


def parents_of(births: Array, keys: Integers) -> list[tuple[int, int]]:
    """Return indices of newborns in `keys` [N] (`keys_of`) and of their parents; -1: unknown."""
    places = {key: place for place, key in enumerate(keys.tolist())}
    found = []
    for record in births:
        own, parent = int(record["policy"][0]) * KEY, int(record["oldest"][0]) * KEY
        # `newest` is the version that was copied, from a frozen copy or a live policy.
        frozen = places.get(parent + int(record["newest"][0]) + 1, -1)
        if own in places:
            found.append((places[own], frozen if frozen >= 0 else places.get(parent, -1)))
    return found


def places_of(found: Integers, keys: Integers) -> Integers:
    """Return the index in `keys` [N] of each of `found`; -1: not among them."""
    if not len(keys):
        return np.full(found.shape, -1)
    order = np.argsort(keys)
    places = order[np.searchsorted(keys, found, sorter=order).clip(0, len(order) - 1)]
    return np.where(keys[places] == found, places, -1)
