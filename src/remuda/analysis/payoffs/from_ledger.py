"""Payoffs from a ledger of matches, which may have any length and is read in chunks.

A ledger also records births: a birth replaces the live policy of a slot by a copy of another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from remuda.analysis.payoffs.payoffs import Payoffs, from_sums
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.errors import RunDirectoryError, UsageError
from remuda.population.ledger.ledger import BIRTH, LONGEST_HEADER, MATCH, parse_header, record_type
from remuda.population.ledger.records import PolicyRef
from remuda.system.checkpoint.opening import open_stream
from remuda.types import Array, Integers, Numbers

PIECE = 1 << 18  # records per read: tens of megabytes
KEY = 1 << 40  # larger than any version; a key packs policy and version into one number
LIVE, FORMER = -1, -2  # versions that mark a live policy, and one that a birth replaced

Adjust = Callable[[Numbers, Array], Numbers]  # from returns and records to what counts


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


def read_payoffs(
    path: Path,
    *,
    symmetric: bool = True,
    sides: Sequence[int] = (),
    wins: bool = False,
    keep: Callable[[PolicyRef], bool] | None = None,
    most: int | None = None,
    adjust: Adjust | None = None,
) -> Payoffs:
    """Return the payoffs between the members of a population, from its ledger.

    Each pair of seats that took part in a match counts as one meeting of their members. A live
    policy is one member, whichever version acted, and so is each frozen copy. Live members come
    first, then copies, by policy and version. If a birth replaced a policy, earlier results of its
    slot are ignored.

    - `symmetric`: pool the seats; otherwise the earlier seat of a meeting is the first role.
    - `sides`: the team number of each seat. Teammates do not meet, and a seat with side -1 meets no
      other. Empty: all meet.
    - `wins`: count wins as 1, losses as 0 and draws as 0.5, instead of returns.
    - `most`: maximum number of members: the live ones, then the newest copies. None: all; memory
      grows with the square of their number.
    - `adjust`: maps the returns [M, seats], with the records [M] of their matches, to those that
      count, such as `shared_returns`.
    """
    if most is not None and most < 1:
        raise UsageError(f"most: there must be at least one policy; this is {most}")
    reader = LedgerReader.open(path)
    of_seat = check_sides(sides, reader.seats)
    keys = _members(reader)
    if not len(keys):
        raise UsageError(f"{path} has no finished match")
    selected = _chosen(reader, keys, keep, most)
    if not len(selected):
        raise UsageError(f"{path}: no policy is left to analyse")
    place_of = np.full(len(keys), -1, np.int64)
    place_of[selected] = np.arange(len(selected))
    sums, number = np.zeros((ROWS, len(selected), len(selected))), 0
    for matches in reader.pieces(present=True):
        found = np.searchsorted(keys, keys_of(matches)).clip(max=len(keys) - 1)
        left_out = (matches["version"] == FORMER) | (of_seat < 0)
        places = np.where(left_out, -1, place_of[found])
        returns = matches["returns"].astype(np.float64)
        returns = returns if adjust is None else adjust(returns, matches)
        add_up(places, returns, of_seat, symmetric, wins, sums)
        number += _number_of_matches(np.where(np.isnan(returns), -1, places), of_seat)
    names = [str(reader.ref(keys[place])) for place in selected]
    return from_sums(names, sums, symmetric, number)


def check_sides(sides: Sequence[int], seats: int) -> Integers:
    """Return the number of each seat's side: [seats]; without `sides`, each has its own."""
    if sides and len(sides) != seats:
        raise UsageError(f"sides has {len(sides)} entries, but there are {seats} seats")
    return np.array(sides or range(seats), np.int64)


def shared_returns(returns: Numbers, teams: Sequence[int], shares: Numbers) -> Numbers:
    """Mix returns [M, seats] with the means of their teams, as `policy.share_rewards` does.

    Seats that took no part (NaN) count as 0 in the mean, and stay NaN.

    `teams`: the team number of each seat, also of scripted ones; `shares`: [M, seats] of the
    policies on the seats.
    """
    of_seat, mixed = np.array(teams), returns.copy()
    for number in set(teams):
        team = of_seat == number
        mean = np.nan_to_num(returns[:, team]).mean(1, keepdims=True)
        mixed[:, team] += shares[:, team] * (mean - returns[:, team])
    return mixed


def sharing(policies: Sequence[str], teams: Sequence[int], shares: Mapping[str, float]) -> Adjust:
    """Return what maps returns to those that the policies of a ledger, by index, learn from.

    `teams`: as for `shared_returns`; `shares`: by policy; others have 0.
    """
    weights = np.array([shares.get(name, 0.0) for name in policies])

    def adjust(returns: Numbers, matches: Array) -> Numbers:
        if not weights.any():
            return returns
        return shared_returns(returns, teams, weights[matches["policy"]])

    return adjust


def _number_of_matches(places: Integers, sides: Integers) -> int:
    """Return the number of matches [M, seats] with selected members on two different sides."""
    present = places >= 0
    lowest = np.where(present, sides, sides.max() + 1).min(1)
    highest = np.where(present, sides, sides.min() - 1).max(1)
    return int((lowest < highest).sum())


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


def _members(reader: LedgerReader) -> Integers:
    """Return [N] the sorted keys of all members that took part in a match."""
    live = np.zeros(len(reader.policies), np.bool_)
    frozen: Integers = np.zeros(0, np.int64)
    for matches in reader.pieces(present=True):
        took_part = ~np.isnan(matches["returns"])
        version = np.where(took_part, matches["version"], FORMER)
        # Most entries belong to the few live policies: mark those, and sort only the copies.
        live[matches["policy"][version == LIVE]] = True
        is_frozen = version > LIVE
        if is_frozen.any():
            frozen = np.union1d(frozen, keys_of(matches)[is_frozen])
    return np.union1d(np.flatnonzero(live) * KEY, frozen)


def _chosen(
    reader: LedgerReader,
    keys: Integers,
    keep: Callable[[PolicyRef], bool] | None,
    most: int | None,
) -> Integers:
    """Return the indices in `keys` of the selected members: live ones, then copies."""
    refs = [reader.ref(key) for key in keys]
    places = [place for place, ref in enumerate(refs) if keep is None or keep(ref)]
    live = [place for place in places if not refs[place].is_frozen]
    frozen = [place for place in places if refs[place].is_frozen]
    if most is not None:
        live = live[:most]
        newest = sorted(frozen, key=lambda place: -refs[place].version)
        frozen = sorted(newest[: most - len(live)])
    return np.array([*live, *frozen], np.int64)
