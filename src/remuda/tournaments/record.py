"""What came of a tournament's matches: in memory, and in a directory as they end.

The directory holds `tournament.json`, which tells who plays what, `weights.npz`, what they play
with, and `ledger.bin`, a record for each match that is over (`remuda.population.ledger`), whose
policies are the entrants. Records are
appended, so that a process that is killed leaves all that were written; the matches that were under
way are played again, with the same seeds, by the process that goes on with the directory. A file
of an interrupted process lacks the longest of its last matches: take means of it only once it is
whole.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from remuda.checkpoint.opening import open_file, open_stream, read_json
from remuda.checkpoint.state import sweep, write_whole
from remuda.errors import RunDirectoryError, UsageError
from remuda.population.ledger import MATCH, LedgerFile, header_of, read_records, record_type
from remuda.population.records import SCRIPTED
from remuda.publish.snapshot import Snapshot
from remuda.tournaments.entrants import weights_digest
from remuda.tournaments.schedule import Numbers, Schedule
from remuda.types import Array, Bools, Floats, Integers

DESCRIPTION, LEDGER = "tournament.json", "ledger.bin"
FLUSHED_EVERY = 0.1
"""Seconds for which matches that are over are kept before they are appended, at most; but for those
of the turn that is being played."""
WEIGHTS = "weights.npz"
KEPT_BYTES = 1 << 28
"""Weights of those who play are kept, too, if they are no more than this."""
FREE = ("episodes", "asked")
"""What may change where a directory is gone on with."""


MOST_MATCHES = 100_000_000
"""Whose returns stand in memory, where it is said beforehand how many there are."""


class MatchResults:
    """The returns of all matches that are over, by number; to be used in a `with`.

    Where the schedule says how many matches there are, they stand in an array by number; else the
    numbers of those that are over are kept beside their returns.
    """

    def __init__(self, schedule: Schedule, num_seats: int) -> None:
        """Make room for them.

        Raises:
            UsageError: they are more than there is room for.
        """
        if schedule.num_matches > MOST_MATCHES:
            seatings = schedule.num_matches // schedule.episodes
            raise UsageError(
                f"episodes: {schedule.episodes:,} for each of {seatings:,} seatings are "
                f"{schedule.num_matches:,} matches, and the results of {MOST_MATCHES:,} are kept; "
                f"give at most {MOST_MATCHES // seatings:,} for each, or say until when to play"
            )
        self._schedule = schedule
        self._over: Bools = np.zeros(schedule.num_matches, np.bool_)
        self._returns: Floats = np.full((schedule.num_matches, num_seats), np.nan, np.float32)
        self._is_open = schedule.episodes == 0
        self._numbers: list[Integers] = [np.zeros(0, np.int64)]
        self._parts: list[Floats] = [np.zeros((0, num_seats), np.float32)]

    @property
    def done(self) -> int:
        """How many are over."""
        return sum(map(len, self._numbers)) if self._is_open else int(self._over.sum())

    def played(self) -> tuple[Integers, Floats]:
        """The numbers of the matches that are over [M], in order, and their returns [M, S]."""
        if not self._is_open:
            numbers: Integers = np.flatnonzero(self._over)
            return numbers, self._returns[numbers]
        numbers, returns = np.concatenate(self._numbers), np.concatenate(self._parts)
        numbers, order = np.unique(numbers, return_index=True)
        self._numbers, self._parts = [numbers], [returns[order]]
        return numbers, returns[order]

    def of_seatings(self) -> list[Numbers]:
        """The returns of matches that are over, by seating, each [matches, S]."""
        return self._schedule.by_seating(*self.played())

    def left(self) -> Integers:
        """The numbers of those that are not over, in order; of an open schedule none."""
        left: Integers = np.flatnonzero(~self._over)
        return left

    def left_of(self, numbers: Integers) -> Integers:
        """Those of these numbers whose matches are not over, in order."""
        left: Integers = np.setdiff1d(numbers, self.played()[0])
        return left

    def add(self, numbers: Integers, versions: Integers, returns: Floats, truncated: Bools) -> None:  # noqa: ARG002
        """Note matches that are over: numbers [M], returns [M, S]."""
        if self._is_open:
            self._numbers.append(numbers.astype(np.int64))
            self._parts.append(returns.astype(np.float32))
        else:
            self._returns[numbers], self._over[numbers] = returns, True

    def flush(self, now: bool = True) -> None:
        """Nothing: memory needs none."""

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> MatchResults:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.flush()
        finally:
            self.close()


class RecordedResults(MatchResults):
    """Likewise, in a directory too.

    What it guarantees:

    1. A match whose record was written is never played again, whatever ended the process.
    2. A record that was written in part is passed over, and its match is played again.
    3. One process at a time writes to a directory.
    4. A directory of another tournament is refused, and left as it is.
    """

    def __init__(
        self, schedule: Schedule, num_seats: int, directory: Path, description: Mapping[str, Any]
    ) -> None:
        """Go on with a directory, or begin it.

        Args:
            schedule: of the matches.
            num_seats: of the game.
            directory: made where there is none.
            description: plain data that tells who plays what; but for `FREE` it must be as it was.

        Raises:
            UsageError: it holds another tournament, or something else.
            RunDirectoryError: it is in use, damaged, or cannot be written.
        """
        super().__init__(schedule, num_seats)
        self._path, self._seats = directory, num_seats
        self._names = [each["name"] for each in description["entrants"]]
        self._entrants = len(self._names)
        taken = description.get("scripted", {})
        self._names += [
            f"{name} ({taken[name]})" for name in description["agents"] if name in taken
        ]
        self._kept: list[Array] = []
        self._flushed = time.monotonic()
        self._lock: int | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            sweep(directory)
            try:
                self._begin(description)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write the tournament's directory {directory}: {error.strerror}; name "
                "another with --directory"
            ) from None

    def close(self) -> None:
        """Let others write to the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def add(self, numbers: Integers, versions: Integers, returns: Floats, truncated: Bools) -> None:
        """Note matches that are over; they are written with the next `flush`."""
        super().add(numbers, versions, returns, truncated)
        records = np.zeros(len(numbers), record_type(self._seats))
        records["number"], records["kind"], records["truncated"] = numbers, MATCH, truncated
        who = self._schedule.entrants_of(numbers)
        # Who takes a seat for good is written down as such, and is nobody's opponent.
        records["policy"], records["version"] = who, np.where(who < self._entrants, -1, SCRIPTED)
        records["oldest"] = records["newest"] = versions
        records["returns"] = returns
        self._kept.append(records)

    def flush(self, now: bool = True) -> None:
        """Append what is not written yet; `now`: even if that was done a moment ago.

        Raises:
            RunDirectoryError: the disk is full or not writable.
        """
        begun = time.monotonic()
        if not self._kept or not (now or begun - self._flushed >= FLUSHED_EVERY):
            return
        records, self._kept = np.concatenate(self._kept), []
        self._flushed = begun
        try:
            self._ledger.append(records)
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write {self._path / LEDGER}: {error.strerror}; what was written is kept, "
                f"and `remuda tournament --resume {self._path}` goes on"
            ) from None

    def _take_lock(self) -> None:
        self._lock = open_file(self._path / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise RunDirectoryError(
                f"{self._path} is in use by another process; wait for it, or name another "
                "--directory"
            ) from None

    def _begin(self, description: Mapping[str, Any]) -> None:
        path = self._path / DESCRIPTION
        description = json.loads(json.dumps(description, default=str))
        if path.exists():
            _check_same(self._path, read_description(self._path), description)
        elif (self._path / LEDGER).exists() or (self._path / "config.yaml").exists():
            raise UsageError(f"{self._path} holds something else; name another directory")
        write_whole(path, json.dumps(description, indent=1).encode() + b"\n")
        self._ledger = LedgerFile(self._path / LEDGER, self._names, self._seats)
        self._read_ledger()

    def _read_ledger(self) -> None:
        """Take the matches that are over from the ledger, if there is one."""
        path, header = self._path / LEDGER, header_of(self._names, self._seats)
        with suppress(FileNotFoundError), open_stream(path) as file:
            begin = file.read(len(header))
            if begin != header and header.startswith(begin):  # killed in the middle of this line
                self._ledger.rewind(0)
                return
            if begin != header:
                raise RunDirectoryError(f"{path} is damaged; begin anew in another directory")
            records = read_records(path)[1]
            numbers = records["number"]
            fits = (records["kind"] == MATCH) & (numbers >= 0)
            if not self._is_open:
                fits &= numbers < len(self._over)
            records = records[fits]
            known = self._schedule.entrants_of(records["number"]) == records["policy"]
            if not known.all():
                raise RunDirectoryError(
                    f"{path} is damaged: match {int(records['number'][~known.all(1)][0])} is of "
                    "others than it must be; begin anew in another directory"
                )
            MatchResults.add(
                self,
                records["number"],
                records["newest"],
                records["returns"],
                records["truncated"] != 0,
            )


def read_description(directory: Path) -> dict[str, Any]:
    """Who plays what in a tournament's directory.

    Raises:
        RunDirectoryError: it is none, or damaged.
    """
    path = directory / DESCRIPTION
    try:
        found = read_json(path)
    except FileNotFoundError:
        raise RunDirectoryError(
            f"{directory} is no directory of a tournament: it has no {DESCRIPTION}"
        ) from None
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path} is damaged: {error}") from None
    if not (isinstance(found, dict) and isinstance(found.get("entrants"), list)):
        raise RunDirectoryError(f"{path} is damaged: it does not tell who plays")
    return found


def keep_weights(directory: Path, snapshots: Sequence[Snapshot]) -> None:
    """Keep the weights of those who play, so that a run may let go of them.

    Nothing is kept where they are more than `KEPT_BYTES`.

    Raises:
        RunDirectoryError: the disk is full or not writable.
    """
    path, weights = directory / WEIGHTS, {weights_digest(s): s.weights for s in snapshots}
    if path.exists() or not weights or sum(w.nbytes for w in weights.values()) > KEPT_BYTES:
        return
    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **weights)
    try:
        write_whole(path, data.getvalue())
    except OSError as error:
        raise RunDirectoryError(f"cannot write {path}: {error.strerror}") from None


def kept_weights(directory: Path) -> dict[str, Floats]:
    """The weights that `keep_weights` kept, by digest; none: it kept none, or they are damaged."""
    try:
        with open_stream(directory / WEIGHTS) as file, np.load(file, allow_pickle=False) as found:
            return {digest: found[digest] for digest in found.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return {}


def _check_same(directory: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise a `UsageError` that tells what has changed, if anything has that may not."""
    for key in {**now, **was}:
        if key in FREE or was.get(key) == now.get(key):
            continue
        what = key
        if key == "entrants":
            what = _changed(was[key], now[key])
        raise UsageError(
            f"{directory} holds a tournament of other matches: {what} differ{_s(what)}; name "
            "another directory, or leave it to the default"
        )


def _changed(was: list[Any], now: list[Any]) -> str:
    """What differs between two lists of entrants."""
    before = {each.get("name"): each for each in was if isinstance(each, dict)}
    if list(before) != [each["name"] for each in now]:
        return "the entrants"
    return "the policies of " + ", ".join(e["name"] for e in now if before[e["name"]] != e)


def _s(what: str) -> str:
    return "" if what.startswith("the ") or what.endswith("s") else "s"
