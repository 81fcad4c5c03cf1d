"""The ledger: an append-only record of all matches, and the sums of their results.

On disk it is a line of JSON that describes the records, followed by records of fixed size: a
million games of two seats take 78 MB. In memory there are only the sums.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from remuda.errors import RunDirectoryError
from remuda.population.ledger.records import (
    GAMES,
    MEETINGS,
    PLAYED,
    REWARD,
    SQUARES,
    WELFARE,
    WINS,
    Member,
    Numbers,
    PolicyRef,
    Population,
)
from remuda.system.checkpoint.opening import (
    ANY_SIZE,
    checked,
    open_stream,
    open_to_append,
    read_file,
)
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Integers

UNKNOWN = 1 << 32  # the index of a name that is not in the file
LONGEST_HEADER = 1 << 24


class Header(NamedTuple):
    """The first line of a ledger."""

    policies: tuple[str, ...]
    seats: int
    numbers: tuple[str, ...]


def parse_header(line: bytes) -> Header:
    """Parse the first line of a ledger; raises a `ValueError` for any other line."""
    try:
        found = checked(json.loads(line), {"policies": list, "seats": int})
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    names, seats, numbers = found["policies"], found["seats"], found.get("numbers", [])
    texts = isinstance(numbers, list) and all(isinstance(name, str) for name in names + numbers)
    if not texts or not 0 < seats <= 1 << 16:
        raise ValueError("it does not hold policies and seats")
    return Header(tuple(names), seats, tuple(numbers))


def read_header(path: Path) -> Header | None:
    if not path.exists():
        return None
    with open_stream(path) as file:
        line = file.readline(LONGEST_HEADER)
    try:
        return parse_header(line)
    except ValueError:
        return None


def translated(records: Array, which: Bools, names: Sequence[str], in_file: Sequence[str]) -> Array:
    """Return records with the index of each name in `names` replaced by its index in `in_file`."""
    if tuple(names) == tuple(in_file):
        return records
    indices = {name: i for i, name in enumerate(in_file)}
    index_of: Integers = np.array([indices.get(name, UNKNOWN) for name in names], np.int64)
    found, which = records.copy(), which & (records["version"][:, 0] >= 0)
    found["version"][which, 0] = index_of[found["version"][which, 0]]
    return found


MATCH, FREEZE, RETIRE, BIRTH, LOST, BORN_WITH, OPTIONS = range(7)
"""Kinds of records. `MATCH` is a finished match. `FREEZE`, `RETIRE` and `BIRTH` are a director's
commands about the policy on the first seat. In a birth `oldest` and `newest` are the parent's
policy and version (-1 without a parent), and `returns` is the slot's count of births, from 1. Of
two births with the same count, the first never happened, because the actor died. A `BORN_WITH`
record follows for each hyperparameter and other number of the newborn: `version` is the index of a
name in the first line of the ledger, or a constant such as `FITNESS`, and `digest` is the number
(`bits_of`). `LOST` replaces a lost record, so that all records keep their numbers. `OPTIONS` are
the environment options that the run has changed, once any of them changes (`option_records`)."""
FITNESS = -1  # instead of a name's index: the number is the fitness of the slot's previous policy
PARENT_FITNESS = -2  # ... the fitness of the parent
SECOND_PARENT = -3  # ... the index of the second parent's policy
OPTIMIZER_STEPS = -4  # ... the optimizer steps that made the inherited moments
MET, WON, EARNED, CONCEDED = 0, 1, 2, 3
"""Sums between two members: meetings, wins of the first, returns of the first, of the second."""


def record_type(seats: int) -> np.dtype:
    return np.dtype(
        [
            ("number", "<i8"),  # of the match; for commands, how many matches have finished
            ("kind", "i1"),
            ("truncated", "?"),
            ("policy", "<i2", (seats,)),  # index of the policy on each seat
            ("version", "<i8", (seats,)),  # of a frozen copy; -1 for a live policy
            ("oldest", "<i8", (seats,)),  # oldest and newest version that acted
            ("newest", "<i8", (seats,)),
            ("returns", "<f4", (seats,)),  # NaN if the seat took no part
            ("digest", "<u8"),  # checksum of a frozen copy's weights
        ]
    )


class Ledger:
    """Sums of results between a live policy and any member of a population.

    Every pair of seats in a match counts as one meeting of their policies, if both took part (their
    returns are not NaN). The higher return wins, and a draw is half a win for both. Results between
    two frozen copies are not summed, since there are too many pairs; the ledger on disk has them.

    Win rates may forget: after `memory` more matches of a live policy, a result counts half. So a
    pair that has not met for long is as uncertain as a pair that never met. Meetings, scores and
    payoffs count all matches equally. Win rates are clipped to 0 and 1, because a follower may read
    a win before its meeting is counted.
    """

    def __init__(
        self,
        population: Population,
        pairs: Numbers | None = None,
        recent: Numbers | None = None,
        memory: float | None = None,
    ) -> None:
        self.population = population
        slots = len(population.numbers)
        self.pairs: Numbers = np.zeros((4, slots, slots)) if pairs is None else pairs
        self.recent: Numbers = np.zeros((2, *self.pairs.shape[1:])) if recent is None else recent
        self.retention = 1.0 if memory is None else float(0.5 ** (1.0 / memory))
        """The share of a result's weight that remains after one more match."""

    def forget(self, slot: int) -> None:
        """Clear the sums of a slot, so that another member can take it."""
        forget(self.pairs, slot)
        forget(self.recent, slot)

    def meetings(self, one: PolicyRef, other: PolicyRef) -> int:
        return int(self._between(MET, one, other))

    def win_rate(self, one: PolicyRef, other: PolicyRef, prior: float = 1.0) -> float:
        """Return the win rate of `one` in remembered meetings; a draw counts half."""
        met = self._between(MET, one, other, self.recent)
        if met + prior == 0.0:
            return 0.5
        rate = (self._between(WON, one, other, self.recent) + 0.5 * prior) / (met + prior)
        return min(max(rate, 0.0), 1.0)

    def win_rates(self, one: PolicyRef, others: Sequence[PolicyRef], prior: float = 1.0) -> Numbers:
        """Return win rates of a member against several: [len(others)]."""
        slot = self.population[one].slot
        slots = [self.population[other].slot for other in others]
        return self.win_rates_at(slot, np.array(slots, np.int64), prior)

    def scores(self, one: PolicyRef, others: Sequence[Member]) -> tuple[Numbers, Numbers]:
        """Return a live policy's meetings with others, and its wins: two arrays [len(others)]."""
        slot = self.population[one].slot
        slots = np.array([member.slot for member in others], np.int64)
        met: Numbers = self.pairs[MET, slot, slots]
        won: Numbers = self.pairs[WON, slot, slots]
        return met, won

    def win_rates_at(self, slot: int, others: Integers, prior: float = 1.0) -> Numbers:
        """Return win rates of the member in a slot against members in others: [len(others)]."""
        if slot >= self.recent.shape[1]:
            met, lost = self.recent[MET, others, slot], self.recent[WON, others, slot]
            won = met - lost
        else:
            met, won = self.recent[MET, slot, others], self.recent[WON, slot, others]
        rates: Numbers = np.clip((won + 0.5 * prior) / (met + prior), 0.0, 1.0)
        return rates

    def payoff(self, one: PolicyRef, other: PolicyRef) -> float:
        """Return the mean return of `one` over their meetings; NaN if they never met."""
        met = self._between(MET, one, other)
        return self._between(EARNED, one, other) / met if met else float("nan")

    def _between(
        self, what: int, one: PolicyRef, other: PolicyRef, sums: Numbers | None = None
    ) -> float:
        """Return a sum between two members, from `sums`, by default `pairs`."""
        sums = self.pairs if sums is None else sums
        if one not in self.population or other not in self.population:
            return 0.0
        slot, others = self.population[one].slot, self.population[other].slot
        rows = sums.shape[1]
        if slot < rows:
            return float(sums[what, slot, others])
        if others >= rows:
            return 0.0
        turned = float(sums[{EARNED: CONCEDED}.get(what, what), others, slot])
        return float(sums[MET, others, slot]) - turned if what == WON else turned


def forget(pairs: Numbers, slot: int) -> None:
    if slot < pairs.shape[1]:
        pairs[:, slot] = 0.0
    pairs[:, :, slot] = 0.0


FORGOTTEN = 1e-12  # smaller counts become 0, since arithmetic on denormal numbers is slow


@njit(cache=True)
def count(
    slots: Integers,
    returns: Numbers,
    over: Bools,
    pairs: Numbers,
    numbers: Numbers,
    recent: Numbers,
    retention: float,
) -> None:
    """Add results of pairs of seats to `pairs` and `recent`, and of each seat to `numbers`."""
    for m in range(len(over)):
        if not over[m]:
            continue
        if retention < 1.0:
            for i in range(slots.shape[1]):
                row = slots[m, i]
                first = row < recent.shape[1] and not math.isnan(returns[m, i])
                for j in range(i):
                    same = slots[m, j] == row and not math.isnan(returns[m, j])
                    first = first and not same
                if not first:
                    continue  # forget once per match, even if a policy has several seats
                for what in (MET, WON):
                    for column in range(recent.shape[2]):
                        left = recent[what, row, column] * retention
                        recent[what, row, column] = left if left > FORGOTTEN else 0.0
        total = 0.0
        for i in range(slots.shape[1]):
            if not math.isnan(returns[m, i]):
                total += returns[m, i]
        for i in range(slots.shape[1]):
            row = slots[m, i]
            if math.isnan(returns[m, i]):
                continue
            again = False
            for j in range(i):
                again |= slots[m, j] == row and not math.isnan(returns[m, j])
            if not again:
                numbers[row, PLAYED] += 1.0
                numbers[row, WELFARE] += total
            numbers[row, GAMES] += 1.0
            numbers[row, REWARD] += returns[m, i]
            numbers[row, SQUARES] += returns[m, i] ** 2
            for j in range(slots.shape[1]):
                if i == j or math.isnan(returns[m, j]):
                    continue
                column = slots[m, j]
                won = 0.0
                if returns[m, i] > returns[m, j]:
                    won = 1.0
                elif returns[m, i] == returns[m, j]:
                    won = 0.5
                if column != row:
                    numbers[row, MEETINGS] += 1.0
                    numbers[row, WINS] += won
                if row < pairs.shape[1]:
                    pairs[MET, row, column] += 1.0
                    pairs[WON, row, column] += won
                    pairs[EARNED, row, column] += returns[m, i]
                    pairs[CONCEDED, row, column] += returns[m, j]
                if row < recent.shape[1]:
                    recent[MET, row, column] += 1.0
                    recent[WON, row, column] += won


class LedgerFile:
    """The ledger of a run on disk, with one writing process."""

    def __init__(
        self, path: Path, policies: Sequence[str], seats: int, numbers: Sequence[str] = ()
    ) -> None:
        self._path, self._seats, self._names = path, seats, tuple(numbers)
        found = read_header(path)
        same = found is not None and found[:2] == (tuple(policies), seats)
        self._file_names = found.numbers if found is not None and same else self._names
        self._header = header_of(policies, seats, self._file_names)
        self._size = record_type(seats).itemsize

    def append(self, records: Array, number: int | None = None) -> None:
        """Append records; `number` is the number of the first record in the run."""
        with open_to_append(self._path) as file:
            if file.seek(0, os.SEEK_END) == 0:
                file.write(self._header)
            else:
                extra = (file.tell() - len(self._header)) % self._size
                if extra:
                    file.truncate(file.tell() - extra)
            if number is not None:
                self._fill(file, number)
            numbers = records["kind"] == BORN_WITH
            file.write(translated(records, numbers, self._names, self._file_names).tobytes())

    def rewind(self, records: int) -> None:
        """Keep only the first `records` records; empty a file that is not this run's ledger."""
        if not self._path.exists():
            return
        end = len(self._header) + records * self._size
        with open_to_append(self._path) as file:
            file.seek(0)
            if file.read(len(self._header)) != self._header:
                end = 0
            file.truncate(min(end, self._path.stat().st_size))

    def _fill(self, file: BinaryIO, number: int) -> None:
        missing = number - (file.tell() - len(self._header)) // self._size
        while missing > 0:
            lost = np.zeros(min(missing, 1 << 14), record_type(self._seats))
            lost["kind"], lost["policy"], lost["version"] = LOST, -1, -1
            file.write(lost.tobytes())
            missing -= len(lost)


def header_of(policies: Sequence[str], seats: int, numbers: Sequence[str] = ()) -> bytes:
    header = {"ledger": 1, "policies": list(policies), "seats": seats}
    if numbers:
        header["numbers"] = list(numbers)
    return json.dumps(header).encode() + b"\n"


def bits_of(value: float) -> np.uint64:
    return np.float64(value).view(np.uint64)


def value_of(bits: np.uint64) -> float:
    return float(np.uint64(bits).view(np.float64))


def options_text(options: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(options), sort_keys=True).encode()


def option_records(options: Mapping[str, Any], matches: int, empty: Array) -> Array:
    """Return the records of changed environment options, in force after these matches.

    They hold JSON: its length in `digest`, and its bytes in `oldest` and `newest` of one record
    after another. `empty`: a blank record, [1].
    """
    text, seats = options_text(options), empty["oldest"].shape[1]
    size = 16 * seats
    records = np.repeat(empty, -(-len(text) // size))
    records["kind"], records["number"], records["digest"] = OPTIONS, matches, len(text)
    words = np.frombuffer(text.ljust(len(records) * size), "<i8").reshape(-1, 2, seats)
    records["oldest"], records["newest"] = words[:, 0], words[:, 1]
    return records


def options_in(records: Array) -> list[tuple[int, dict[str, Any]]]:
    """Return the number of finished matches at each change of options, and the changed options.

    Incomplete records are skipped, and repeated ones, which a restarted actor may write.
    """
    found: list[tuple[int, dict[str, Any]]] = []
    at = 0
    places = np.flatnonzero(records["kind"] == OPTIONS)
    while at < len(places):
        first = records[places[at]]
        count = -(-int(first["digest"]) // (16 * len(first["oldest"])))
        part = records[places[at] : places[at] + count]
        is_whole = len(part) == count > 0 and (part["kind"] == OPTIONS).all()
        if not is_whole or (part["digest"] != first["digest"]).any():
            at += 1
            continue
        text = np.stack((part["oldest"], part["newest"]), 1).tobytes()[: int(first["digest"])]
        try:
            options = checked(json.loads(text), {})
        except (ValueError, RecursionError):
            at += 1
            continue
        at += count
        if not found or found[-1][1] != options:
            found.append((int(first["number"]), options))
    return found


def read_options(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the changes of environment options in a ledger on disk; see `options_in`."""
    return options_in(read_records(path)[1])


def copy_later(path: Path, records: int, to: Path) -> None:
    """Copy all but the first `records` records to a new ledger; copy a non-ledger file whole."""
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
    """Return the policies' names and all complete records of a ledger on disk."""
    try:
        data = read_file(path, ANY_SIZE)
        line, _, rest = data.partition(b"\n")
        header = parse_header(line)
    except (OSError, ValueError):
        raise RunDirectoryError(f"{path} is missing, or is not a ledger of matches") from None
    kind = record_type(header.seats)
    whole = len(rest) // kind.itemsize
    return header.policies, np.frombuffer(rest, kind, whole)
