"""The rounds of a tournament that is played until a question is answered."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pydantic import BaseModel, NonNegativeInt

from remuda.errors import RunDirectoryError
from remuda.evaluation.tournaments.engine import OpenTournament
from remuda.evaluation.tournaments.sequential_test import Look, LookResult
from remuda.system.checkpoint.opening import open_to_append, read_file
from remuda.system.rng import make_rng
from remuda.types import Integers

ROUNDS = "rounds.jsonl"
GROWTH = 0.5  # matches of a round as a share of all earlier matches


class Rounds(ABC):
    """The past and next rounds of a tournament.

    1. A round is written to `rounds.jsonl` before its first match.
    2. A round follows from the matches of earlier rounds and from the seed.
    """

    def __init__(self, opened: OpenTournament, wanted: float, max_matches: int) -> None:
        self._opened, self._wanted = opened, wanted
        self._max_matches = max_matches
        self._path = None if opened.directory is None else opened.directory / ROUNDS
        self._names = tuple(each.name for each in opened.setup.participants)
        self._seed = opened.setup.seed
        schedule = opened.schedule
        self.counts: Integers = np.zeros(len(schedule.seatings), np.int64)  # [I]: by seating
        self.number = 0  # planned rounds
        for line in read_rounds(self._path, len(self.counts)):
            self.counts[line.seatings] += np.array(line.matches, np.int64)
            self.number += 1

    def planned(self) -> Integers:
        seatings = np.repeat(np.arange(len(self.counts)), self.counts)
        first = np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        turns = np.arange(len(seatings)) - first
        numbers: Integers = np.sort(turns * len(self.counts) + seatings)
        return numbers

    def plan(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Plan another round; False: no match is left, or planning was stopped."""
        if self.number and self._max_matches <= int(self.counts.sum()):
            return False
        counts = self.following(stop) if self.number else self.first()
        if not counts.any():
            return False
        self._write(counts)
        return True

    @abstractmethod
    def first(self) -> Integers:
        """Return the matches of the first round by seating: [I]."""

    @abstractmethod
    def following(self, stop: Callable[[], bool]) -> Integers:
        """Return the matches of the next round by seating: [I]; all 0: planning was stopped."""

    @abstractmethod
    def answer(self, stop: Callable[[], bool]) -> LookResult:
        """Return the answer and its confidence at this look; less sure if it was stopped."""

    @abstractmethod
    def may_look(self) -> bool:
        """Return whether there are enough matches for an answer."""

    def size(self, least: int) -> int:
        """Return the number of matches of the next round."""
        total = int(self.counts.sum())
        return min(self._max_matches - total, max(least, math.ceil(GROWTH * total)))

    def rng(self) -> np.random.Generator:
        """Return the random numbers of the next plan."""
        return make_rng(self._seed, "tournament", "plan", self.number)

    def look(self, stop: Callable[[], bool] = lambda: False) -> Look:
        """Return the answer after the planned rounds; at `stop`, with what is known by then."""
        over = not len(self._opened.results.unfinished_among(self.planned()))
        result = self.answer(stop)
        return Look(
            **vars(result),
            rounds=self.number,
            matches=self._opened.results.done,
            wanted=self._wanted,
            reached=over and result.sure >= self._wanted,
        )

    def _write(self, counts: Integers) -> None:
        """Append a round, replacing a partly written one."""
        if self._path is not None:
            seatings = np.flatnonzero(counts)
            line = _Round(seatings=seatings.tolist(), matches=counts[seatings].tolist())
            try:
                with open_to_append(self._path) as file:
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
                    file.write(line.model_dump_json().encode() + b"\n")
            except OSError as error:
                raise RunDirectoryError(f"cannot write {self._path}: {error.strerror}") from None
        self.counts += counts
        self.number += 1


def filled(before: Integers, more: int) -> Integers:
    """Divide matches among seatings [n], those with the fewest first, up to a common level."""
    after, total = before.copy(), int(before.sum()) + more
    while after.sum() < total:
        low = after == after.min()
        above = after[~low].min() if (~low).any() else total
        capacity = min(int((above - after.min()) * low.sum()), total - int(after.sum()))
        each, rest = divmod(capacity, int(low.sum()))
        after[low] += each
        after[np.flatnonzero(low)[:rest]] += 1
    return after - before


class _Round(BaseModel, strict=True):
    """A line of the file: seatings, and their numbers of matches."""

    seatings: list[NonNegativeInt]
    matches: list[NonNegativeInt]


def read_rounds(path: Path | None, num_seatings: int | None = None) -> list[_Round]:
    """Return the recorded rounds; none if there is no file."""
    if path is None or not path.exists():
        return []
    try:
        lines = read_file(path).split(b"\n")
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {error.strerror}") from None
    rounds = []
    for number, line in enumerate(lines[:-1], 1):  # the last line is empty or cut off
        try:
            rounds.append(_Round.model_validate_json(line))
            seatings, matches = rounds[-1].seatings, rounds[-1].matches
            fits = len(set(seatings)) == len(seatings) == len(matches)
            fits &= num_seatings is None or max(seatings, default=-1) < num_seatings
        except ValueError:
            fits = False
        if not fits:
            raise RunDirectoryError(
                f"{path} is damaged in line {number}; start over in another directory"
            )
    return rounds
