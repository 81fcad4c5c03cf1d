"""The ledger: what came of every match, appended and never changed; statistics are views of it.

On disk it is a file of records of one size, after a line of JSON that says what they are: a million
games of two seats take 60 MB, and are read in a moment. In memory it is what they add up to.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from remuda.checkpoint.opening import ANY_SIZE, open_stream, open_to_append, read_file
from remuda.errors import RunDirectoryError
from remuda.kernels import njit
from remuda.population.ledger_names import (
    LONGEST_HEADER,
    names_in,
    parse_header,
    replace_header,
    told_by,
)
from remuda.population.records import (
    GAMES,
    MEETINGS,
    REWARD,
    SQUARES,
    WINS,
    Match,
    Member,
    Numbers,
    PolicyRef,
    Population,
    Result,
)
from remuda.types import Array, Bools, Integers

MATCH, FREEZE, RETIRE, BIRTH, LOST, BORN_WITH = 0, 1, 2, 3, 4, 5
"""Kinds of records: a match that is over, and a director's commands, about the first seat. Of a
birth, `oldest` and `newest` tell the parent's policy and version; -1: it has none. `returns` says
which birth in its place it is, from 1 on (0: an earlier version wrote it); of two of the same
number the first never came to be, since its actor died. It is followed by one record for each
number that the newborn begins with: its `version` says which of the names in the first line of the
ledger, or `FITNESS`, and its `digest` is the number (`bits_of`). A record that was lost leaves one
that tells nothing else, so that a record keeps its number."""
FITNESS = -1
"""In place of the number of a name: what the policy before in this place was judged to be worth."""
PARENT_FITNESS = -2
"""Likewise, its parent."""
SECOND_PARENT = -3
"""Likewise, the number of the policy that is its second parent."""
OPTIMIZER_STEPS = -4
"""Likewise, the steps behind the moments of its optimizer, where it took these over."""
MET, WON, EARNED, CONCEDED = 0, 1, 2, 3
"""What is added up between two members: meetings, how many of them the first won, and what each of
the two earned in them."""


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
            ("returns", "<f4", (seats,)),  # NaN: that seat took no part
            ("digest", "<u8"),  # of a frozen copy's weights
        ]
    )


class Ledger:
    """What results add up to between a live policy and any member of a population.

    Between two policies every pair of their seats in a match counts as one meeting, if both took
    part (their returns are not NaN); the one with the greater return has won it, and a draw is half
    a win for both. Between two frozen copies nothing
    is added up here, since there are too many pairs of them; the ledger on disk holds all.

    Win rates may forget: what a live policy won and lost counts half after so many of its further
    matches, against any opponents. A pair that has not met for long is known as little as one
    that never did. Meetings, scores and payoffs count all matches alike.
    """

    def __init__(
        self,
        population: Population,
        pairs: Numbers | None = None,
        recent: Numbers | None = None,
        memory: float | None = None,
    ) -> None:
        """Begin with what is in `pairs` and `recent`."""
        self._population = population
        places = len(population.numbers)
        self.pairs: Numbers = np.zeros((4, places, places)) if pairs is None else pairs
        self.recent: Numbers = np.zeros((2, *self.pairs.shape[1:])) if recent is None else recent
        self.kept = kept_of(memory)
        """The share of a result's weight that is left after one more match."""

    def append(self, result: Result) -> bool:
        """Note a result; False: one of its members is gone."""
        seats = result.match.seats
        if any(seat not in self._population for seat in seats):
            return False
        places = np.array([[self._population[ref].place for ref in seats]])
        returns = np.array([result.returns], np.float64)
        over, numbers = np.ones(1, np.bool_), self._population.numbers
        count(places, returns, over, self.pairs, numbers, self.recent, self.kept)
        return True

    def forget(self, place: int) -> None:
        """Another member gets this place."""
        forget(self.pairs, place)
        forget(self.recent, place)

    def meetings(self, one: PolicyRef, other: PolicyRef) -> int:
        """How often they met."""
        return int(self._between(MET, one, other))

    def win_rate(self, one: PolicyRef, other: PolicyRef, doubt: float = 1.0) -> float:
        """The share of meetings that `one` won, draws halved, 0 to 1; as far as is remembered."""
        met = self._between(MET, one, other, self.recent)
        if met + doubt == 0.0:
            return 0.5
        return (self._between(WON, one, other, self.recent) + 0.5 * doubt) / (met + doubt)

    def win_rates(self, one: PolicyRef, others: Sequence[PolicyRef], doubt: float = 1.0) -> Numbers:
        """Likewise, of members of the population against several: [len(others)]."""
        place = self._population[one].place
        places = [self._population[other].place for other in others]
        return self.win_rates_at(place, np.array(places, np.int64), doubt)

    def scores(self, one: PolicyRef, others: Sequence[Member]) -> tuple[Numbers, Numbers]:
        """Meetings of a live policy with others, and how many it won: two of [len(others)]."""
        place = self._population[one].place
        places = np.array([member.place for member in others], np.int64)
        met: Numbers = self.pairs[MET, place, places]
        won: Numbers = self.pairs[WON, place, places]
        return met, won

    def win_rates_at(self, place: int, others: Integers, doubt: float = 1.0) -> Numbers:
        """Likewise, by places in the population; the first is a live policy's."""
        if place >= self.recent.shape[1]:
            met, lost = self.recent[MET, others, place], self.recent[WON, others, place]
            won = met - lost
        else:
            met, won = self.recent[MET, place, others], self.recent[WON, place, others]
        rates: Numbers = (won + 0.5 * doubt) / (met + doubt)
        return rates

    def payoff(self, one: PolicyRef, other: PolicyRef) -> float:
        """Mean over their meetings of the return of `one`; not a number where they never met."""
        met = self._between(MET, one, other)
        return self._between(EARNED, one, other) / met if met else float("nan")

    def _between(
        self, what: int, one: PolicyRef, other: PolicyRef, sums: Numbers | None = None
    ) -> float:
        """Of `sums`, or else of `pairs`, what stands between two members."""
        sums = self.pairs if sums is None else sums
        if one not in self._population or other not in self._population:
            return 0.0
        place, others = self._population[one].place, self._population[other].place
        rows = sums.shape[1]
        if place < rows:
            return float(sums[what, place, others])
        if others >= rows:
            return 0.0
        turned = float(sums[{EARNED: CONCEDED}.get(what, what), others, place])
        return float(sums[MET, others, place]) - turned if what == WON else turned


def kept_of(memory: float | None) -> float:
    """The share of a result's weight that one more match leaves; None: all of it."""
    return 1.0 if memory is None else float(0.5 ** (1.0 / memory))


def forget(pairs: Numbers, place: int) -> None:
    """Empty the sums of a place."""
    if place < pairs.shape[1]:
        pairs[:, place] = 0.0
    pairs[:, :, place] = 0.0


FORGOTTEN = 1e-12
"""Meetings that are none any more: numbers far below are slow to reckon with."""


@njit(cache=True)
def count(
    places: Integers,
    returns: Numbers,
    over: Bools,
    pairs: Numbers,
    numbers: Numbers,
    recent: Numbers,
    kept: float,
) -> None:
    """Add up results between all pairs of seats, and for each seat.

    numbers: [places, fields] of the members, to be added to.
    """
    for m in range(len(over)):
        if not over[m]:
            continue
        if kept < 1.0:
            for i in range(places.shape[1]):
                one = places[m, i]
                first = one < recent.shape[1] and not math.isnan(returns[m, i])
                for j in range(i):
                    same = places[m, j] == one and not math.isnan(returns[m, j])
                    first = first and not same
                if not first:
                    continue  # a match is one, on however many of its seats a policy sits
                for what in (MET, WON):
                    for other in range(recent.shape[2]):
                        left = recent[what, one, other] * kept
                        recent[what, one, other] = left if left > FORGOTTEN else 0.0
        for i in range(places.shape[1]):
            one = places[m, i]
            if math.isnan(returns[m, i]):
                continue
            numbers[one, GAMES] += 1.0
            numbers[one, REWARD] += returns[m, i]
            numbers[one, SQUARES] += returns[m, i] ** 2
            for j in range(places.shape[1]):
                if i == j or math.isnan(returns[m, j]):
                    continue
                other = places[m, j]
                won = 0.0
                if returns[m, i] > returns[m, j]:
                    won = 1.0
                elif returns[m, i] == returns[m, j]:
                    won = 0.5
                if other != one:
                    numbers[one, MEETINGS] += 1.0
                    numbers[one, WINS] += won
                if one < pairs.shape[1]:
                    pairs[MET, one, other] += 1.0
                    pairs[WON, one, other] += won
                    pairs[EARNED, one, other] += returns[m, i]
                    pairs[CONCEDED, one, other] += returns[m, j]
                if one < recent.shape[1]:
                    recent[MET, one, other] += 1.0
                    recent[WON, one, other] += won


FILLED_AT_ONCE = 1 << 14


class LedgerFile:
    """The ledger of a run on disk, which one process appends to."""

    def __init__(
        self, path: Path, policies: Sequence[str], seats: int, numbers: Sequence[str] = ()
    ) -> None:
        """Go on with the file, or begin it; `numbers`: names of what newborn begin with."""
        self._path, self._header_of = path, partial(header_of, policies, seats)
        self._names = tuple(numbers)
        there = names_in(path, self._header_of)
        # Of an earlier version: it had other names, or none, and then no newborn is told of.
        self._told = self._names if there is None else there
        self._header = self._header_of(self._told)
        self._seats = seats
        self._size = record_type(seats).itemsize

    def append(self, records: Array, number: int | None = None) -> None:
        """Write records at the end."""
        with open_to_append(self._path) as file:
            if file.seek(0, os.SEEK_END) == 0:
                file.write(self._header)
            else:
                self._trim(file)
            if number is not None:
                self._fill(file, number)
            numbers = records["kind"] == BORN_WITH
            file.write(told_by(records, numbers, self._names, self._told).tobytes())

    def rewind(self, records: int) -> None:
        """Go back to the first so many records: a run is resumed from before the others.

        What is no ledger of this run is emptied; a resume has put a copy of it aside. Names that
        it does not have come after those that it has.
        """
        end = 0
        if self._path.exists():
            end = len(self._header) + records * self._size
            with open_to_append(self._path) as file:
                file.seek(0)
                if file.read(len(self._header)) != self._header:
                    end = 0
                file.truncate(min(end, self._path.stat().st_size))
        more = tuple(name for name in self._names if name not in self._told)
        if end and self._told and more:
            header = self._header_of((*self._told, *more))
            replace_header(self._path, self._header, header)
            self._told, self._header = (*self._told, *more), header

    def _fill(self, file: BinaryIO, number: int) -> None:
        """Let the next record have this number."""
        missing = number - (file.tell() - len(self._header)) // self._size
        while missing > 0:
            lost = np.zeros(min(missing, FILLED_AT_ONCE), record_type(self._seats))
            lost["kind"], lost["policy"], lost["version"] = LOST, -1, -1
            file.write(lost.tobytes())
            missing -= len(lost)

    def _trim(self, file: BinaryIO) -> None:
        """Take away a record that was written in part."""
        extra = (file.tell() - len(self._header)) % self._size
        if extra:
            file.truncate(file.tell() - extra)


def header_of(policies: Sequence[str], seats: int, numbers: Sequence[str] = ()) -> bytes:
    """The first line of a ledger on disk."""
    said = {"ledger": 1, "policies": list(policies), "seats": seats}
    if numbers:
        said["numbers"] = list(numbers)
    return json.dumps(said).encode() + b"\n"


def bits_of(value: float) -> np.uint64:
    """A number as a digest holds it."""
    return np.float64(value).view(np.uint64)


def value_of(bits: np.uint64) -> float:
    """The number of which `bits_of` returned this."""
    return float(np.uint64(bits).view(np.float64))


def copy_later(path: Path, records: int, to: Path) -> None:
    """Copy what comes after so many records into a ledger of its own, if anything does.

    A file that is no ledger is copied whole.
    """
    with open_stream(path) as file:
        header = file.readline(LONGEST_HEADER)
        try:
            end = len(header) + records * record_type(parse_header(header).seats).itemsize
        except ValueError:
            header, end = b"", 0
        if path.stat().st_size <= end:
            return
        file.seek(end)
        with to.open("wb") as copy:
            copy.write(header)
            shutil.copyfileobj(file, copy)


def read_records(path: Path) -> tuple[tuple[str, ...], Array]:
    """The names of the policies, and all whole records of a ledger on disk."""
    try:
        data = read_file(path, ANY_SIZE)
        line, _, rest = data.partition(b"\n")
        header = parse_header(line)
    except (OSError, ValueError):
        raise RunDirectoryError(f"{path} is missing, or no ledger of matches") from None
    kind = record_type(header.seats)
    whole = len(rest) // kind.itemsize
    return header.policies, np.frombuffer(rest, kind, whole)


def results(path: Path) -> Iterator[Result]:
    """The results of a ledger on disk, one by one."""
    names, records = read_records(path)
    for record in records[records["kind"] == MATCH]:
        seats = zip(record["policy"].tolist(), record["version"].tolist(), strict=True)
        match = Match(
            int(record["number"]), tuple(PolicyRef(names[p], version) for p, version in seats)
        )
        acted = tuple(zip(record["oldest"].tolist(), record["newest"].tolist(), strict=True))
        yield Result(match, tuple(record["returns"].tolist()), acted, bool(record["truncated"]))
