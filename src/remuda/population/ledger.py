"""The ledger: what came of every match, appended and never changed; statistics are views of it.

On disk it is a file of records of one size, after a line of JSON that says what they are: a million
games of two seats take 60 MB, and are read in a moment. In memory it is what they add up to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numba import njit

from remuda.errors import RunDirectoryError
from remuda.population.records import (
    GAMES,
    REWARD,
    Match,
    Numbers,
    PolicyRef,
    Population,
    Result,
)
from remuda.types import Array, Bools, Integers

MATCH, FREEZE, RETIRE, BIRTH = 0, 1, 2, 3
"""Kinds of records: a match that is over, and a director's commands, about the first seat. Of a
birth, `oldest` and `newest` tell the parent's policy and version; -1: it has none."""
MET, WON, EARNED = 0, 1, 2
"""What is added up between two members."""


def record_type(seats: int) -> np.dtype:
    """A record of a game of so many seats."""
    return np.dtype(
        [
            ("number", "<i8"),  # of the match; of a command: the matches that were over
            ("kind", "i1"),
            ("truncated", "?"),
            ("policy", "<i2", (seats,)),  # by seat: which of the policies
            ("version", "<i8", (seats,)),  # of a frozen copy; -1: live
            ("oldest", "<i8", (seats,)),  # version that acted
            ("newest", "<i8", (seats,)),
            ("returns", "<f4", (seats,)),
            ("digest", "<u8"),  # of a frozen copy's weights
        ]
    )


class Ledger:
    """What results add up to between any two members of a population.

    Between two policies every pair of their seats in a match counts as one meeting; who has the
    greater return has won it, and a draw is half a win for both.
    """

    def __init__(self, population: Population, pairs: Numbers | None = None) -> None:
        """Begin with what is in `pairs`.

        Args:
            population: whose members meet.
            pairs: [3, places, places] the sums of meetings, of what the first won, and of what it
                earned; None: memory of its own, as large as the population.
        """
        self._population = population
        places = len(population.numbers)
        self.pairs: Numbers = np.zeros((3, places, places)) if pairs is None else pairs

    def append(self, result: Result) -> bool:
        """Note a result; False: it is of somebody who is gone."""
        seats = result.match.seats
        if any(seat not in self._population for seat in seats):
            return False
        places = np.array([[self._population[ref].place for ref in seats]])
        returns = np.array([result.returns], np.float64)
        count(places, returns, np.ones(1, np.bool_), self.pairs, self._population.numbers)
        return True

    def forget(self, place: int) -> None:
        """Somebody else gets this place."""
        self.pairs[:, place] = self.pairs[:, :, place] = 0.0

    def meetings(self, one: PolicyRef, other: PolicyRef) -> int:
        """How often they met."""
        return int(self._between(MET, one, other))

    def win_rate(self, one: PolicyRef, other: PolicyRef, doubt: float = 1.0) -> float:
        """The share of meetings that `one` won, draws halved, 0 to 1.

        Args:
            one: whose wins are counted.
            other: against whom.
            doubt: so many meetings are added that went half and half; with 0, and no meeting, 0.5.
        """
        met = self._between(MET, one, other)
        if met + doubt == 0.0:
            return 0.5
        return (self._between(WON, one, other) + 0.5 * doubt) / (met + doubt)

    def win_rates(self, one: PolicyRef, others: Sequence[PolicyRef], doubt: float = 1.0) -> Numbers:
        """Likewise, of members of the population against several: [len(others)]."""
        place = self._population[one].place
        places = [self._population[other].place for other in others]
        met, won = self.pairs[MET, place, places], self.pairs[WON, place, places]
        rates: Numbers = (won + 0.5 * doubt) / (met + doubt)
        return rates

    def payoff(self, one: PolicyRef, other: PolicyRef) -> float:
        """Mean over their meetings of the return of `one`; not a number where they never met."""
        met = self._between(MET, one, other)
        return self._between(EARNED, one, other) / met if met else float("nan")

    def _between(self, what: int, one: PolicyRef, other: PolicyRef) -> float:
        if one not in self._population or other not in self._population:
            return 0.0
        place, others = self._population[one].place, self._population[other].place
        return float(self.pairs[what, place, others])


@njit(cache=True)
def count(
    places: Integers, returns: Numbers, over: Bools, pairs: Numbers, numbers: Numbers
) -> None:
    """Add up results between all pairs of seats, and for each seat.

    Args:
        places: [M, seats] who sat where, by place in the population.
        returns: [M, seats].
        over: [M] which of these matches are over.
        pairs: [3, places, places] to be added to.
        numbers: [places, 4] of the members, to be added to.
    """
    for m in range(len(over)):
        if not over[m]:
            continue
        for i in range(places.shape[1]):
            one = places[m, i]
            numbers[one, GAMES] += 1.0
            numbers[one, REWARD] += returns[m, i]
            for j in range(places.shape[1]):
                if i == j:
                    continue
                other = places[m, j]
                pairs[MET, one, other] += 1.0
                pairs[EARNED, one, other] += returns[m, i]
                if returns[m, i] > returns[m, j]:
                    pairs[WON, one, other] += 1.0
                elif returns[m, i] == returns[m, j]:
                    pairs[WON, one, other] += 0.5


class LedgerFile:
    """The ledger of a run on disk, which one process appends to."""

    def __init__(self, path: Path, policies: Sequence[str], seats: int) -> None:
        """Go on with the file, or begin it."""
        self._path, self._header = path, header_of(policies, seats)
        self._size = record_type(seats).itemsize

    def append(self, records: Array) -> None:
        """Write records at the end.

        Raises:
            OSError: the disk is full or not writable; what was written in part is passed over.
        """
        with self._path.open("ab") as file:
            if file.tell() == 0:
                file.write(self._header)
            else:
                self._trim(file)
            file.write(records.tobytes())

    def rewind(self, records: int) -> None:
        """Go back to the first so many records: a run is resumed from before the others."""
        if self._path.exists():
            end = len(self._header) + records * self._size
            with self._path.open("r+b") as file:
                file.truncate(min(end, self._path.stat().st_size))

    def _trim(self, file: BinaryIO) -> None:
        """Take away a record that was written in part."""
        extra = (file.tell() - len(self._header)) % self._size
        if extra:
            file.truncate(file.tell() - extra)


def header_of(policies: Sequence[str], seats: int) -> bytes:
    """The first line of a ledger on disk."""
    return json.dumps({"ledger": 1, "policies": list(policies), "seats": seats}).encode() + b"\n"


def read_records(path: Path) -> tuple[tuple[str, ...], Array]:
    """The names of the policies, and all whole records of a ledger on disk.

    Raises:
        RunDirectoryError: it is missing, or no ledger.
    """
    try:
        data = path.read_bytes()
        line, _, rest = data.partition(b"\n")
        header = json.loads(line)
        names, kind = tuple(header["policies"]), record_type(header["seats"])
    except (OSError, ValueError, KeyError, TypeError):
        raise RunDirectoryError(f"{path} is missing, or no ledger of matches") from None
    whole = len(rest) // kind.itemsize
    return names, np.frombuffer(rest, kind, whole)


def payoffs(records: Array) -> tuple[list[tuple[int, int]], Numbers]:
    """Who met whom, and what came of it.

    Args:
        records: of a ledger on disk.

    Returns:
        Policies and versions, live weights as -1, in order; and [3, N, N] meetings, what the row
        won, and what it earned, by `MET`, `WON`, `EARNED`.
    """
    matches = records[records["kind"] == MATCH]
    pairs = np.stack((matches["policy"].astype(np.int64), matches["version"]), -1)
    found, places = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    places = places.reshape(matches["policy"].shape).astype(np.int64)
    sums, nobody = np.zeros((3, len(found), len(found))), np.zeros((len(found), 4))
    over: Bools = np.ones(len(matches), np.bool_)
    count(places, matches["returns"].astype(np.float64), over, sums, nobody)
    return [(int(policy), int(version)) for policy, version in found], sums


def results(path: Path) -> Iterator[Result]:
    """The results of a ledger on disk, one by one.

    Raises:
        RunDirectoryError: it is missing, or no ledger.
    """
    names, records = read_records(path)
    for record in records[records["kind"] == MATCH]:
        seats = zip(record["policy"].tolist(), record["version"].tolist(), strict=True)
        match = Match(
            int(record["number"]), tuple(PolicyRef(names[p], version) for p, version in seats)
        )
        acted = tuple(zip(record["oldest"].tolist(), record["newest"].tolist(), strict=True))
        yield Result(match, tuple(record["returns"].tolist()), acted, bool(record["truncated"]))
