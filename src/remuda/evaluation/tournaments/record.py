"""Results of a tournament's matches, in memory and in a directory.

The directory contains `tournament.json` with the entrants, `weights.npz` with their weights, and
`ledger.bin` with a record for each finished match (see `population/ledger/`), whose policies are
the entrants. Records are appended, so a killed process loses no written record. On resume,
unfinished matches are replayed with the same seeds. After a crash, the longest of the last matches
are missing, so compute means only when the ledger is complete.
"""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from remuda.errors import RunDirectoryError, UsageError
from remuda.evaluation.tournaments.entrants import weights_digest
from remuda.evaluation.tournaments.schedule import Schedule
from remuda.population.ledger.ledger import MATCH, LedgerFile, header_of, read_records, record_type
from remuda.population.ledger.records import SCRIPTED
from remuda.publish.snapshot import Snapshot
from remuda.system.checkpoint.opening import lock_directory, open_stream, read_json
from remuda.system.checkpoint.state import sweep, write_whole
from remuda.types import Array, Bools, Floats, Integers, Numbers

DESCRIPTION, LEDGER = "tournament.json", "ledger.bin"
FLUSHED_EVERY = 0.1  # minimum seconds between two appends of finished matches
WEIGHTS = "weights.npz"
KEPT_BYTES = 1 << 28  # save the players' weights too, up to this total size
FREE = ("episodes", "asked")  # settings that may differ on resume
MOST_MATCHES = 100_000_000  # most matches whose returns are kept


class MatchResults:
    """The returns of all finished matches, by match number."""

    def __init__(self, schedule: Schedule, num_seats: int) -> None:
        if schedule.num_matches > MOST_MATCHES:
            seatings = schedule.num_matches // schedule.episodes
            raise UsageError(
                f"episodes: {schedule.episodes:,} for each of {seatings:,} seatings are "
                f"{schedule.num_matches:,} matches, and at most {MOST_MATCHES:,} are allowed; set "
                f"at most {MOST_MATCHES // seatings:,} episodes, or a question with until"
            )
        self._schedule = schedule
        self._numbers: list[Integers] = [np.zeros(0, np.int64)]
        self._parts: list[Floats] = [np.zeros((0, num_seats), np.float32)]

    @property
    def done(self) -> int:
        return sum(map(len, self._numbers))

    def played(self) -> tuple[Integers, Floats]:
        """Return the numbers of finished matches [M], sorted, and their returns [M, S]."""
        numbers, returns = np.concatenate(self._numbers), np.concatenate(self._parts)
        numbers, order = np.unique(numbers, return_index=True)
        self._numbers, self._parts = [numbers], [returns[order]]
        return numbers, returns[order]

    def of_seatings(self) -> list[Numbers]:
        """Return the returns of finished matches by seating, each [matches, S]."""
        return self._schedule.by_seating(*self.played())

    def unfinished(self) -> Integers:
        """Return the sorted numbers of unfinished matches; empty if `episodes` is 0."""
        return self.unfinished_among(np.arange(self._schedule.num_matches))

    def unfinished_among(self, numbers: Integers) -> Integers:
        """Return the numbers among `numbers` whose matches are unfinished, sorted."""
        unfinished: Integers = np.setdiff1d(numbers, self.played()[0])
        return unfinished

    def add(self, numbers: Integers, versions: Integers, returns: Floats, truncated: Bools) -> None:  # noqa: ARG002
        """Store finished matches: numbers [M], returns [M, S]."""
        self._numbers.append(numbers.astype(np.int64))
        self._parts.append(returns.astype(np.float32))

    def flush(self, now: bool = True) -> None:
        """Do nothing: results in memory need no flush."""

    def close(self) -> None:
        self.flush()


class RecordedResults(MatchResults):
    """Match results that are also written to a directory.

    Guarantees:

    1. A match whose record was written is never played again, however the process ended.
    2. A partly written record is skipped, and its match is played again.
    3. One process at a time writes to a directory.
    4. A directory of another tournament is refused, and left unchanged.
    """

    def __init__(
        self, schedule: Schedule, num_seats: int, directory: Path, description: Mapping[str, Any]
    ) -> None:
        super().__init__(schedule, num_seats)
        self._path, self._seats = directory, num_seats
        self._names = [each["name"] for each in description["entrants"]]
        self._num_entrants = len(self._names)
        taken = description.get("scripted", {})
        self._names += [
            f"{name} ({taken[name]})" for name in description["agents"] if name in taken
        ]
        self._unwritten: list[Array] = []
        self._flushed_at = time.monotonic()
        self._lock: int | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = lock_directory(directory, "--directory")
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
        try:
            self.flush()
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def add(self, numbers: Integers, versions: Integers, returns: Floats, truncated: Bools) -> None:
        """Store finished matches; the next `flush` writes them."""
        super().add(numbers, versions, returns, truncated)
        records = np.zeros(len(numbers), record_type(self._seats))
        records["number"], records["kind"], records["truncated"] = numbers, MATCH, truncated
        records["policy"] = entrants = self._schedule.entrants_of(numbers)
        # A reserved seat's policy is recorded with the version `SCRIPTED`, and is no opponent.
        records["version"] = np.where(entrants < self._num_entrants, -1, SCRIPTED)
        records["oldest"] = records["newest"] = versions
        records["returns"] = returns
        self._unwritten.append(records)

    def flush(self, now: bool = True) -> None:
        """Append records not yet written; without `now`, only every `FLUSHED_EVERY` seconds."""
        started = time.monotonic()
        if not self._unwritten or not (now or started - self._flushed_at >= FLUSHED_EVERY):
            return
        records, self._unwritten = np.concatenate(self._unwritten), []
        self._flushed_at = started
        try:
            self._ledger.append(records)
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write {self._path / LEDGER}: {error.strerror}; what was written is kept, "
                f"and `remuda tournament --resume {self._path}` resumes"
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
        """Read the finished matches from the ledger, if there is one."""
        path, header = self._path / LEDGER, header_of(self._names, self._seats)
        with suppress(FileNotFoundError), open_stream(path) as file:
            start = file.read(len(header))
            if start != header and header.startswith(start):  # killed while writing the header
                self._ledger.rewind(0)
                return
            if start != header:
                raise RunDirectoryError(f"{path} is damaged; start over in another directory")
            records = read_records(path)[1]
            numbers = records["number"]
            fits = (records["kind"] == MATCH) & (numbers >= 0)
            if self._schedule.episodes:
                fits &= numbers < self._schedule.num_matches
            records = records[fits]
            known = self._schedule.entrants_of(records["number"]) == records["policy"]
            if not known.all():
                raise RunDirectoryError(
                    f"{path} is damaged: match {int(records['number'][~known.all(1)][0])} "
                    "has the wrong entrants; start over in another directory"
                )
            super().add(
                records["number"], records["newest"], records["returns"], records["truncated"] != 0
            )


def read_description(directory: Path) -> dict[str, Any]:
    """Return the description of a tournament's directory."""
    path = directory / DESCRIPTION
    try:
        found = read_json(path)
    except FileNotFoundError:
        raise RunDirectoryError(
            f"{directory} is not a tournament directory: it has no {DESCRIPTION}"
        ) from None
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path} is damaged: {error}") from None
    if not (isinstance(found, dict) and isinstance(found.get("entrants"), list)):
        raise RunDirectoryError(f"{path} is damaged: it lists no entrants")
    return found


def keep_weights(directory: Path, snapshots: Sequence[Snapshot]) -> None:
    """Save the players' weights up to `KEPT_BYTES`, so that their run may delete them."""
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
    """Return the saved weights by digest; empty if the file is missing or damaged."""
    try:
        with open_stream(directory / WEIGHTS) as file, np.load(file, allow_pickle=False) as found:
            return {digest: found[digest] for digest in found.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return {}


def _check_same(directory: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for key in {**now, **was}:
        if key in FREE or was.get(key) == now.get(key):
            continue
        differ = f"{key} differ" if key.endswith("s") else f"{key} differs"
        if key == "entrants":
            differ = f"{_changed(was[key], now[key])} differ"
        raise UsageError(
            f"{directory} holds another tournament: {differ}; name another directory, or use the "
            "default"
        )


def _changed(was: list[Any], now: list[Any]) -> str:
    before = {each.get("name"): each for each in was if isinstance(each, dict)}
    if list(before) != [each["name"] for each in now]:
        return "the entrants"
    return "the policies of " + ", ".join(e["name"] for e in now if before[e["name"]] != e)
